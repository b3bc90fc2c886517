/* What a process sees of the library: memory, output, paths, the floating-point mode. Reports 8.08, 8.10 and 8.11. */

#include "check.h"

#include <fcntl.h>
#include <fenv.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Pages of the process that are in memory. */
static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident;
}

static int cycles(void)
{
    const char *text = getenv("ABI_TEST_CYCLES");
    return text == NULL ? 50 : atoi(text);
}

/* Report 8.08: loaded, used and freed, again and again. */
void test_memory(void)
{
    long after_five = 0;
    uint32_t tokens[4];
    unisonic_generate_options options = greedy(4);
    int count = cycles();
    for (int i = 1; i <= count; i++) {
        unisonic_library *library = open_library();
        unisonic_model *model = load(library, NULL);
        generate(model, &options, tokens, 4);
        unisonic_session *session = session_of(model);
        OK(unisonic_session_append(session, PROMPT, 5, NULL, &error));
        /* In the wrong order every other time. */
        if (i % 2) {
            unisonic_library_close(library);
            unisonic_model_free(model);
            unisonic_session_free(session);
        } else {
            unisonic_session_free(session);
            unisonic_model_free(model);
            unisonic_library_close(library);
        }
        if (i == 5)
            after_five = resident_pages();
    }
    if (count > 5) {
        long growth = resident_pages() - after_five, page = sysconf(_SC_PAGESIZE);
        printf("  memory after 5 cycles %ld KiB, after %d %+ld KiB\n", after_five * page / 1024, count,
               growth * page / 1024);
        /* A model that stays would be more than a MiB each time. */
        CHECK(growth * page < 2 << 20);
    }
}

static void keep_line(void *user, unisonic_log_level level, const char *message, size_t len)
{
    char *all = user;
    CHECK(level >= UNISONIC_LOG_LEVEL_ERROR && level <= UNISONIC_LOG_LEVEL_TRACE);
    CHECK(strlen(message) == len && len > 0);
    if (strlen(all) + len + 2 < 65536) {
        strcat(all, message);
        strcat(all, "\n");
    }
}

/* Report 8.10: nothing on the standard streams, whatever happens; lines go to the callback. */
void test_silence(void)
{
    static char lines[65536];
    char name[] = "/tmp/unisonic-abi-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    fflush(NULL);
    int out = dup(1), err = dup(2);
    CHECK(dup2(file, 1) == 1 && dup2(file, 2) == 2);

    unisonic_library_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.log = keep_line;
    options.log_user = lines;
    options.log_level = UNISONIC_LOG_LEVEL_TRACE;
    unisonic_library *library = NULL, *quiet = open_library();
    unisonic_error *error = NULL;
    unisonic_status opened = unisonic_library_open(UNISONIC_ABI_VERSION, &options, &library, &error);
    unisonic_model *model = load(library, NULL);
    uint32_t tokens[4];
    unisonic_generate_options generation = greedy(4);
    size_t generated = generate(model, &generation, tokens, 4);
    unisonic_model *none = NULL;
    unisonic_status missing = unisonic_model_load(library, "/nowhere.gguf", 13, NULL, &none, NULL);
    unisonic_status damaged = unisonic_model_load(library, "/proc/self/exe", 14, NULL, &none, NULL);
    unisonic_model_free(model);
    model = load(quiet, NULL);
    unisonic_model_free(model);
    unisonic_library_close(quiet);
    unisonic_library_close(library);

    off_t written = lseek(file, 0, SEEK_END);
    CHECK(dup2(out, 1) == 1 && dup2(err, 2) == 2);
    close(out);
    close(err);
    close(file);
    CHECK(written == 0);
    CHECK(opened == UNISONIC_STATUS_OK && error == NULL && generated == 4);
    CHECK(missing == UNISONIC_STATUS_IO && damaged == UNISONIC_STATUS_MODEL);
    CHECK(strlen(lines) > 0);

    options.log_level = 9;
    FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "log_level",
          unisonic_library_open(UNISONIC_ABI_VERSION, &options, &library, &error));
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 16];
    FILE *source = fopen(from, "rb"), *target = fopen(to, "wb");
    CHECK(source != NULL && target != NULL);
    for (size_t len; (len = fread(bytes, 1, sizeof bytes, source)) > 0;)
        CHECK(fwrite(bytes, 1, len, target) == len);
    CHECK(fclose(source) == 0 && fclose(target) == 0);
}

