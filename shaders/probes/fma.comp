// Fma: a product and a sum, with one rounding or two. Kernels have none.
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
    y.words[i] = floatBitsToUint(fma(a, b, c));
}
