/* What callers get wrong is an error, and the process lives: reports 8.01 and 8.03. */

#include "check.h"

/* NULL, wrong lengths, ids -1 and vocab_size, no UTF-8. */
void test_arguments(void)
{
    unisonic_library *library = open_library();
    unisonic_model *model = NULL;
    size_t len = strlen(model_path);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "library is NULL",
          unisonic_model_load(NULL, model_path, len, NULL, &model, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "model", unisonic_model_load(library, model_path, len, NULL, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "path is NULL", unisonic_model_load(library, NULL, 4, NULL, &model, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "path is empty", unisonic_model_load(library, "", 0, NULL, &model, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "NUL", unisonic_model_load(library, "a\0b", 3, NULL, &model, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "no array",
          unisonic_model_load(library, model_path, (size_t)-1, NULL, &model, &error));
    FAILS(UNISONIC_STATUS_IO, "nowhere.gguf",
          unisonic_model_load(library, "/nowhere.gguf", 13, NULL, &model, &error));
    CHECK(model == NULL);
    /* Without an error parameter there is the status. */
    CHECK(unisonic_model_load(library, "/nowhere.gguf", 13, NULL, &model, NULL) == UNISONIC_STATUS_IO);

    unisonic_load_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.device = "abacus:0";
    options.device_len = 8;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "abacus:0",
          unisonic_model_load(library, model_path, len, &options, &model, &error));
    options.device_len = 0;
    options.context_len = 1000000;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "context length",
          unisonic_model_load(library, model_path, len, &options, &model, &error));

    model = load(library, NULL);
    unisonic_model_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    OK(unisonic_model_get_info(model, &info, &error));
    CHECK(strcmp(info.architecture.data, "llama") == 0 && info.architecture.len_bytes == 5);
    CHECK(strcmp(info.profile.data, "u1") == 0 && info.vocab_len > 200 && info.parameters > 1000);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "NULL", unisonic_model_get_info(model, NULL, &error));

    unisonic_session *session = session_of(model);
    uint32_t bad[2] = {1, (uint32_t)-1};
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "tokens[1]", unisonic_session_append(session, bad, 2, NULL, &error));
    bad[1] = info.vocab_len;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "tokens of the model are 0 to",
          unisonic_session_append(session, bad, 2, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "prompt[1]",
          unisonic_session_generate(session, bad, 2, NULL, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "tokens is NULL", unisonic_session_append(session, NULL, 2, NULL, &error));
    OK(unisonic_session_append(session, NULL, 0, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "empty", unisonic_session_generate(session, NULL, 0, NULL, NULL, &error));
    float *logits = malloc(info.vocab_len * sizeof *logits);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "empty",
          unisonic_session_get_logits(session, logits, info.vocab_len, &error));
    /* After all of this it works. */
    OK(unisonic_session_append(session, PROMPT, 5, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "logits_len",
          unisonic_session_get_logits(session, logits, info.vocab_len - 1, &error));
    OK(unisonic_session_get_logits(session, logits, info.vocab_len, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "len is 6", unisonic_session_truncate(session, 6, &error));
    free(logits);

    unisonic_tokenizer *tokenizer = NULL;
    unisonic_buffer *buffer = NULL;
    OK(unisonic_model_tokenizer(model, &tokenizer, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "no UTF-8 from byte 1",
          unisonic_tokenizer_encode(tokenizer, "a\xff", 2, 0, &buffer, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "flags",
          unisonic_tokenizer_encode(tokenizer, "a", 1, 64, &buffer, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "tokens[1]",
          unisonic_tokenizer_decode(tokenizer, bad, 2, 0, &buffer, &error));
    CHECK(buffer == NULL);
    OK(unisonic_tokenizer_encode(tokenizer, "Once", 4, UNISONIC_ENCODE_PROMPT, &buffer, &error));
    CHECK(unisonic_buffer_len_tokens(buffer) > 1);
    CHECK(unisonic_buffer_tokens(buffer)[0] == unisonic_tokenizer_bos(tokenizer));
    CHECK(unisonic_buffer_data(buffer) == NULL && unisonic_buffer_len_bytes(buffer) == 0);
    unisonic_buffer *text = NULL;
    OK(unisonic_tokenizer_decode(tokenizer, unisonic_buffer_tokens(buffer), unisonic_buffer_len_tokens(buffer), 0,
                                 &text, &error));
    CHECK(strstr((const char *)unisonic_buffer_data(text), "Once") != NULL);
    unisonic_buffer_free(text);
    unisonic_buffer_free(buffer);

    float embedding[4];
    FAILS(UNISONIC_STATUS_UNSUPPORTED, "hidden states", unisonic_model_embed(model, PROMPT, 5, embedding, 4, &error));

    unisonic_tokenizer_free(tokenizer);
    unisonic_session_free(session);
    unisonic_model_free(model);
    CHECK(unisonic_library_close(library) == UNISONIC_STATUS_OK);
}

/* The CPU is always there; a device that cannot be used says why. */
void test_devices(void)
{
    unisonic_library *library = open_library();
    unisonic_device_list *list = NULL;
    unisonic_device_info info;
    OK(unisonic_device_list_new(library, &list, &error));
    unisonic_library_close(library);
    size_t len = unisonic_device_list_len(list);
    CHECK(len >= 3);
    for (size_t i = 0; i < len; i++) {
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        OK(unisonic_device_list_get(list, i, &info, &error));
        CHECK(info.name.len_bytes > 0 && info.name.len_bytes == strlen(info.name.data));
        CHECK(i > 0 || (strcmp(info.name.data, "cpu") == 0 && info.problem.data == NULL && info.hardware.len_bytes > 0));
    }
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "but there are", unisonic_device_list_get(list, len, &info, &error));
    CHECK(unisonic_device_list_free(list) == UNISONIC_STATUS_OK);
}

/* Handles that were freed, freed twice, of another kind, or none. */
void test_handles(void)
{
    unisonic_library *library = open_library();
    unisonic_cancel *cancel = NULL;
    unisonic_session *session = NULL;
    OK(unisonic_cancel_new(library, &cancel, &error));
    CHECK(unisonic_cancel_free(cancel) == UNISONIC_STATUS_OK);
    CHECK(unisonic_cancel_free(cancel) == UNISONIC_STATUS_INVALID_HANDLE);
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "freed before", unisonic_cancel_request(cancel, &error));
    /* Its place is not used again at once. */
    unisonic_cancel *next = NULL;
    OK(unisonic_cancel_new(library, &next, &error));
    CHECK(next != cancel);
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "freed before", unisonic_cancel_request(cancel, &error));
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "must be a model, but is a cancel switch",
          unisonic_session_new((unisonic_model *)(void *)next, NULL, &session, &error));
    CHECK(unisonic_model_free((unisonic_model *)(void *)next) == UNISONIC_STATUS_INVALID_HANDLE);
    OK(unisonic_cancel_request(next, &error));
    uint64_t nothing[16] = {0};
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "no handle",
          unisonic_cancel_request((unisonic_cancel *)(void *)nothing, &error));
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "no handle",
          unisonic_cancel_request((unisonic_cancel *)(void *)((char *)nothing + 1), &error));
    CHECK(unisonic_cancel_free(NULL) == UNISONIC_STATUS_OK);
    /* More than wait before they are used again. */
    for (int i = 0; i < 5000; i++) {
        unisonic_cancel *another = NULL;
        OK(unisonic_cancel_new(library, &another, &error));
        CHECK(another != next && unisonic_cancel_free(another) == UNISONIC_STATUS_OK);
    }
    unisonic_error_free(NULL);
    CHECK(unisonic_error_status(NULL) == UNISONIC_STATUS_OK && unisonic_error_message(NULL)[0] == '\0');
    CHECK(unisonic_buffer_data(NULL) == NULL && unisonic_session_len(NULL) == 0);

    /* Report 8.08: in the wrong order. What is left keeps what it needs. */
    unisonic_model *model = load(library, NULL);
    session = session_of(model);
    CHECK(unisonic_library_close(library) == UNISONIC_STATUS_OK);
    CHECK(unisonic_model_free(model) == UNISONIC_STATUS_OK);
    OK(unisonic_session_append(session, PROMPT, 5, NULL, &error));
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "freed before", unisonic_cancel_new(library, &cancel, &error));
    unisonic_session *none = session;
    FAILS(UNISONIC_STATUS_INVALID_HANDLE, "freed before", unisonic_session_new(model, NULL, &none, &error));
    CHECK(none == NULL && unisonic_session_len(session) == 5);
    CHECK(unisonic_session_free(session) == UNISONIC_STATUS_OK);
    CHECK(unisonic_cancel_free(next) == UNISONIC_STATUS_OK);
}

