/* Sessions, samplers, constraints, receipts, batches. */

#include "check.h"

static float *logits_of(unisonic_session *session, uint32_t vocab_len)
{
    float *logits = malloc(vocab_len * sizeof *logits);
    OK(unisonic_session_get_logits(session, logits, vocab_len, &error));
    return logits;
}

static uint32_t vocab_len_of(unisonic_model *model)
{
    unisonic_tokenizer *tokenizer = NULL;
    OK(unisonic_model_tokenizer(model, &tokenizer, &error));
    uint32_t len = unisonic_tokenizer_vocab_len(tokenizer);
    unisonic_tokenizer_free(tokenizer);
    return len;
}

/* Step by step, in one call, cut back, forked, saved and restored: the same tokens and bits. */
void test_sessions(void)
{
    unisonic_library *library = open_library();
    unisonic_model *model = load(library, NULL);
    uint32_t all[12], vocab_len = vocab_len_of(model);
    unisonic_sampler_options how = drawing(11);
    unisonic_generate_options options = greedy(12);
    options.sampler = &how;
    CHECK(generate(model, &options, all, 12) == 12);

    unisonic_session *session = session_of(model);
    unisonic_sampler *sampler = NULL;
    OK(unisonic_sampler_new(model, &how, &sampler, &error));
    OK(unisonic_session_append(session, PROMPT, 5, NULL, &error));
    unisonic_tokenizer *tokenizer = NULL;
    unisonic_detokenizer *detokenizer = NULL;
    unisonic_buffer *piece = NULL, *whole = NULL;
    char pieces[512] = "";
    OK(unisonic_model_tokenizer(model, &tokenizer, &error));
    OK(unisonic_detokenizer_new(tokenizer, &detokenizer, &error));
    for (int i = 0; i < 12; i++) {
        uint32_t token = 0;
        OK(unisonic_session_sample(session, sampler, &token, &error));
        CHECK(token == all[i]);
        OK(unisonic_session_append(session, &token, 1, NULL, &error));
        OK(unisonic_detokenizer_push(detokenizer, token, &piece, &error));
        strcat(pieces, (const char *)unisonic_buffer_data(piece));
        unisonic_buffer_free(piece);
    }
    /* The pieces are the text of the same answer in one call. */
    OK(unisonic_detokenizer_push(detokenizer, UNISONIC_NO_TOKEN, &piece, &error));
    strcat(pieces, (const char *)unisonic_buffer_data(piece));
    unisonic_buffer_free(piece);
    unisonic_session *same = session_of(model);
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(same, PROMPT, 5, &options, &completion, &error));
    CHECK(strcmp(unisonic_completion_text(completion), pieces) == 0);
    unisonic_completion_free(completion);
    unisonic_session_free(same);
    OK(unisonic_tokenizer_decode(tokenizer, all, 12, UNISONIC_DECODE_CONTROL, &whole, &error));
    CHECK(unisonic_buffer_len_bytes(whole) > 0);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "token[0]",
          unisonic_detokenizer_push(detokenizer, vocab_len, &piece, &error));
    unisonic_buffer_free(whole);
    unisonic_detokenizer_free(detokenizer);
    unisonic_tokenizer_free(tokenizer);
    unisonic_sampler_free(sampler);
    float *before = logits_of(session, vocab_len);

    /* Cut back and told again. */
    OK(unisonic_session_truncate(session, 3, &error));
    OK(unisonic_session_append(session, PROMPT + 3, 2, NULL, &error));
    OK(unisonic_session_append(session, all, 12, NULL, &error));
    float *again = logits_of(session, vocab_len);
    CHECK(memcmp(before, again, vocab_len * sizeof *before) == 0);
    free(again);

    /* A fork goes its own way. */
    unisonic_session *fork = NULL;
    OK(unisonic_session_fork(session, &fork, &error));
    OK(unisonic_session_append(session, OTHER, 3, NULL, &error));
    CHECK(unisonic_session_len(fork) == 17 && unisonic_session_len(session) == 20);
    again = logits_of(fork, vocab_len);
    CHECK(memcmp(before, again, vocab_len * sizeof *before) == 0);
    free(again);

    /* Saved and restored in another library. */
    unisonic_buffer *bytes = NULL;
    OK(unisonic_session_save(fork, &bytes, &error));
    size_t len = unisonic_buffer_len_bytes(bytes);
    uint8_t *copy = malloc(len);
    memcpy(copy, unisonic_buffer_data(bytes), len);
    unisonic_buffer_free(bytes);
    unisonic_library *second = open_library();
    unisonic_model *loaded = load(second, NULL);
    unisonic_session *restored = NULL;
    OK(unisonic_session_restore(loaded, NULL, copy, len, &restored, &error));
    CHECK(unisonic_session_len(restored) == 17);
    again = logits_of(restored, vocab_len);
    CHECK(memcmp(before, again, vocab_len * sizeof *before) == 0);
    free(again);
    unisonic_session_free(restored);
    copy[len / 2] ^= 1;
    FAILS(UNISONIC_STATUS_MISMATCH, "damaged", unisonic_session_restore(loaded, NULL, copy, len, &restored, &error));
    FAILS(UNISONIC_STATUS_MISMATCH, "no session", unisonic_session_restore(loaded, NULL, copy, 0, &restored, &error));
    CHECK(restored == NULL);
    free(copy);
    free(before);

    /* A sampler of another model. */
    OK(unisonic_sampler_new(loaded, NULL, &sampler, &error));
    uint32_t token = 0;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "another model",
          unisonic_session_sample(session, sampler, &token, &error));
    CHECK(token == UNISONIC_NO_TOKEN);
    unisonic_sampler_free(sampler);

    unisonic_buffer *tokens = NULL;
    OK(unisonic_session_get_tokens(fork, &tokens, &error));
    CHECK(unisonic_buffer_len_tokens(tokens) == 17 && memcmp(unisonic_buffer_tokens(tokens) + 5, all, sizeof all) == 0);
    unisonic_buffer_free(tokens);
    unisonic_session_free(fork);
    unisonic_session_free(session);
    unisonic_model_free(loaded);
    unisonic_library_close(second);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

