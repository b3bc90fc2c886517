// Exchanges in a subgroup: sums by turns with the neighbour 1, 2, 4, ... away, and the value of one invocation.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 128) in;

void main() {
    uint lane = gl_SubgroupInvocationID;
    uint i = gl_WorkGroupID.x * 128 + gl_SubgroupID * gl_SubgroupSize + lane;
    precise float sum = uintBitsToFloat(x.words[i]);
    for (uint away = 1; away < min(gl_SubgroupSize, 32u); away *= 2) {
        precise float other = subgroupShuffleXor(sum, away);
        sum = sum + other;
    }
    y.words[2 * i] = floatBitsToUint(sum);
    y.words[2 * i + 1] = subgroupShuffle(x.words[i], (gl_SubgroupSize - 1) & 2u);
}