/* Report 8.01: structs of other sizes, and another version of the ABI. */
void test_structs(void)
{
    unisonic_library *library = NULL;
    FAILS(UNISONIC_STATUS_VERSION, "version 1.0",
          unisonic_library_open(1u << 16, NULL, &library, &error));
    FAILS(UNISONIC_STATUS_VERSION, "or a newer one",
          unisonic_library_open(UNISONIC_ABI_VERSION + 1, NULL, &library, &error));
    CHECK(library == NULL && unisonic_abi_version() >= UNISONIC_ABI_VERSION);
    CHECK(strchr(unisonic_version(), '.') != NULL);
    library = open_library();
    unisonic_model *model = load(library, NULL);

    /* A struct of a later header: fine as long as what is new is not used. */
    struct {
        unisonic_generate_options known;
        uint64_t later;
    } larger;
    uint32_t tokens[4];
    larger.known = greedy(4);
    larger.known.struct_size = sizeof larger;
    larger.later = 0;
    CHECK(generate(model, &larger.known, tokens, 4) == 4);
    larger.later = 1;
    unisonic_session *session = session_of(model);
    FAILS(UNISONIC_STATUS_VERSION, "unisonic_generate_options",
          unisonic_session_generate(session, PROMPT, 5, &larger.known, NULL, &error));

    /* Smaller than it ever was, or nonsense. */
    unisonic_generate_options wrong = greedy(4);
    size_t sizes[] = {0, 8, 60, 100000, (size_t)-1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        wrong.struct_size = sizes[i];
        FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "unisonic_generate_options.struct_size",
              unisonic_session_generate(session, PROMPT, 5, &wrong, NULL, &error));
    }

    /* A result: what the caller's struct lacks is not written, and what ours lacks is 0. */
    struct {
        unisonic_model_memory known;
        uint64_t later;
    } memory;
    memset(&memory, 0xff, sizeof memory);
    memory.known.struct_size = sizeof memory;
    OK(unisonic_model_get_memory(model, &memory.known, &error));
    CHECK(memory.later == 0 && memory.known.struct_size == sizeof memory && memory.known.weights_len_bytes > 100000);
    memset(&memory, 0xff, sizeof memory);
    memory.known.struct_size = sizeof memory.known;
    OK(unisonic_model_get_memory(model, &memory.known, &error));
    CHECK(memory.later == UINT64_MAX);

    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