/* Answers that follow something, and texts that end them. */
void test_constraints(void)
{
    unisonic_library *library = open_library();
    unisonic_model *model = load(library, NULL);
    unisonic_sampler_options how = drawing(3);
    how.constraint_kind = UNISONIC_CONSTRAINT_REGEX;
    how.constraint = "[ab]{3}";
    how.constraint_len = 7;
    unisonic_generate_options options = greedy(20);
    options.sampler = &how;
    unisonic_session *session = session_of(model);
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    const char *text = unisonic_completion_text(completion);
    CHECK(strlen(text) == 3 && strspn(text, "ab") == 3);
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_CONSTRAINT ||
          unisonic_completion_stop(completion) == UNISONIC_STOP_EOG);

    /* The same, step by step. */
    unisonic_session *steps = session_of(model);
    unisonic_sampler *sampler = NULL;
    OK(unisonic_sampler_new(model, &how, &sampler, &error));
    OK(unisonic_session_append(steps, PROMPT, 5, NULL, &error));
    size_t count = 0;
    for (uint32_t token = 0;; count++) {
        OK(unisonic_session_sample(steps, sampler, &token, &error));
        if (token == UNISONIC_NO_TOKEN)
            break;
        CHECK(count < unisonic_completion_len_tokens(completion) &&
              token == unisonic_completion_tokens(completion)[count]);
        OK(unisonic_session_append(steps, &token, 1, NULL, &error));
    }
    CHECK(count == unisonic_completion_len_tokens(completion));
    unisonic_completion_free(completion);
    unisonic_sampler_free(sampler);
    unisonic_session_free(steps);

    /* A stop string is no part of the text. */
    how.constraint = "[ab]{3}END[ab]*";
    how.constraint_len = 15;
    unisonic_text stops[2] = {{"xyz", 3}, {"END", 3}};
    options.stops = stops;
    options.stops_len = 2;
    OK(unisonic_session_generate(session, NULL, 0, &options, &completion, &error));
    CHECK(unisonic_completion_text_len(completion) == 3);
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_STOP_STRING);
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

