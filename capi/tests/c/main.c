/* Tests of the C ABI: `abi_test MODEL [TEST...]`, all of them without names. ABI_TEST_DEVICE is the device, ABI_TEST_CYCLES
 * how often `memory` loads a model (50).
 */

#include "check.h"

const char *model_path;
const uint32_t PROMPT[5] = {1, 17, 200, 42, 99};
const uint32_t OTHER[3] = {1, 200, 7};

static const struct {
    const char *name;
    void (*run)(void);
} TESTS[] = {
    {"arguments", test_arguments},   {"devices", test_devices},     {"nulls", test_nulls},         {"handles", test_handles},     {"structs", test_structs},
    {"context", test_context},       {"callbacks", test_callbacks}, {"out_of_memory", test_out_of_memory},
    {"calls_in_log", test_calls_in_log},
    {"sessions", test_sessions},     {"constraints", test_constraints}, {"receipts", test_receipts},
    {"batch", test_batch},           {"full_queue", test_full_queue}, {"cancel", test_cancel},       {"threads", test_threads},
    {"libraries", test_libraries},   {"moving", test_moving},       {"memory", test_memory},
    {"silence", test_silence},       {"paths", test_paths},         {"float_mode", test_float_mode},
    {"graphs", test_graphs},         {"replaced", test_replaced},
};

void check_failed(const char *file, int line, const char *what, unisonic_error *error)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    if (error != NULL)
        fprintf(stderr, "  status %d: %s\n", (int)unisonic_error_status(error), unisonic_error_message(error));
    exit(1);
}

unisonic_library *open_library(void)
{
    unisonic_library *library = NULL;
    OK(unisonic_library_open(UNISONIC_ABI_VERSION, NULL, &library, &error));
    return library;
}

unisonic_model *load(unisonic_library *library, const unisonic_load_options *options)
{
    unisonic_model *model = NULL;
    unisonic_load_options on_device;
    const char *device = getenv("ABI_TEST_DEVICE");
    memset(&on_device, 0, sizeof on_device);
    on_device.struct_size = sizeof on_device;
    if (options != NULL)
        on_device = *options;
    if (device != NULL) {
        on_device.device = device;
        on_device.device_len = strlen(device);
        options = &on_device;
    }
    OK(unisonic_model_load(library, model_path, strlen(model_path), options, &model, &error));
    return model;
}

unisonic_session *session_of(unisonic_model *model)
{
    unisonic_session *session = NULL;
    OK(unisonic_session_new(model, NULL, &session, &error));
    return session;
}

unisonic_generate_options greedy(uint32_t max_tokens)
{
    unisonic_generate_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.max_tokens = max_tokens;
    return options;
}

unisonic_sampler_options drawing(uint64_t seed)
{
    unisonic_sampler_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.temperature = 0.9;
    options.top_p = 0.95;
    options.seed = seed;
    return options;
}

size_t generate(unisonic_model *model, const unisonic_generate_options *options, uint32_t *tokens, size_t capacity)
{
    unisonic_session *session = session_of(model);
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, PROMPT, 5, options, &completion, &error));
    size_t len = unisonic_completion_len_tokens(completion);
    CHECK(len <= capacity);
    memcpy(tokens, unisonic_completion_tokens(completion), len * sizeof *tokens);
    CHECK(unisonic_completion_free(completion) == UNISONIC_STATUS_OK);
    CHECK(unisonic_session_free(session) == UNISONIC_STATUS_OK);
    return len;
}

static int is_wanted(const char *name, int count, char **names)
{
    if (count == 0)
        return 1;
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL [TEST...]\n", argv[0]);
        return 2;
    }
    model_path = argv[1];
    int ran = 0;
    for (size_t i = 0; i < sizeof TESTS / sizeof TESTS[0]; i++) {
        if (!is_wanted(TESTS[i].name, argc - 2, argv + 2))
            continue;
        TESTS[i].run();
        printf("ok %s\n", TESTS[i].name);
        ran++;
    }
    if (ran < (argc > 2 ? argc - 2 : 1)) {
        fprintf(stderr, "there is no such test\n");
        return 2;
    }
    return 0;
}
