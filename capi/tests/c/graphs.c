/* Tensors, graphs and programs: what they give, and what they refuse. */

#include "check.h"

enum { WIDTH = 4 };

#define REFUSED(call) FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "", call)

static const float SQUARE[WIDTH * WIDTH] = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0};

static unisonic_tensor *floats(unisonic_library *library, const float *values, uint64_t rows, uint64_t width)
{
    unisonic_tensor *tensor = NULL;
    const uint64_t dims[2] = {rows, width};
    OK(unisonic_tensor_new(library, UNISONIC_DTYPE_F32, dims, 2, values, rows * width * sizeof *values, &tensor, &error));
    return tensor;
}

static unisonic_node node(uint32_t op, const uint32_t *inputs, size_t inputs_len)
{
    unisonic_node made;
    memset(&made, 0, sizeof made);
    made.struct_size = sizeof made;
    made.op = op;
    made.inputs = inputs;
    made.inputs_len = inputs_len;
    return made;
}

/* W x over rows of WIDTH, and perhaps an operation whose result nobody reads. */
static unisonic_graph *product(unisonic_library *library, int with_unused)
{
    unisonic_graph *graph = NULL;
    uint32_t x, y, sum, z;
    OK(unisonic_graph_new(library, "product", 7, 1, 64, &graph, &error));
    unisonic_node made = node(UNISONIC_OP_INPUT, NULL, 0);
    made.width = WIDTH;
    OK(unisonic_graph_add_node(graph, &made, &x, &error));
    made = node(UNISONIC_OP_LINEAR, &x, 1);
    made.weight.name = "w";
    made.weight.name_len = 1;
    made.weight.rows = made.weight.cols = WIDTH;
    OK(unisonic_graph_add_node(graph, &made, &y, &error));
    if (with_unused) {
        made = node(UNISONIC_OP_GELU, &y, 1);
        OK(unisonic_graph_add_node(graph, &made, &sum, &error));
    }
    made = node(UNISONIC_OP_SELECT_OUTPUTS, &y, 1);
    OK(unisonic_graph_add_node(graph, &made, &z, &error));
    CHECK(unisonic_graph_value_width(graph, z) == WIDTH);
    CHECK(unisonic_graph_value_width(graph, 99) == 0);
    FAILS(UNISONIC_STATUS_GRAPH, "has no output", unisonic_graph_verify(graph, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "no value 99", unisonic_graph_set_output(graph, 99, &error));
    OK(unisonic_graph_set_output(graph, z, &error));
    OK(unisonic_graph_verify(graph, &error));
    return graph;
}

static unisonic_weights *weights_of(unisonic_library *library)
{
    unisonic_weights *weights = NULL;
    unisonic_tensor *square = floats(library, SQUARE, WIDTH, WIDTH);
    OK(unisonic_weights_open(library, NULL, 0, &weights, &error));
    OK(unisonic_weights_add(weights, "w", 1, square, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "already", unisonic_weights_add(weights, "w", 1, square, &error));
    CHECK(unisonic_tensor_free(square) == UNISONIC_STATUS_OK);
    return weights;
}

static char *plan_of(unisonic_graph *graph, unisonic_weights *weights)
{
    unisonic_buffer *text = NULL;
    OK(unisonic_graph_plan(graph, weights, NULL, 0, &text, &error));
    char *copy = malloc(unisonic_buffer_len_bytes(text) + 1);
    CHECK(copy != NULL);
    memcpy(copy, unisonic_buffer_data(text), unisonic_buffer_len_bytes(text) + 1);
    CHECK(unisonic_buffer_free(text) == UNISONIC_STATUS_OK);
    return copy;
}

static void nodes_are_refused_where_they_are_added(unisonic_library *library)
{
    unisonic_graph *graph = product(library, 0);
    const uint32_t x = 0, two[2] = {0, 99};
    uint32_t value = 7;
    unisonic_node made = node(UNISONIC_OP_LINEAR, &x, 1);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "needs a weight", unisonic_graph_add_node(graph, &made, &value, &error));
    made.weight.name = "w";
    made.weight.name_len = 1;
    made.weight.rows = made.weight.cols = 7;
    made.label = "wide";
    made.label_len = 4;
    FAILS(UNISONIC_STATUS_GRAPH, "label=wide", unisonic_graph_add_node(graph, &made, &value, &error));
    made = node(UNISONIC_OP_ADD, two, 2);
    FAILS(UNISONIC_STATUS_GRAPH, "%99 must be defined", unisonic_graph_add_node(graph, &made, &value, &error));
    made = node(999, NULL, 0);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "op is 999", unisonic_graph_add_node(graph, &made, &value, &error));
    made = node(UNISONIC_OP_ATTENTION, &x, 1);
    made.kv = 4000000000u;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "no cache", unisonic_graph_add_node(graph, &made, &value, &error));
    made = node(UNISONIC_OP_EXPERT_LINEAR, &x, 1);
    made.struct_size = 8;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "struct_size", unisonic_graph_add_node(graph, &made, &value, &error));
    CHECK(value == 7);
    /* It is as it was. */
    OK(unisonic_graph_verify(graph, &error));
    CHECK(unisonic_graph_free(graph) == UNISONIC_STATUS_OK);
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "freed", unisonic_graph_verify(graph, &error));
}