void test_receipts(void)
{
    unisonic_library *library = open_library();
    unisonic_model *model = load(library, NULL);
    unisonic_session *session = session_of(model);
    unisonic_sampler_options how = drawing(5);
    unisonic_generate_options options = greedy(6);
    options.sampler = &how;
    options.want_receipt = 1;
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    const char *receipt = unisonic_completion_receipt(completion);
    CHECK(receipt != NULL && strstr(receipt, "libunisonic") != NULL);

    unisonic_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    OK(unisonic_receipt_verify(model, receipt, strlen(receipt), &verdict, &error));
    CHECK(verdict.equal == 1);
    FAILS(UNISONIC_STATUS_MISMATCH, "", unisonic_receipt_verify(model, receipt, strlen(receipt) - 9, &verdict, &error));
    char *edited = strdup(receipt);
    strstr(edited, "\"seed\":5")[7] = '6';
    FAILS(UNISONIC_STATUS_MISMATCH, "", unisonic_receipt_verify(model, edited, strlen(edited), &verdict, &error));
    free(edited);
    unisonic_completion_free(completion);

    options.want_receipt = 0;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    CHECK(unisonic_completion_receipt(completion) == NULL);
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

struct request {
    unisonic_batch *batch;
    uint64_t number;
    uint32_t tokens[16];
    int count;
    int stop_at;
    uint64_t added;
};

static int32_t on_request(void *user, const unisonic_token_event *event)
{
    struct request *request = user;
    CHECK(event->request == request->number);
    if (event->token != UNISONIC_NO_TOKEN)
        request->tokens[request->count++] = event->token;
    if (request->added == 0 && request->count == 2 && request->stop_at == 2) {
        unisonic_generate_options options = greedy(2);
        OK(unisonic_batch_add(request->batch, OTHER, 3, &options, &request->added, &error));
    }
    return request->count == request->stop_at ? UNISONIC_STOP : UNISONIC_CONTINUE;
}

/* A batch comes to its end although the requests of another, which nobody steps, fill the queue of the model. */
void test_full_queue(void)
{
    /* One page, so that one request runs and keeps the others waiting; more than the queue takes. */
    enum { QUEUED = 256, REQUESTS = QUEUED + 8 };
    unisonic_library *library = open_library();
    unisonic_load_options load_options;
    memset(&load_options, 0, sizeof load_options);
    load_options.struct_size = sizeof load_options;
    load_options.context_len = 64;
    unisonic_model *model = load(library, &load_options);
    unisonic_batch *full = NULL, *other = NULL;
    OK(unisonic_batch_new(model, NULL, &full, &error));
    OK(unisonic_batch_new(model, NULL, &other, &error));
    uint64_t number = 0;
    uint32_t more = 0;
    for (int i = 0; i < REQUESTS; i++) {
        unisonic_generate_options options = greedy(i == 0 ? 8 : 1);
        OK(unisonic_batch_add(full, PROMPT, 5, &options, &number, &error));
    }
    /* The second step fills the places of the queue that the first has emptied. */
    OK(unisonic_batch_step(full, &more, &error));
    OK(unisonic_batch_step(full, &more, &error));
    CHECK(more == 1);
    unisonic_generate_options options = greedy(2);
    OK(unisonic_batch_add(other, OTHER, 3, &options, &number, &error));
    int steps = 0;
    for (more = 1; more && steps < 4 * REQUESTS; steps++)
        OK(unisonic_batch_step(other, &more, &error));
    CHECK(!more && steps > 8);
    unisonic_completion *completion = NULL;
    OK(unisonic_batch_take(other, number, &completion, &error));
    CHECK(unisonic_completion_len_tokens(completion) == 2);
    unisonic_completion_free(completion);
    OK(unisonic_batch_run(full, &error));
    for (uint64_t i = 1; i <= REQUESTS; i++) {
        OK(unisonic_batch_take(full, i, &completion, &error));
        CHECK(unisonic_completion_len_tokens(completion) == (i == 1 ? 8 : 1));
        unisonic_completion_free(completion);
    }
    unisonic_batch_free(full);
    unisonic_batch_free(other);
    unisonic_model_free(model);
    unisonic_library_close(library);
}

/* Many requests at once have the answers that they have alone, whoever steps them. */
void test_batch(void)
{
    unisonic_library *library = open_library();
    unisonic_load_options load_options;
    memset(&load_options, 0, sizeof load_options);
    load_options.struct_size = sizeof load_options;
    load_options.sequences = 4;
    load_options.context_len = 64;
    unisonic_model *model = load(library, &load_options);
    enum { REQUESTS = 4 };
    uint32_t alone[REQUESTS][8];
    unisonic_sampler_options how[REQUESTS];
    unisonic_batch *batches[2] = {NULL, NULL};
    OK(unisonic_batch_new(model, NULL, &batches[0], &error));
    OK(unisonic_batch_new(model, NULL, &batches[1], &error));
    struct request requests[REQUESTS];
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < REQUESTS; i++) {
        how[i] = drawing((uint64_t)i);
        unisonic_generate_options options = greedy(8);
        options.sampler = &how[i];
        CHECK(generate(model, &options, alone[i], 8) == 8);
        requests[i].batch = batches[i % 2];
        requests[i].stop_at = i == 1 ? 2 : 0;
        options.on_token = on_request;
        options.user = &requests[i];
        OK(unisonic_batch_add(batches[i % 2], PROMPT, 5, &options, &requests[i].number, &error));
        CHECK(requests[i].number == (uint64_t)i / 2 + 1);
    }
    unisonic_completion *completion = NULL;
    FAILS(UNISONIC_STATUS_BUSY, "has not ended", unisonic_batch_take(batches[0], 1, &completion, &error));
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "no request 9", unisonic_batch_take(batches[0], 9, &completion, &error));
    /* The first call also runs requests of the other batch; that one only has to be told. */
    uint32_t more = 0;
    OK(unisonic_batch_step(batches[1], &more, &error));
    CHECK(more == 1);
    OK(unisonic_batch_run(batches[0], &error));
    CHECK(requests[1].count < 2 && requests[3].count < 8);
    while (more)
        OK(unisonic_batch_step(batches[1], &more, &error));
    for (int i = 0; i < REQUESTS; i++) {
        size_t len = i == 1 ? 2 : 8;
        OK(unisonic_batch_take(batches[i % 2], requests[i].number, &completion, &error));
        CHECK(unisonic_completion_len_tokens(completion) == len);
        CHECK(memcmp(unisonic_completion_tokens(completion), alone[i], len * sizeof alone[i][0]) == 0);
        CHECK(memcmp(requests[i].tokens, alone[i], len * sizeof alone[i][0]) == 0);
        CHECK(unisonic_completion_stop(completion) == (i == 1 ? UNISONIC_STOP_CALLBACK : UNISONIC_STOP_LENGTH));
        unisonic_completion_free(completion);
    }
    /* The one that a callback added. */
    OK(unisonic_batch_take(batches[1], requests[1].added, &completion, &error));
    CHECK(unisonic_completion_len_tokens(completion) == 2);
    unisonic_completion_free(completion);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "taken",
          unisonic_batch_take(batches[1], requests[1].added, &completion, &error));

    /* Cancelled, failed, and left in the middle. */
    uint64_t number = 0;
    unisonic_cancel *cancel = NULL;
    OK(unisonic_cancel_new(library, &cancel, &error));
    unisonic_generate_options options = greedy(0);
    options.cancel = cancel;
    OK(unisonic_batch_add(batches[0], PROMPT, 5, &options, &number, &error));
    OK(unisonic_batch_step(batches[0], &more, &error));
    OK(unisonic_cancel_request(cancel, &error));
    OK(unisonic_batch_run(batches[0], &error));
    OK(unisonic_batch_take(batches[0], number, &completion, &error));
    CHECK(unisonic_completion_stop(completion) == UNISONIC_STOP_CANCELLED);
    unisonic_completion_free(completion);
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "prompt is empty",
          unisonic_batch_add(batches[0], NULL, 0, NULL, &number, &error));
    FAILS(UNISONIC_STATUS_CONTEXT_FULL, "context",
          unisonic_batch_add(batches[0], (uint32_t[64]){0}, 64, NULL, &number, &error));
    OK(unisonic_batch_add(batches[0], OTHER, 3, NULL, &number, &error));
    OK(unisonic_batch_step(batches[0], &more, &error));
    CHECK(more == 1);
    unisonic_batch_free(batches[0]);
    unisonic_batch_free(batches[1]);
    unisonic_cancel_free(cancel);
    unisonic_model_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.struct_size = sizeof memory;
    OK(unisonic_model_get_memory(model, &memory, &error));
    CHECK(memory.pages == 4 && memory.pages_held == 0);
    unisonic_model_free(model);
    unisonic_library_close(library);
}
