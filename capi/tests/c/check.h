/* What the tests of the C ABI share. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unisonic.h"

/* The model file of this run. */
extern const char *model_path;

/* Ends the program, with the place, unless the condition holds. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            check_failed(__FILE__, __LINE__, #condition, NULL);                                                        \
    } while (0)

/* The call succeeds. Its last argument is `&error`. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        unisonic_error *error = NULL;                                                                                  \
        if ((call) != UNISONIC_STATUS_OK || error != NULL)                                                             \
            check_failed(__FILE__, __LINE__, #call, error);                                                            \
    } while (0)

/* The call fails with this status, and its message says `words`. */
#define FAILS(wanted, words, call)                                                                                     \
    do {                                                                                                               \
        unisonic_error *error = NULL;                                                                                  \
        unisonic_status found = (call);                                                                                \
        if (found != (wanted) || error == NULL || unisonic_error_status(error) != (wanted) ||                          \
            unisonic_error_message_len(error) != strlen(unisonic_error_message(error)) ||                              \
            strstr(unisonic_error_message(error), (words)) == NULL)                                                    \
            check_failed(__FILE__, __LINE__, #call " must fail with " #wanted " and say " #words, error);              \
        unisonic_error_free(error);                                                                                    \
    } while (0)

void check_failed(const char *file, int line, const char *what, unisonic_error *error);

/* A prompt of the tests, and another. */
extern const uint32_t PROMPT[5];
extern const uint32_t OTHER[3];

unisonic_library *open_library(void);
unisonic_model *load(unisonic_library *library, const unisonic_load_options *options);
unisonic_session *session_of(unisonic_model *model);

/* Greedy options with so many tokens. */
unisonic_generate_options greedy(uint32_t max_tokens);
/* Options that draw. */
unisonic_sampler_options drawing(uint64_t seed);
/* Continues PROMPT in a new session; up to `capacity` tokens are copied to `tokens`, and the number is given back. */
size_t generate(unisonic_model *model, const unisonic_generate_options *options, uint32_t *tokens, size_t capacity);

void test_arguments(void);
void test_devices(void);
void test_nulls(void);
void test_handles(void);
void test_structs(void);
void test_context(void);
void test_callbacks(void);
void test_calls_in_log(void);
void test_out_of_memory(void);
void test_sessions(void);
void test_constraints(void);
void test_receipts(void);
void test_batch(void);
void test_full_queue(void);
void test_cancel(void);
void test_threads(void);
void test_libraries(void);
void test_moving(void);
void test_memory(void);
void test_silence(void);
void test_paths(void);
void test_replaced(void);
void test_float_mode(void);
void test_graphs(void);

#endif
