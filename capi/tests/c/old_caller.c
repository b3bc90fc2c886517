/* A program that was compiled against an older header: its options lack the fields that came later. It includes no header of
 * today, so that it stays what it is. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct unisonic_library unisonic_library;
typedef struct unisonic_model unisonic_model;
typedef struct unisonic_session unisonic_session;
typedef struct unisonic_completion unisonic_completion;
typedef struct unisonic_error unisonic_error;

/* unisonic_sampler_options up to `seed`. */
typedef struct {
    size_t struct_size;
    double temperature, top_p, min_p, typical, top_n_sigma, repeat_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
} old_sampler_options;

typedef struct {
    size_t struct_size;
    int32_t (*on_token)(void *user, const void *event);
    void *user;
    const old_sampler_options *sampler;
    const void *stops;
    size_t stops_len;
    void *cancel;
    uint32_t max_tokens;
    uint32_t want_logits;
} old_generate_options;

int32_t unisonic_library_open(uint32_t, const void *, unisonic_library **, unisonic_error **);
int32_t unisonic_library_close(unisonic_library *);
int32_t unisonic_model_load(unisonic_library *, const char *, size_t, const void *, unisonic_model **, unisonic_error **);
int32_t unisonic_model_free(unisonic_model *);
int32_t unisonic_session_new(unisonic_model *, const void *, unisonic_session **, unisonic_error **);
int32_t unisonic_session_generate(unisonic_session *, const uint32_t *, size_t, const old_generate_options *,
                                  unisonic_completion **, unisonic_error **);
int32_t unisonic_session_free(unisonic_session *);
size_t unisonic_completion_len_tokens(unisonic_completion *);
int32_t unisonic_completion_free(unisonic_completion *);
const char *unisonic_error_message(const unisonic_error *);

static int failed(const unisonic_error *error)
{
    fprintf(stderr, "old_caller: %s\n", unisonic_error_message(error));
    return 1;
}

int main(int argc, char **argv)
{
    unisonic_library *library = NULL;
    unisonic_model *model = NULL;
    unisonic_session *session = NULL;
    unisonic_completion *completion = NULL;
    unisonic_error *error = NULL;
    const uint32_t prompt[3] = {1, 17, 200};
    /* Behind them is what a library that reads too far would trip over. */
    struct {
        old_sampler_options options;
        unsigned char behind[256];
    } sampler;
    struct {
        old_generate_options options;
        unsigned char behind[256];
    } generate;
    if (argc < 2)
        return 2;
    memset(&sampler, 0xff, sizeof sampler);
    memset(&generate, 0xff, sizeof generate);
    memset(&sampler.options, 0, sizeof sampler.options);
    memset(&generate.options, 0, sizeof generate.options);
    sampler.options.struct_size = sizeof sampler.options;
    sampler.options.temperature = 0.8;
    sampler.options.seed = 7;
    generate.options.struct_size = sizeof generate.options;
    generate.options.sampler = &sampler.options;
    generate.options.max_tokens = 8;
    if (unisonic_library_open(1, NULL, &library, &error) != 0 ||
        unisonic_model_load(library, argv[1], strlen(argv[1]), NULL, &model, &error) != 0 ||
        unisonic_session_new(model, NULL, &session, &error) != 0 ||
        unisonic_session_generate(session, prompt, 3, &generate.options, &completion, &error) != 0)
        return failed(error);
    printf("ok old_caller: %zu tokens\n", unisonic_completion_len_tokens(completion));
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_library_close(library);
    return 0;
}
