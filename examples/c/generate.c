/* Continues a prompt: generate MODEL.gguf "Once upon a time" [DEVICE]
 *
 *   cc generate.c $(pkg-config --cflags --libs unisonic) -o generate
 */

#include <stdio.h>
#include <string.h>

#include <unisonic.h>

int main(int argc, char **argv)
{
    unisonic_error *error = NULL;
    unisonic_library *library = NULL;
    unisonic_model *model = NULL;
    unisonic_tokenizer *tokenizer = NULL;
    unisonic_buffer *prompt = NULL;
    unisonic_session *session = NULL;
    unisonic_completion *completion = NULL;
    int code = 1;

    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT [DEVICE]\n", argv[0]);
        return 2;
    }
    unisonic_load_options load = {.struct_size = sizeof load};
    if (argc > 3) {
        load.device = argv[3];
        load.device_len = strlen(argv[3]);
    }
    unisonic_sampler_options sampler = {.struct_size = sizeof sampler, .temperature = 0.8, .top_p = 0.95, .seed = 7};
    unisonic_generate_options options = {.struct_size = sizeof options, .sampler = &sampler, .max_tokens = 48};

    /* The first call that fails ends the chain; what comes after it stays NULL. */
    if (unisonic_library_open(UNISONIC_ABI_VERSION, NULL, &library, &error) != UNISONIC_STATUS_OK ||
        unisonic_model_load(library, argv[1], strlen(argv[1]), &load, &model, &error) != UNISONIC_STATUS_OK ||
        unisonic_model_tokenizer(model, &tokenizer, &error) != UNISONIC_STATUS_OK ||
        unisonic_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), UNISONIC_ENCODE_PROMPT, &prompt, &error) !=
            UNISONIC_STATUS_OK ||
        unisonic_session_new(model, NULL, &session, &error) != UNISONIC_STATUS_OK ||
        unisonic_session_generate(session, unisonic_buffer_tokens(prompt), unisonic_buffer_len_tokens(prompt), &options,
                                  &completion, &error) != UNISONIC_STATUS_OK) {
        fprintf(stderr, "error: %s\n", unisonic_error_message(error));
        unisonic_error_free(error);
    } else {
        printf("%s%s\n", argv[2], unisonic_completion_text(completion));
        code = 0;
    }

    /* In any order, and NULL is fine. */
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_buffer_free(prompt);
    unisonic_tokenizer_free(tokenizer);
    unisonic_model_free(model);
    unisonic_library_close(library);
    return code;
}
