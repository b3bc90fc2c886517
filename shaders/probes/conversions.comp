// Integers to floats, rounded to nearest even, and bits that pass for floats unchanged.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

void main() {
    uint i = gl_GlobalInvocationID.x;
    int n = int(x.words[i]);
    y.words[3 * i] = floatBitsToUint(float(n));
    y.words[3 * i + 1] = floatBitsToUint(float(n >> 8));
    // A float of any sign and fraction between 2 and 4.
    float bits = uintBitsToFloat((uint(n) & 0x807FFFFFu) | 0x40000000u);
    y.words[3 * i + 2] = floatBitsToUint(n < 0 ? bits : uintBitsToFloat(0x40000000u | uint(n) & 0x7FFFFFu));
}
