// Packed dot products of bytes: signed, unsigned, and signed with unsigned.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_spirv_intrinsics : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Output { uint words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 64) in;

// OpSDot, OpUDot, OpSUDot of PackedVectorFormat4x8Bit: GLSL has no names for them.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int signed_dot(uint a, uint b, spirv_literal int format);
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4451)
uint unsigned_dot(uint a, uint b, spirv_literal int format);
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4452)
int mixed_dot(uint a, uint b, spirv_literal int format);

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint a = x.words[2 * i], b = x.words[2 * i + 1];
    y.words[3 * i] = uint(signed_dot(a, b, 0));
    y.words[3 * i + 1] = unsigned_dot(a, b, 0);
    y.words[3 * i + 2] = uint(mixed_dot(a, b, 0));
}
