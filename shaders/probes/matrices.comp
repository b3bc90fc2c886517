// Matrices: a product of 32x64 and 64x16 bytes and a sum with 32x16 words, by tiles of 16x8x32 at other offsets each.
#version 460
#pragma use_vulkan_memory_model
#extension GL_EXT_buffer_reference : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Input { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Output { int words[]; };
// A launch's record: addresses, then parameters.
layout(push_constant, std430) uniform Record { Input x; Output y; };
layout(local_size_x = 32) in;

// Words from row to row of A, from column to column of B, from row to row of C; each begins where the last ends.
const uint A_STRIDE = 20, B_STRIDE = 24, C_STRIDE = 20;
const uint B_AT = 32 * A_STRIDE, C_AT = B_AT + 16 * B_STRIDE;

void main() {
    for (uint row = 0; row < 32; row += 16) {
        for (uint col = 0; col < 16; col += 8) {
            coopmat<int, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator> sum;
            coopMatLoad(sum, x.words, C_AT + row * C_STRIDE + col, C_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
            for (uint k = 0; k < 16; k += 8) {
                coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA> a;
                coopmat<int8_t, gl_ScopeSubgroup, 32, 8, gl_MatrixUseB> b;
                coopMatLoad(a, x.words, row * A_STRIDE + k, A_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
                coopMatLoad(b, x.words, B_AT + col * B_STRIDE + k, B_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
                sum = coopMatMulAdd(a, b, sum);
            }
            coopMatStore(sum, y.words, row * 16 + col, 16, gl_CooperativeMatrixLayoutRowMajor);
        }
    }
}
