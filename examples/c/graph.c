/* A graph by hand: x + W norm(x) over rows of four numbers, built node by node, with weights of our own.
 *
 *   cc -Wall -Wextra -pedantic examples/c/graph.c -Icapi/include -Ltarget/release -lunisonic -o graph && ./graph [DEVICE]
 *
 * A model is the same with more nodes, and tokens at its beginning; weights then come from its file, by
 * unisonic_weights_open(library, path, strlen(path), ...). */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisonic.h>

enum { WIDTH = 4, ROWS = 3 };

/* Says why a call failed and ends the program. */
static void check(unisonic_status status, unisonic_error *error) {
    if (status != UNISONIC_STATUS_OK) {
        fprintf(stderr, "graph: %s\n", unisonic_error_message(error));
        unisonic_error_free(error);
        exit(1);
    }
}

static unisonic_weight matrix(const char *name, uint32_t rows, uint32_t cols) {
    unisonic_weight weight = {0};
    weight.name = name;
    weight.name_len = strlen(name);
    weight.rows = rows;
    weight.cols = cols;
    return weight;
}

/* Adds a node and gives the number of its value. */
static uint32_t add(unisonic_graph *graph, uint32_t op, const char *label, const uint32_t *inputs, size_t inputs_len,
                    unisonic_weight weight, double number) {
    unisonic_node node = {0};
    unisonic_error *error;
    uint32_t value = 0;
    node.struct_size = sizeof node;
    node.op = op;
    node.label = label;
    node.label_len = strlen(label);
    node.inputs = inputs;
    node.inputs_len = inputs_len;
    node.weight = weight;
    node.number = number;
    node.width = op == UNISONIC_OP_INPUT ? WIDTH : 0;
    check(unisonic_graph_add_node(graph, &node, &value, &error), error);
    return value;
}

static unisonic_graph *residual(unisonic_library *library) {
    const unisonic_weight none = {0};
    unisonic_graph *graph;
    unisonic_error *error;
    uint32_t x, normed, block, sum, output, operands[2];
    check(unisonic_graph_new(library, "residual", strlen("residual"), 1, 64, &graph, &error), error);
    x = add(graph, UNISONIC_OP_INPUT, "x", NULL, 0, none, 0);
    normed = add(graph, UNISONIC_OP_RMS_NORM, "norm", &x, 1, matrix("n", 0, WIDTH), 1e-6);
    block = add(graph, UNISONIC_OP_LINEAR, "block", &normed, 1, matrix("w", WIDTH, WIDTH), 0);
    operands[0] = x;
    operands[1] = block;
    sum = add(graph, UNISONIC_OP_ADD, "sum", operands, 2, none, 0);
    output = add(graph, UNISONIC_OP_SELECT_OUTPUTS, "select", &sum, 1, none, 0);
    check(unisonic_graph_set_output(graph, output, &error), error);
    return graph;
}

static void add_weight(unisonic_library *library, unisonic_weights *weights, const char *name, const float *values,
                       const uint64_t *dims, size_t dims_len) {
    unisonic_tensor *tensor;
    unisonic_error *error;
    size_t len = 1, i;
    for (i = 0; i < dims_len; i++) {
        len *= dims[i];
    }
    check(unisonic_tensor_new(library, UNISONIC_DTYPE_F32, dims, dims_len, values, len * sizeof *values, &tensor, &error),
          error);
    check(unisonic_weights_add(weights, name, strlen(name), tensor, &error), error);
    unisonic_tensor_free(tensor);
}

static void print_text(unisonic_buffer *text) {
    fwrite(unisonic_buffer_data(text), 1, unisonic_buffer_len_bytes(text), stdout);
    unisonic_buffer_free(text);
}

int main(int argc, char **argv) {
    const float norm[WIDTH] = {1, 1, 1, 1};
    const float w[WIDTH * WIDTH] = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0};
    const float rows[ROWS * WIDTH] = {1, 2, 3, 4, -1, 0, 0, 1, 100, 200, 300, 400};
    const uint64_t vector[1] = {WIDTH}, square[2] = {WIDTH, WIDTH}, shape[2] = {ROWS, WIDTH};
    const char *device = argc > 1 ? argv[1] : "cpu";
    unisonic_program_options options = {0};
    unisonic_library *library;
    unisonic_weights *weights;
    unisonic_graph *graph;
    unisonic_program *program;
    unisonic_tensor *input, *output;
    unisonic_buffer *text;
    unisonic_error *error;
    float result[ROWS * WIDTH];
    size_t row, i;

    check(unisonic_library_open(UNISONIC_ABI_VERSION, NULL, &library, &error), error);
    check(unisonic_weights_open(library, NULL, 0, &weights, &error), error);
    add_weight(library, weights, "n", norm, vector, 1);
    add_weight(library, weights, "w", w, square, 2);
    graph = residual(library);
    check(unisonic_graph_print(graph, &text, &error), error);
    print_text(text);

    options.struct_size = sizeof options;
    options.device = device;
    options.device_len = strlen(device);
    check(unisonic_program_load(graph, weights, &options, &program, &error), error);
    check(unisonic_program_print(program, &text, &error), error);
    print_text(text);

    check(unisonic_tensor_new(library, UNISONIC_DTYPE_F32, shape, 2, rows, sizeof rows, &input, &error), error);
    check(unisonic_program_run(program, NULL, NULL, 0, input, 0, &output, &error), error);
    check(unisonic_tensor_read(output, 0, result, sizeof result, &error), error);
    for (row = 0; row < ROWS; row++) {
        for (i = 0; i < WIDTH; i++) {
            printf("%g%c", (double)result[row * WIDTH + i], i + 1 < WIDTH ? ' ' : '\n');
        }
    }

    unisonic_tensor_free(output);
    unisonic_tensor_free(input);
    unisonic_program_free(program);
    unisonic_graph_free(graph);
    unisonic_weights_free(weights);
    unisonic_library_close(library);
    return 0;
}
