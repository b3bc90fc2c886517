// Another runtime's answers for a tiny model, as JSON of tests/data/goldens/tiny/: llama.cpp on one CPU thread, f32 KV
// cache, no flash attention. usage: golden MODEL ENGINE PROMPT_ID... > golden.json
//
// Linked with the library of the npm package whose sources are the headers':
//
//     npm pack @node-llama-cpp/linux-x64@3.21.1 node-llama-cpp@3.21.1      # libllama.so; package/llama/gitRelease.bundle
//     git clone gitRelease.bundle llama.cpp
//     g++ -O1 -std=c++17 -Illama.cpp/include -Illama.cpp/ggml/include golden.cpp -o golden $BINS/*.v0.4.0.so $BINS/libggml-base.so
//     LD_LIBRARY_PATH=$BINS ./golden gemma4.gguf "llama.cpp v0.4.0 CPU …" 1 14 51 88 …
//
// The model is one of `mktiny.py --f32`; ENGINE says what ran, and the caller adds the file's SHA-256.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

using Row = std::vector<float>;

static void fail(const char * what) {
    fprintf(stderr, "error: %s\n", what);
    exit(1);
}

// Rows of logits of tokens at positions from `first` on.
static std::vector<Row> rows(llama_context * context, const std::vector<int> & tokens, int first, int vocab_len) {
    llama_batch batch = llama_batch_init(int(tokens.size()), 0, 1);
    for (size_t i = 0; i < tokens.size(); i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = first + int(i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = int(tokens.size());
    if (llama_decode(context, batch) != 0) fail("llama_decode");
    std::vector<Row> found;
    for (size_t i = 0; i < tokens.size(); i++) {
        const float * logits = llama_get_logits_ith(context, int(i));
        found.emplace_back(logits, logits + vocab_len);
    }
    llama_batch_free(batch);
    return found;
}

static int argmax(const Row & row) {
    size_t best = 0;
    for (size_t i = 1; i < row.size(); i++) best = row[i] > row[best] ? i : best;
    return int(best);
}

static float margin(const Row & row) {
    const int best = argmax(row);
    float second = -1e30f;
    for (size_t i = 0; i < row.size(); i++) second = int(i) != best && row[i] > second ? row[i] : second;
    return row[best] - second;
}

// Rounded to five decimals, without trailing zeros.
static std::string number(float x) {
    char text[64];
    snprintf(text, sizeof text, "%.5f", x);
    std::string trimmed = text;
    while (trimmed.back() == '0' && trimmed[trimmed.size() - 2] != '.') trimmed.pop_back();
    return trimmed;
}

template <class T, class F> static void list(const char * key, const std::vector<T> & values, F text, const char * end) {
    printf("\"%s\": [", key);
    for (size_t i = 0; i < values.size(); i++) printf("%s%s", i ? ", " : "", text(values[i]).c_str());
    printf("]%s", end);
}

int main(int argc, char ** argv) {
    if (argc < 4) fail("usage: golden MODEL ENGINE PROMPT_ID...");
    std::vector<int> prompt, greedy, best_of_each;
    for (int i = 3; i < argc; i++) prompt.push_back(atoi(argv[i]));

    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    ggml_backend_load_all();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) fail("the model cannot be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) fail("no context");
    const int vocab_len = llama_vocab_n_tokens(llama_model_get_vocab(model));

    const std::vector<Row> of_prompt = rows(context, prompt, 0, vocab_len);
    for (const Row & row : of_prompt) best_of_each.push_back(argmax(row));
    std::vector<float> margins;
    Row last = of_prompt.back();
    for (int i = 0; i < 32; i++) {
        greedy.push_back(argmax(last));
        margins.push_back(margin(last));
        last = rows(context, {greedy.back()}, int(prompt.size()) + i, vocab_len)[0];
    }

    const std::string path = argv[1];
    const auto id = [](int value) { return std::to_string(value); };
    printf("{\"model\": \"%s\", \"engine\": \"%s\", ", path.substr(path.find_last_of('/') + 1).c_str(), argv[2]);
    list("prompt_ids", prompt, id, ", ");
    list("argmax_each_pos", best_of_each, id, ", ");
    list("logits_pos0", of_prompt.front(), number, ", ");
    list("logits_last", of_prompt.back(), number, ", ");
    list("greedy32", greedy, id, ", ");
    list("margins", margins, number, ", ");
    list("logits_after_greedy", last, number, "}\n");
}
