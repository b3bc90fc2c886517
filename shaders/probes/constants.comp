// The same as reassociation.comp with constants that the compiler knows.
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
    // Adding and subtracting 1.5 * 2^23 rounds to an integer.
    precise float up = t + 12582912.0;
    precise float rounded = up - 12582912.0;
    precise float third = t * 3.0;
    precise float back = third * 0.333333343;
    precise float large = t + 1048576.0;
    precise float sum = large + 0.0009765625;
    precise float zero = t * 0.0;
    precise float same = t + 0.0;
    precise float none = t - t;
    precise float from_zero = 0.0 - t;
    precise float by_minus_one = t * -1.0;
    precise float of_zeros = zero + -0.0;
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
