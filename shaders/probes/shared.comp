// Shared memory: a sum over a workgroup as a tree, with a barrier after each level.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

shared float values[64];

void main() {
    uint id = gl_LocalInvocationIndex;
    uint i = gl_WorkGroupID.x * 64 + id;
    values[id] = uintBitsToFloat(x.words[i]);
    for (uint half_len = 32; half_len > 0; half_len /= 2) {
        barrier();
        if (id < half_len) {
            precise float sum = values[id] + values[id + half_len];
            values[id] = sum;
        }
    }
    barrier();
    precise float added = values[0] + values[63 - id];
    y.words[i] = floatBitsToUint(added);
}
