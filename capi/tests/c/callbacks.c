/* Callbacks that fail, and what goes wrong inside: report 8.04. */

#include "check.h"

static int32_t fail_progress(void *user, uint64_t loaded, uint64_t total)
{
    CHECK(loaded <= total);
    ++*(int *)user;
    return 7;
}

static int32_t stop_progress(void *user, uint64_t loaded, uint64_t total)
{
    (void)loaded, (void)total;
    ++*(int *)user;
    return UNISONIC_STOP;
}

struct seen {
    unisonic_model *model;
    unisonic_session *session;
    uint32_t tokens[16];
    char text[512];
    size_t logits_len;
    int count;
    int32_t say_at_three;
};

static int32_t see(void *user, const unisonic_token_event *event)
{
    struct seen *seen = user;
    CHECK(event->struct_size >= sizeof *event);
    CHECK(event->text.data[event->text.len_bytes] == '\0');
    strcat(seen->text, event->text.data);
    if (event->token == UNISONIC_NO_TOKEN)
        return UNISONIC_CONTINUE;
    CHECK(event->index == (uint32_t)seen->count && event->request == 0);
    seen->tokens[seen->count++] = event->token;
    seen->logits_len = event->logits_len;
    /* The handles that this call uses cannot be used for another; others can. */
    FAILS(UNISONIC_STATUS_BUSY, "session is used", unisonic_session_append(seen->session, PROMPT, 1, NULL, &error));
    unisonic_session *other = session_of(seen->model);
    FAILS(UNISONIC_STATUS_BUSY, "callback", unisonic_session_append(other, PROMPT, 1, NULL, &error));
    unisonic_session_free(other);
    return seen->count == 3 ? seen->say_at_three : UNISONIC_CONTINUE;
}

