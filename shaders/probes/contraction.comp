// A product that is added is rounded first.
#version 460
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

void main() {
    uint i = gl_GlobalInvocationID.x;
    float a = uintBitsToFloat(x.words[3 * i]);
    float b = uintBitsToFloat(x.words[3 * i + 1]);
    float c = uintBitsToFloat(x.words[3 * i + 2]);
    precise float product = a * b;
    precise float sum = product + c;
    precise float difference = c - product;
    // As long sums are: one product after the other.
    precise float dot = a * b;
    for (uint k = 0; k < 3; k++) {
        precise float next = a * c;
        dot = dot + next;
    }
    y.words[3 * i] = floatBitsToUint(sum);
    y.words[3 * i + 1] = floatBitsToUint(difference);
    y.words[3 * i + 2] = floatBitsToUint(dot);
}