/* Report 8.11: paths of any bytes. */
void test_paths(void)
{
    char folder[] = "/tmp/unisonic-abi-XXXXXX", path[1024];
    CHECK(mkdtemp(folder) != NULL);
    const char *names[] = {
        "\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c \xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\xa6\x99.gguf",
        "not \xff utf-8 \xc3.gguf",
    };
    unisonic_library *library = open_library();
    for (size_t i = 0; i < 2; i++) {
        memset(path, 'd', sizeof path);
        int prefix_len = snprintf(path, sizeof path, "%s/", folder);
        path[prefix_len] = 'd';
        /* A folder and a file that are together beyond 300 bytes. */
        size_t len = (size_t)prefix_len + 200;
        path[len] = '\0';
        CHECK(mkdir(path, 0700) == 0);
        path[len] = '/';
        strcpy(path + len + 101, names[i]);
        CHECK(strlen(path) > 300);
        copy_file(model_path, path);
        unisonic_model *model = NULL;
        OK(unisonic_model_load(library, path, strlen(path), NULL, &model, &error));
        unisonic_model_free(model);
        CHECK(unlink(path) == 0);
        path[len] = '\0';
        CHECK(rmdir(path) == 0);
    }
    CHECK(rmdir(folder) == 0);
    unisonic_library_close(library);
}

static unisonic_model *load_path(unisonic_library *library, const char *path)
{
    unisonic_model *model = NULL;
    OK(unisonic_model_load(library, path, strlen(path), NULL, &model, &error));
    return model;
}

/* Receipts are of the weights that were loaded, whatever has the file's path by then. */
void test_replaced(void)
{
    char folder[] = "/tmp/unisonic-abi-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    copy_file(model_path, path);
    unisonic_library *library = open_library();
    unisonic_model *model = load_path(library, path), *original = load_path(library, model_path);
    CHECK(unlink(path) == 0);
    copy_file("/proc/self/exe", path);

    unisonic_session *session = session_of(model);
    unisonic_generate_options options = greedy(3);
    options.want_receipt = 1;
    unisonic_completion *completion = NULL;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    const char *receipt = unisonic_completion_receipt(completion);
    unisonic_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    OK(unisonic_receipt_verify(original, receipt, strlen(receipt), &verdict, &error));
    CHECK(verdict.equal == 1);
    unisonic_completion_free(completion);
    unisonic_session_free(session);
    unisonic_model_free(model);

    /* What was written to is not what was loaded. */
    copy_file(model_path, path);
    model = load_path(library, path);
    FILE *file = fopen(path, "ab");
    CHECK(file != NULL && fputc(0, file) == 0 && fclose(file) == 0);
    session = session_of(model);
    FAILS(UNISONIC_STATUS_IO, "was written to",
          unisonic_session_generate(session, PROMPT, 5, &options, &completion, &error));
    options.want_receipt = 0;
    OK(unisonic_session_generate(session, PROMPT, 5, &options, NULL, &error));
    unisonic_session_free(session);
    unisonic_model_free(model);
    unisonic_model_free(original);
    unisonic_library_close(library);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

struct mode {
    int rounding;
    unsigned flags;
};

static struct mode current_mode(void)
{
    struct mode mode = {fegetround(), 0};
#if defined(__x86_64__)
    mode.flags = _mm_getcsr() & 0xffc0;
#endif
    return mode;
}

static int is_equal(struct mode a, struct mode b)
{
    return a.rounding == b.rounding && a.flags == b.flags;
}

static struct mode host_mode;

static int32_t check_mode(void *user, const unisonic_token_event *event)
{
    (void)event;
    CHECK(is_equal(current_mode(), host_mode));
    ++*(int *)user;
    return UNISONIC_CONTINUE;
}

/* A host that rounds upward and flushes subnormals gets the same bits, and keeps its mode. */
void test_float_mode(void)
{
    enum { COUNT = 12 };
    unisonic_sampler_options how = drawing(2);
    unisonic_generate_options options = greedy(COUNT);
    options.sampler = &how;
    static float logits[2][100000];
    uint32_t tokens[2][COUNT];
    int calls = 0;
    struct mode before = current_mode();
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            CHECK(fesetround(FE_UPWARD) == 0);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
            options.on_token = check_mode;
            options.user = &calls;
        }
        host_mode = current_mode();
        CHECK(i == 0 || !is_equal(before, host_mode));
        unisonic_library *library = open_library();
        unisonic_model *model = load(library, NULL);
        CHECK(generate(model, &options, tokens[i], COUNT) > 0);
        unisonic_session *session = session_of(model);
        OK(unisonic_session_append(session, PROMPT, 5, NULL, &error));
        unisonic_model_info info;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        OK(unisonic_model_get_info(model, &info, &error));
        CHECK(info.vocab_len <= 100000);
        OK(unisonic_session_get_logits(session, logits[i], info.vocab_len, &error));
        unisonic_session_free(session);
        unisonic_model_free(model);
        unisonic_library_close(library);
        CHECK(is_equal(current_mode(), host_mode));
    }
    CHECK(calls > 0);
    CHECK(fesetround(FE_TONEAREST) == 0);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
    CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0);
}
