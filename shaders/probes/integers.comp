// Integers: modulo 2^32, shifts by sign, bytes out of words and into them, quotients.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint a = x.words[2 * i], b = x.words[2 * i + 1];
    int c = int(a), d = int(b), shift = int(b & 31u);
    uint results[12] = uint[](
        a + b, a - b, a * b, a << shift, a >> shift, uint(c >> shift),
        min(a, b), uint(max(c, d)), uint(bitfieldExtract(c, 8, 8)), bitfieldInsert(a, b, 16, 8),
        a / max(b, 1u), a % max(b, 1u));
    for (uint k = 0; k < 12; k++) {
        y.words[12 * i + k] = results[k];
    }
}
