/* Threads: reports 8.05, 8.13 and 8.16. */

#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { TOKENS = 100, SESSIONS = 2 };

struct user {
    unisonic_model *model;
    uint64_t seed;
    uint32_t tokens[TOKENS];
};

static void *run_user(void *data)
{
    struct user *user = data;
    unisonic_sampler_options how = drawing(user->seed);
    unisonic_generate_options options = greedy(TOKENS);
    options.sampler = &how;
    CHECK(generate(user->model, &options, user->tokens, TOKENS) > 0);
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *data)
{
    CHECK(pthread_create(thread, NULL, run, data) == 0);
}

/* Report 8.05: one model, two sessions, two threads; as one after the other. */
void test_threads(void)
{
    unisonic_library *library = open_library();
    unisonic_model *model = load(library, NULL);
    struct user serial[SESSIONS], parallel[SESSIONS];
    pthread_t threads[SESSIONS];
    memset(serial, 0, sizeof serial);
    memset(parallel, 0, sizeof parallel);
    for (int i = 0; i < SESSIONS; i++) {
        serial[i].model = parallel[i].model = model;
        serial[i].seed = parallel[i].seed = (uint64_t)i;
        run_user(&serial[i]);
    }
    for (int i = 0; i < SESSIONS; i++)
        start(&threads[i], run_user, &parallel[i]);
    for (int i = 0; i < SESSIONS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(memcmp(serial[i].tokens, parallel[i].tokens, sizeof serial[i].tokens) == 0);
    }
    CHECK(memcmp(serial[0].tokens, serial[1].tokens, sizeof serial[0].tokens) != 0);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

struct lines {
    unisonic_model *model;
    uint32_t tokens[TOKENS];
    int count;
};

static void count_line(void *user, unisonic_log_level level, const char *message, size_t len)
{
    (void)level;
    CHECK(message[len] == '\0');
    ++((struct lines *)user)->count;
}

static void *use_library(void *data)
{
    struct lines *lines = data;
    unisonic_library_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.log = count_line;
    options.log_user = lines;
    options.log_level = UNISONIC_LOG_LEVEL_TRACE;
    unisonic_library *library = NULL;
    OK(unisonic_library_open(UNISONIC_ABI_VERSION, &options, &library, &error));
    unisonic_model *model = load(library, NULL);
    unisonic_generate_options generation = greedy(TOKENS);
    generate(model, &generation, lines->tokens, TOKENS);
    unisonic_model_free(model);
    unisonic_library_close(library);
    return NULL;
}

/* Two users in one process, at one time, know nothing of each other. */
void test_libraries(void)
{
    struct lines alone, users[2];
    pthread_t threads[2];
    memset(&alone, 0, sizeof alone);
    memset(users, 0, sizeof users);
    use_library(&alone);
    for (int i = 0; i < 2; i++)
        start(&threads[i], use_library, &users[i]);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(memcmp(users[i].tokens, alone.tokens, sizeof alone.tokens) == 0);
        CHECK(users[i].count == alone.count);
    }
}

struct moved {
    unisonic_library *library;
    unisonic_model *model;
    unisonic_session *session;
};

static void *make(void *data)
{
    struct moved *moved = data;
    moved->library = open_library();
    moved->model = load(moved->library, NULL);
    moved->session = session_of(moved->model);
    OK(unisonic_session_append(moved->session, PROMPT, 5, NULL, &error));
    return NULL;
}

static void *use(void *data)
{
    struct moved *moved = data;
    unisonic_generate_options options = greedy(4);
    OK(unisonic_session_generate(moved->session, NULL, 0, &options, NULL, &error));
    return NULL;
}

static void *end(void *data)
{
    struct moved *moved = data;
    CHECK(unisonic_session_free(moved->session) == UNISONIC_STATUS_OK);
    CHECK(unisonic_model_free(moved->model) == UNISONIC_STATUS_OK);
    CHECK(unisonic_library_close(moved->library) == UNISONIC_STATUS_OK);
    return NULL;
}

/* Report 8.16: made in one thread, used in another, freed in a third. */
void test_moving(void)
{
    void *(*steps[3])(void *) = {make, use, end};
    struct moved moved;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        start(&thread, steps[i], &moved);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static void *cancel_soon(void *data)
{
    usleep(20000);
    OK(unisonic_cancel_request((unisonic_cancel *)data, &error));
    return NULL;
}

/* Report 8.13: a prompt, a generation and a load that are cancelled; what was used can be used again. */
void test_cancel(void)
{
    unisonic_library *library = open_library();
    unisonic_cancel *cancel = NULL;
    OK(unisonic_cancel_new(library, &cancel, &error));
    OK(unisonic_cancel_request(cancel, &error));
    unisonic_load_options load_options;
    unisonic_model *model = NULL;
    memset(&load_options, 0, sizeof load_options);
    load_options.struct_size = sizeof load_options;
    load_options.cancel = cancel;
    FAILS(UNISONIC_STATUS_CANCELLED, "cancelled",
          unisonic_model_load(library, model_path, strlen(model_path), &load_options, &model, &error));
    load_options.cancel = NULL;
    /* A step for each token, so that the prompt takes long. */
    load_options.chunk_rows = 1;
    model = load(library, &load_options);
    unisonic_session *session = session_of(model);
    FAILS(UNISONIC_STATUS_CANCELLED, "cancelled", unisonic_session_append(session, PROMPT, 5, cancel, &error));
    CHECK(unisonic_session_len(session) == 0);
    unisonic_generate_options options = greedy(0);
    options.cancel = cancel;
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_CANCELLED);
    CHECK(unisonic_session_len(session) == 5 + unisonic_completion_len_tokens(completion));
    unisonic_completion_free(completion);
    OK(unisonic_session_truncate(session, 0, &error));

    /* From another thread, while it runs. */
    static uint32_t prompt[500];
    for (size_t i = 0; i < 500; i++)
        prompt[i] = (uint32_t)(1 + i % 200);
    OK(unisonic_cancel_reset(cancel, &error));
    pthread_t thread;
    start(&thread, cancel_soon, cancel);
    unisonic_error *error = NULL;
    unisonic_status status = UNISONIC_STATUS_OK;
    /* However fast the machine is, it comes at some time. */
    while (status == UNISONIC_STATUS_OK) {
        OK(unisonic_session_truncate(session, 0, &error));
        status = unisonic_session_append(session, prompt, 500, cancel, &error);
    }
    CHECK(status == UNISONIC_STATUS_CANCELLED && unisonic_session_len(session) == 0);
    unisonic_error_free(error);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(unisonic_cancel_reset(cancel, &error));
    uint32_t tokens[4], same[4];
    options = greedy(4);
    CHECK(generate(model, &options, tokens, 4) == 4);
    options.cancel = cancel;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    memcpy(same, unisonic_completion_tokens(completion), sizeof same);
    CHECK(memcmp(tokens, same, sizeof same) == 0);
    unisonic_completion_free(completion);
    /* Freed before what uses it is. */
    unisonic_cancel_free(cancel);
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}
