// What is no identity in binary32 is not taken for one: sums in another order, products by 0 and 1, sums with 0.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

void main() {
    uint i = gl_GlobalInvocationID.x;
    float t = uintBitsToFloat(x.words[i]);
    // 0, which no compiler knows.
    uint zero_bits = gl_WorkGroupID.z;
    float M = uintBitsToFloat(0x4B400000u + zero_bits);
    float three = uintBitsToFloat(0x40400000u + zero_bits), of_three = uintBitsToFloat(0x3EAAAAABu + zero_bits);
    float great = uintBitsToFloat(0x49800000u + zero_bits), small = uintBitsToFloat(0x3A800000u + zero_bits);
    float plus_zero = uintBitsToFloat(zero_bits), minus_zero = uintBitsToFloat(0x80000000u + zero_bits);
    float minus_one = uintBitsToFloat(0xBF800000u + zero_bits);
    // Adding and subtracting 1.5 * 2^23 rounds to an integer.
    precise float up = t + M;
    precise float rounded = up - M;
    precise float third = t * three;
    precise float back = third * of_three;
    precise float large = t + great;
    precise float sum = large + small;
    precise float zero = t * plus_zero;
    precise float same = t + plus_zero;
    precise float none = t - t;
    precise float from_zero = plus_zero - t;
    precise float by_minus_one = t * minus_one;
    precise float of_zeros = zero + minus_zero;
    y.words[9 * i] = floatBitsToUint(rounded);
    y.words[9 * i + 1] = floatBitsToUint(back);
    y.words[9 * i + 2] = floatBitsToUint(sum);
    y.words[9 * i + 3] = floatBitsToUint(zero);
    y.words[9 * i + 4] = floatBitsToUint(same);
    y.words[9 * i + 5] = floatBitsToUint(none);
    y.words[9 * i + 6] = floatBitsToUint(from_zero);
    y.words[9 * i + 7] = floatBitsToUint(by_minus_one);
    y.words[9 * i + 8] = floatBitsToUint(of_zeros);
}