/* Report 8.03: the context is filled to its end and beyond, and a call after an error. */
void test_context(void)
{
    unisonic_library *library = open_library();
    unisonic_load_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.context_len = 16;
    unisonic_model *model = load(library, &options);
    unisonic_session *session = session_of(model);
    for (int i = 0; i < 16; i++)
        OK(unisonic_session_append(session, PROMPT, 1, NULL, &error));
    FAILS(UNISONIC_STATUS_CONTEXT_FULL, "17 tokens", unisonic_session_append(session, PROMPT, 1, NULL, &error));
    FAILS(UNISONIC_STATUS_CONTEXT_FULL, "overflow", unisonic_session_generate(session, NULL, 0, NULL, NULL, &error));
    CHECK(unisonic_session_len(session) == 16);
    OK(unisonic_session_truncate(session, 4, &error));
    FAILS(UNISONIC_STATUS_CONTEXT_FULL, "overflow",
          unisonic_session_append(session, (uint32_t[13]){0}, 13, NULL, &error));
    /* Up to the end. */
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, NULL, 0, NULL, &completion, &error));
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_CONTEXT ||
          unisonic_completion_stop(completion) == UNISONIC_STOP_EOG);
    CHECK(unisonic_session_len(session) == 4 + unisonic_completion_len_tokens(completion));
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}
