/* Answers a question, token by token as they come, until Ctrl-C or the first empty line: stream MODEL.gguf QUESTION
 *
 *   cc stream.c $(pkg-config --cflags --libs unisonic) -pthread -o stream
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <unisonic.h>

static void log_line(void *user, unisonic_log_level level, const char *message, size_t len)
{
    (void)user, (void)len;
    if (level <= UNISONIC_LOG_LEVEL_WARN)
        fprintf(stderr, "[%d] %s\n", (int)level, message);
}

static int32_t on_progress(void *user, uint64_t loaded, uint64_t total)
{
    (void)user;
    fprintf(stderr, "\rloading %3d %%", total == 0 ? 100 : (int)(100 * loaded / total));
    return UNISONIC_CONTINUE;
}

static int32_t on_token(void *user, const unisonic_token_event *event)
{
    (void)user;
    fwrite(event->text.data, 1, event->text.len_bytes, stdout);
    fflush(stdout);
    return strstr(event->text.data, "\n\n") == NULL ? UNISONIC_CONTINUE : UNISONIC_STOP;
}

/* Waits for Ctrl-C: a signal handler may not call the library, a thread may. */
static void *wait_for_interrupt(void *cancel)
{
    sigset_t interrupt;
    int signal = 0;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    if (sigwait(&interrupt, &signal) == 0)
        unisonic_cancel_request(cancel, NULL);
    return NULL;
}

/* The tokens of a question: by the chat template of the model's file, or as a text if it has none. */
static unisonic_status ask(unisonic_tokenizer *tokenizer, const char *question, unisonic_buffer **tokens,
                           unisonic_error **error)
{
    unisonic_chat *chat = NULL;
    if (unisonic_chat_new(tokenizer, &chat, NULL) != UNISONIC_STATUS_OK)
        return unisonic_tokenizer_encode(tokenizer, question, strlen(question), UNISONIC_ENCODE_PROMPT, tokens, error);
    unisonic_status status = unisonic_chat_add(chat, "user", 4, question, strlen(question), error);
    if (status == UNISONIC_STATUS_OK)
        status = unisonic_chat_encode(chat, NULL, tokens, error);
    unisonic_chat_free(chat);
    return status;
}

int main(int argc, char **argv)
{
    unisonic_error *error = NULL;
    unisonic_library *library = NULL;
    unisonic_cancel *cancel = NULL;
    unisonic_model *model = NULL;
    unisonic_tokenizer *tokenizer = NULL;
    unisonic_buffer *tokens = NULL;
    unisonic_session *session = NULL;
    int code = 1;
    sigset_t interrupt;
    pthread_t thread;

    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf QUESTION\n", argv[0]);
        return 2;
    }
    unisonic_library_options logging = {.struct_size = sizeof logging, .log = log_line};
    unisonic_load_options load = {.struct_size = sizeof load, .progress = on_progress};
    unisonic_generate_options options = {.struct_size = sizeof options, .on_token = on_token, .max_tokens = 256};
    if (unisonic_library_open(UNISONIC_ABI_VERSION, &logging, &library, &error) != UNISONIC_STATUS_OK ||
        unisonic_cancel_new(library, &cancel, &error) != UNISONIC_STATUS_OK)
        goto failed;

    /* Threads that come later have the signal blocked too. */
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
    if (pthread_create(&thread, NULL, wait_for_interrupt, cancel) == 0)
        pthread_detach(thread);
    load.cancel = cancel;
    options.cancel = cancel;

    if (unisonic_model_load(library, argv[1], strlen(argv[1]), &load, &model, &error) != UNISONIC_STATUS_OK ||
        unisonic_model_tokenizer(model, &tokenizer, &error) != UNISONIC_STATUS_OK ||
        ask(tokenizer, argv[2], &tokens, &error) != UNISONIC_STATUS_OK ||
        unisonic_session_new(model, NULL, &session, &error) != UNISONIC_STATUS_OK)
        goto failed;
    fprintf(stderr, "\n");
    if (unisonic_session_generate(session, unisonic_buffer_tokens(tokens), unisonic_buffer_len_tokens(tokens), &options,
                                  NULL, &error) != UNISONIC_STATUS_OK)
        goto failed;
    printf("\n");
    code = 0;
failed:
    if (error != NULL)
        fprintf(stderr, "error: %s\n", unisonic_error_message(error));
    unisonic_error_free(error);
    unisonic_session_free(session);
    unisonic_buffer_free(tokens);
    unisonic_tokenizer_free(tokenizer);
    unisonic_model_free(model);
    unisonic_library_close(library);
    /* The thread that waits still has `cancel`: the process ends, and with it both. */
    return code;
}