static void a_program_computes(unisonic_library *library)
{
    unisonic_graph *graph = product(library, 1), *without = product(library, 0);
    unisonic_weights *weights = weights_of(library);
    char *plan = plan_of(graph, weights), *plan_without = plan_of(without, weights);
    CHECK(strcmp(plan, plan_without) == 0);
    free(plan);
    free(plan_without);
    unisonic_program *program = NULL;
    OK(unisonic_program_load(graph, weights, NULL, &program, &error));
    CHECK(unisonic_graph_free(graph) == UNISONIC_STATUS_OK && unisonic_graph_free(without) == UNISONIC_STATUS_OK);
    CHECK(unisonic_weights_free(weights) == UNISONIC_STATUS_OK);

    unisonic_program_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    OK(unisonic_program_get_info(program, &info, &error));
    CHECK(info.input_width == WIDTH && info.output_width == WIDTH && !info.takes_tokens && !info.has_state);
    CHECK(strcmp(info.device.data, "cpu") == 0);

    const float rows[2 * WIDTH] = {1, 2, 4, 8, -1, 0, 0, 1};
    float given[2 * WIDTH], wanted[2 * WIDTH] = {2, 4, 8, 1, 0, 0, 1, -1};
    unisonic_tensor *input = floats(library, rows, 2, WIDTH), *output = NULL;
    OK(unisonic_program_run(program, NULL, NULL, 0, input, 0, &output, &error));
    CHECK(unisonic_tensor_dtype(output) == UNISONIC_DTYPE_F32 && unisonic_tensor_len_dims(output) == 2);
    CHECK(unisonic_tensor_dim(output, 0) == 2 && unisonic_tensor_dim(output, 1) == WIDTH);
    CHECK(unisonic_tensor_len_bytes(output) == sizeof given);
    OK(unisonic_tensor_read(output, 0, given, sizeof given, &error));
    for (int i = 0; i < 2 * WIDTH; i++)
        CHECK(given[i] - wanted[i] < 1e-3f && wanted[i] - given[i] < 1e-3f);
    uint32_t largest = 99;
    OK(unisonic_tensor_argmax(output, 1, &largest, &error));
    CHECK(largest == 2);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "row 2", unisonic_tensor_argmax(output, 2, &largest, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "from byte 4", unisonic_tensor_read(output, 4, given, sizeof given, &error));
    unisonic_tensor *row = NULL;
    OK(unisonic_tensor_rows(output, 1, 1, &row, &error));
    CHECK(unisonic_tensor_len_bytes(row) == WIDTH * sizeof(float));

    /* What does not fit is refused, and the program goes on. */
    const uint32_t tokens[1] = {0};
    unisonic_tensor *none = NULL;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "4 values for each row",
          unisonic_program_run(program, NULL, tokens, 1, NULL, 0, &none, &error));
    CHECK(none == NULL);
    const float hot[WIDTH] = {1, 1e30f, 0, 0};
    unisonic_tensor *too_hot = floats(library, hot, 1, WIDTH);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "row 0: value 1",
          unisonic_program_run(program, NULL, NULL, 0, too_hot, 0, &none, &error));
    unisonic_sequence *sequence = NULL;
    OK(unisonic_sequence_new(program, &sequence, &error));
    OK(unisonic_program_run(program, sequence, NULL, 0, input, 2, &none, &error));
    CHECK(unisonic_tensor_dim(none, 0) == 0 && unisonic_sequence_len(sequence) == 0);
    CHECK(unisonic_program_free(program) == UNISONIC_STATUS_OK);
    CHECK(unisonic_sequence_free(sequence) == UNISONIC_STATUS_OK);
    unisonic_tensor *all[] = {input, output, row, too_hot, none};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK(unisonic_tensor_free(all[i]) == UNISONIC_STATUS_OK);
}

