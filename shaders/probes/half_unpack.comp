// Halves of a word to floats, which kernels do by integer operations.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

void main() {
    uint i = gl_GlobalInvocationID.x;
    vec2 halves = unpackHalf2x16(x.words[i]);
    y.words[2 * i] = floatBitsToUint(halves.x);
    y.words[2 * i + 1] = floatBitsToUint(halves.y);
}