void test_callbacks(void)
{
    unisonic_library *library = open_library();
    unisonic_load_options options;
    unisonic_model *model = NULL;
    int calls = 0;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.progress_user = &calls;
    options.progress = fail_progress;
    FAILS(UNISONIC_STATUS_CALLBACK_FAILED, "it returned 7",
          unisonic_model_load(library, model_path, strlen(model_path), &options, &model, &error));
    CHECK(calls == 1 && model == NULL);
    options.progress = stop_progress;
    FAILS(UNISONIC_STATUS_CANCELLED, "`progress` said to stop",
          unisonic_model_load(library, model_path, strlen(model_path), &options, &model, &error));
    CHECK(calls == 2 && model == NULL);

    model = load(library, NULL);
    uint32_t all[8];
    unisonic_generate_options generation = greedy(8);
    CHECK(generate(model, &generation, all, 8) == 8);

    struct seen seen;
    memset(&seen, 0, sizeof seen);
    seen.model = model;
    seen.session = session_of(model);
    seen.say_at_three = -1;
    generation.on_token = see;
    generation.user = &seen;
    unisonic_completion *completion = NULL;
    FAILS(UNISONIC_STATUS_CALLBACK_FAILED, "`on_token` failed: it returned -1",
          unisonic_session_generate(seen.session, PROMPT, 5, &generation, &completion, &error));
    CHECK(completion == NULL && seen.count == 3 && seen.logits_len == 0);
    CHECK(unisonic_session_len(seen.session) == 0);

    /* A stop is no failure; the session can go on from there. */
    seen.count = 0;
    seen.text[0] = '\0';
    seen.say_at_three = UNISONIC_STOP;
    generation.want_logits = 1;
    OK(unisonic_session_generate(seen.session, PROMPT, 5, &generation, &completion, &error));
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_CALLBACK && seen.count == 3);
    CHECK(seen.logits_len > 200);
    CHECK(memcmp(unisonic_completion_tokens(completion), all, 3 * sizeof all[0]) == 0);
    CHECK(strcmp(unisonic_completion_text(completion), seen.text) == 0);
    CHECK(unisonic_completion_text_len(completion) == strlen(seen.text));
    unisonic_completion_free(completion);
    seen.count = 0;
    seen.say_at_three = UNISONIC_CONTINUE;
    generation.max_tokens = 5;
    OK(unisonic_session_generate(seen.session, NULL, 0, &generation, NULL, &error));
    CHECK(memcmp(seen.tokens, all + 3, 5 * sizeof all[0]) == 0);

    /* A grammar that is none. */
    unisonic_sampler_options sampler = drawing(1);
    sampler.constraint_kind = UNISONIC_CONSTRAINT_LARK;
    sampler.constraint = "start: (";
    sampler.constraint_len = 8;
    generation.sampler = &sampler;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "grammar",
          unisonic_session_generate(seen.session, NULL, 0, &generation, NULL, &error));
    sampler.constraint_kind = UNISONIC_CONSTRAINT_JSON_SCHEMA;
    sampler.constraint = "{\"type\": ";
    sampler.constraint_len = 9;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "not JSON",
          unisonic_session_generate(seen.session, NULL, 0, &generation, NULL, &error));
    sampler.constraint_kind = 9;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "constraint_kind is 9",
          unisonic_session_generate(seen.session, NULL, 0, &generation, NULL, &error));
    sampler = drawing(1);
    sampler.temperature = -1;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "temperature",
          unisonic_session_generate(seen.session, NULL, 0, &generation, NULL, &error));

    unisonic_session_free(seen.session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

struct logged {
    unisonic_library *library;
    int lines;
    int is_within;
};

/* Opens handles of the library whose line it is, and of another, and generates. */
static void use_in_log(void *user, unisonic_log_level level, const char *message, size_t len)
{
    struct logged *logged = user;
    (void)level;
    CHECK(message[len] == '\0' && !logged->is_within);
    logged->lines++;
    if (logged->lines > 1)
        return;
    logged->is_within = 1;
    unisonic_library *libraries[2] = {logged->library, open_library()};
    for (int i = 0; i < 2; i++) {
        unisonic_model *model = load(libraries[i], NULL);
        unisonic_generate_options generation = greedy(3);
        uint32_t tokens[3];
        CHECK(generate(model, &generation, tokens, 3) == 3);
        unisonic_session *session = NULL;
        FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "model is NULL", unisonic_session_new(NULL, NULL, &session, &error));
        CHECK(unisonic_model_free(model) == UNISONIC_STATUS_OK);
    }
    CHECK(unisonic_library_close(libraries[1]) == UNISONIC_STATUS_OK);
    logged->is_within = 0;
}

/* All handles but those of the call can be used in a log callback; what is done there is not logged, and the log goes on after it. */
void test_calls_in_log(void)
{
    struct logged logged;
    memset(&logged, 0, sizeof logged);
    unisonic_library_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.log = use_in_log;
    options.log_user = &logged;
    options.log_level = UNISONIC_LOG_LEVEL_INFO;
    OK(unisonic_library_open(UNISONIC_ABI_VERSION, &options, &logged.library, &error));
    CHECK(logged.lines == 0);
    unisonic_model *model = load(logged.library, NULL);
    int lines = logged.lines;
    CHECK(lines > 0);
    unisonic_model_free(model);
    model = load(logged.library, NULL);
    CHECK(logged.lines == 2 * lines);
    unisonic_model_free(model);
    unisonic_library_close(logged.library);
}

/* More memory than there is, inside of the library. */
void test_out_of_memory(void)
{
    unisonic_library *library = open_library();
    unisonic_load_options options;
    unisonic_model *model = NULL;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.sequences = 1u << 28;
    FAILS(UNISONIC_STATUS_OUT_OF_MEMORY, "could not be allocated",
          unisonic_model_load(library, model_path, strlen(model_path), &options, &model, &error));
    CHECK(model == NULL);
    model = load(library, NULL);
    unisonic_model_free(model);
    unisonic_library_close(library);
}