/* The model's file has what its metadata says. */
static void weights_of_a_file(unisonic_library *library)
{
    unisonic_weights *weights = NULL;
    unisonic_buffer *text = NULL;
    uint64_t dims[4] = {0, 0, 0, 0};
    size_t len = 0;
    double number = 0;
    OK(unisonic_weights_open(library, model_path, strlen(model_path), &weights, &error));
    OK(unisonic_weights_shape(weights, "token_embd.weight", 17, dims, 4, &len, &error));
    CHECK(len == 2 && dims[0] > 0 && dims[1] > 0);
    OK(unisonic_weights_shape(weights, "absent", 6, dims, 4, &len, &error));
    CHECK(len == 0 && unisonic_weights_has(weights, "absent", 6) == 0);
    CHECK(unisonic_weights_has(weights, "token_embd.weight", 17) == 1);
    OK(unisonic_weights_get_text(weights, "general.architecture", 20, &text, &error));
    CHECK(strcmp((const char *)unisonic_buffer_data(text), "llama") == 0);
    CHECK(unisonic_buffer_free(text) == UNISONIC_STATUS_OK);
    OK(unisonic_weights_get_number(weights, "llama.block_count", 17, &number, &error));
    CHECK(number >= 1);
    FAILS(UNISONIC_STATUS_UNSUPPORTED, "is no number",
          unisonic_weights_get_number(weights, "general.architecture", 20, &number, &error));
    FAILS(UNISONIC_STATUS_UNSUPPORTED, "no metadata key `x`", unisonic_weights_get_text(weights, "x", 1, &text, &error));
    CHECK(unisonic_weights_free(weights) == UNISONIC_STATUS_OK);
}

static void nothing(void)
{
    REFUSED(unisonic_tensor_new(NULL, 0, NULL, 0, NULL, 0, NULL, &error));
    CHECK(unisonic_tensor_dtype(NULL) == 0 && unisonic_tensor_len_dims(NULL) == 0 && unisonic_tensor_dim(NULL, 0) == 0);
    CHECK(unisonic_tensor_len_bytes(NULL) == 0 && unisonic_tensor_free(NULL) == UNISONIC_STATUS_OK);
    REFUSED(unisonic_tensor_read(NULL, 0, NULL, 0, &error));
    REFUSED(unisonic_tensor_rows(NULL, 0, 0, NULL, &error));
    REFUSED(unisonic_tensor_argmax(NULL, 0, NULL, &error));
    REFUSED(unisonic_graph_new(NULL, NULL, 0, 0, 0, NULL, &error));
    REFUSED(unisonic_graph_parse(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_graph_print(NULL, NULL, &error));
    REFUSED(unisonic_graph_add_rope(NULL, NULL, NULL, &error));
    REFUSED(unisonic_graph_add_kv(NULL, 0, 0, NULL, &error));
    REFUSED(unisonic_graph_add_node(NULL, NULL, NULL, &error));
    CHECK(unisonic_graph_value_width(NULL, 0) == 0 && unisonic_graph_free(NULL) == UNISONIC_STATUS_OK);
    REFUSED(unisonic_graph_set_output(NULL, 0, &error));
    REFUSED(unisonic_graph_verify(NULL, &error));
    REFUSED(unisonic_graph_plan(NULL, NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_weights_open(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_weights_add(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_weights_shape(NULL, NULL, 0, NULL, 0, NULL, &error));
    REFUSED(unisonic_weights_get_number(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_weights_get_text(NULL, NULL, 0, NULL, &error));
    CHECK(unisonic_weights_has(NULL, NULL, 0) == 0 && unisonic_weights_free(NULL) == UNISONIC_STATUS_OK);
    REFUSED(unisonic_program_load(NULL, NULL, NULL, NULL, &error));
    REFUSED(unisonic_program_get_info(NULL, NULL, &error));
    REFUSED(unisonic_program_print(NULL, NULL, &error));
    REFUSED(unisonic_program_run(NULL, NULL, NULL, 0, NULL, 0, NULL, &error));
    CHECK(unisonic_program_free(NULL) == UNISONIC_STATUS_OK);
    REFUSED(unisonic_sequence_new(NULL, NULL, &error));
    CHECK(unisonic_sequence_len(NULL) == 0 && unisonic_sequence_free(NULL) == UNISONIC_STATUS_OK);
    REFUSED(unisonic_sequence_truncate(NULL, 0, &error));
    CHECK(unisonic_library_len_handles(NULL) == 0);
}

void test_graphs(void)
{
    unisonic_library *library = open_library();
    unisonic_graph *graph = NULL;
    nothing();
    CHECK(unisonic_library_len_handles(library) == 1);
    nodes_are_refused_where_they_are_added(library);
    a_program_computes(library);
    weights_of_a_file(library);
    FAILS(UNISONIC_STATUS_GRAPH, "line 1: expected", unisonic_graph_parse(library, "what?", 5, &graph, &error));
    CHECK(graph == NULL);
    CHECK(unisonic_library_len_handles(library) == 1);
    CHECK(unisonic_library_close(library) == UNISONIC_STATUS_OK);
}
