/* Unisonic runs language models from GGUF files and gives the same answer everywhere, bit for bit.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Written from capi/src by `BLESS=1 cargo test -p unisonic-capi --test header`; docs/c-abi.md has the rules and an example:
 *
 * - Each function that can fail returns a unisonic_status and takes a unisonic_error **, which may be NULL. It is set to NULL,
 *   or on failure to an error with a message, which the caller frees.
 * - Results (`T **` parameters) are set to NULL on failure. Who gets a handle frees it, in any order.
 * - Pointers come with lengths. A length of 0 goes with any pointer, NULL too.
 * - Options begin with struct_size = sizeof(the struct); everything else may be 0, which is the default. NULL for all defaults.
 * - Every function may be called from any thread. Two threads may share a handle; where one would have to wait for
 *   the other, the function says so or fails with UNISONIC_STATUS_BUSY.
 * - Callbacks must return: they may not throw or longjmp out.
 */

#ifndef UNISONIC_H
#define UNISONIC_H

#include <stddef.h>
#include <stdint.h>

// For callbacks: go on.
#define UNISONIC_CONTINUE 0

// For callbacks: enough, which is no error.
#define UNISONIC_STOP 1

// Version of the ABI that this header describes: 65536 times the major version, by which ABIs do not fit
// each other and which is the number of libunisonic.so, plus the minor version, which grows with every
// addition.
#define UNISONIC_ABI_VERSION 1

// No token: where a token is given, there is none.
#define UNISONIC_NO_TOKEN UINT32_MAX

// For unisonic_tokenizer_encode: adds the tokens that the model wants in front of and behind a prompt.
#define UNISONIC_ENCODE_PROMPT 1

// For unisonic_tokenizer_encode: control tokens that the text spells, such as "<|im_end|>", become those
// tokens. Not for texts of others: they could say what only the program may say.
#define UNISONIC_ENCODE_SPECIALS 2

// For unisonic_tokenizer_decode: control tokens are their names; otherwise they are no text.
#define UNISONIC_DECODE_CONTROL 1

// For `constraint_kind`: the answer is free.
#define UNISONIC_CONSTRAINT_NONE 0

// For `constraint_kind`: a JSON schema; a keyword that is not supported is an error.
#define UNISONIC_CONSTRAINT_JSON_SCHEMA 1

// For `constraint_kind`: a regular expression that the whole answer matches.
#define UNISONIC_CONSTRAINT_REGEX 2

// For `constraint_kind`: a grammar in the dialect of Lark that llguidance reads.
#define UNISONIC_CONSTRAINT_LARK 3

// A tensor of 32-bit floats.
#define UNISONIC_DTYPE_F32 1

// A tensor of unsigned 32-bit integers, such as token ids.
#define UNISONIC_DTYPE_U32 2

// The token ids of the run, u32. No inputs.
#define UNISONIC_OP_TOKENS 1

// Rows of `width` floats that the caller gives with the run. No inputs; one in a graph.
#define UNISONIC_OP_INPUT 2

// Rows of the matrix `weight`, one a token, times `number` unless that is 0. Inputs: tokens.
#define UNISONIC_OP_EMBED 3

// Rows of the matrix `weight`, one a position. Inputs: tokens.
#define UNISONIC_OP_EMBED_POSITIONS 4

// RMSNorm with the vector `weight` and the epsilon `number`. Inputs: x.
#define UNISONIC_OP_RMS_NORM 5

// LayerNorm with the vectors `weight` and `bias` and the epsilon `number`. Inputs: x.
#define UNISONIC_OP_LAYER_NORM 6

// RMSNorm of each head with the vector `weight`, as long as a head, and the epsilon `number`; without a weight, of heads of
// `head_len` values. Inputs: x.
#define UNISONIC_OP_HEAD_NORM 7

// Turns each head of `head_len` values by its position, as the table `rope` says. Inputs: x.
#define UNISONIC_OP_ROPE 8

// `weight` x [+ `bias`]: a matrix with a row for each value of the result, and a vector if any. UNISONIC_NODE_HEAD in `flags` for the
// last layer of a model. Inputs: x.
#define UNISONIC_OP_LINEAR 9

// Sum. Inputs: a, b.
#define UNISONIC_OP_ADD 10

// Writes keys and values to the cache `kv`; the result is the keys. Inputs: k, v.
#define UNISONIC_OP_WRITE_KV 11

// Attention over the cache `kv`, which a node before has written: scores times `number`, or 1/sqrt(values of a head) if that is
// 0; keys within `window` tokens, or all if that is 0; scores capped by `soft_cap` unless that is 0. Inputs: q.
#define UNISONIC_OP_ATTENTION 12

// The function `activation` of gate, times up. Inputs: gate, up.
#define UNISONIC_OP_GATE 13

// GELU. Inputs: x.
#define UNISONIC_OP_GELU 14

// The rows of which results are asked. Inputs: x.
#define UNISONIC_OP_SELECT_OUTPUTS 15

// `number` tanh(x / `number`). Inputs: x.
#define UNISONIC_OP_SOFT_CAP 16

// Chooses `chosen` experts of a row by the matrix `weight`, a row an expert. Inputs: x.
#define UNISONIC_OP_ROUTE 17

// A linear layer of each chosen expert: `weight` has their matrices one after the other, `width` rows each. Inputs: x, routes.
#define UNISONIC_OP_EXPERT_LINEAR 18

// The sum of what experts made, weighted. Inputs: x, routes.
#define UNISONIC_OP_SUM_EXPERTS 19

// a and, times the sigmoid of the matrix `weight` of one row times x, b. Inputs: x, a, b.
#define UNISONIC_OP_ADD_SHARED 20

// x times the only value of the vector `weight`. Inputs: x.
#define UNISONIC_OP_SCALE 21

// `activation`: SwiGLU's.
#define UNISONIC_ACTIVATION_SILU 1

// `activation`: GELU in its tanh form.
#define UNISONIC_ACTIVATION_GELU 2

// In `flags`: the linear layer makes the logits of a model.
#define UNISONIC_NODE_HEAD 1

// In `flags`: the weights of the chosen experts are shares of all, not of each other.
#define UNISONIC_NODE_SHARES_OF_ALL 2

// Pairs of RoPE lie side by side (llama).
#define UNISONIC_ROPE_INTERLEAVED 1

// Pairs of RoPE lie half a head apart (qwen, gemma, phi).
#define UNISONIC_ROPE_HALF_SPLIT 2

// What a call came to. New ones may be added: treat those that you do not know as failures.
typedef enum {
  // Done.
  UNISONIC_STATUS_OK = 0,
  // An argument is not what it must be: NULL, out of range, no UTF-8, of the wrong length.
  UNISONIC_STATUS_INVALID_ARGUMENT = 1,
  // A handle that was freed, or is of another kind.
  UNISONIC_STATUS_INVALID_HANDLE = 2,
  // The program was compiled against a header that this library does not serve.
  UNISONIC_STATUS_VERSION = 3,
  // A file cannot be read or written.
  UNISONIC_STATUS_IO = 4,
  // A model file is damaged, or not supported.
  UNISONIC_STATUS_MODEL = 5,
  // A device cannot be opened, or has failed.
  UNISONIC_STATUS_DEVICE = 6,
  // Memory does not suffice.
  UNISONIC_STATUS_OUT_OF_MEMORY = 7,
  // The context of the model is full.
  UNISONIC_STATUS_CONTEXT_FULL = 8,
  // The handle is in use: by another thread, or by the call that this callback came from.
  UNISONIC_STATUS_BUSY = 9,
  // Someone asked for the call to end.
  UNISONIC_STATUS_CANCELLED = 10,
  // A callback failed.
  UNISONIC_STATUS_CALLBACK_FAILED = 11,
  // There is no such thing, and why.
  UNISONIC_STATUS_UNSUPPORTED = 12,
  // A receipt or saved session is damaged, or of another model or arithmetic.
  UNISONIC_STATUS_MISMATCH = 13,
  // A graph is not right, or a tensor does not fit it.
  UNISONIC_STATUS_GRAPH = 14,
  // A fault of the library. Handles that took part are not to be used any more, only freed.
  UNISONIC_STATUS_INTERNAL = 15,
} unisonic_status;

// How much a line of the log matters.
typedef enum {
  // Something failed.
  UNISONIC_LOG_LEVEL_ERROR = 1,
  // Something is not as it should be, and goes on.
  UNISONIC_LOG_LEVEL_WARN = 2,
  // What is going on.
  UNISONIC_LOG_LEVEL_INFO = 3,
  // What helps to find a fault.
  UNISONIC_LOG_LEVEL_DEBUG = 4,
  // Everything.
  UNISONIC_LOG_LEVEL_TRACE = 5,
} unisonic_log_level;

// Why a generation ended. New ones may be added.
typedef enum {
  // The model ended its answer with an end token, which is the last of the tokens.
  UNISONIC_STOP_EOG = 0,
  // `max_tokens` were generated.
  UNISONIC_STOP_LENGTH = 1,
  // The context is full.
  UNISONIC_STOP_CONTEXT = 2,
  // The answer is complete: its constraint allows nothing more.
  UNISONIC_STOP_CONSTRAINT = 3,
  // The text came to a stop string, which is not part of the text, while its tokens are among the tokens.
  UNISONIC_STOP_STOP_STRING = 4,
  // The callback said to stop.
  UNISONIC_STOP_CALLBACK = 5,
  // A cancel switch was set.
  UNISONIC_STOP_CANCELLED = 6,
} unisonic_stop;

// Requests that share the steps of a model. Which of them meet in a step changes no bit of an answer.
// Several batches of a model share steps too.
typedef struct unisonic_batch unisonic_batch;

// Bytes, a text, or token ids that a call gave back.
typedef struct unisonic_buffer unisonic_buffer;

// A switch that ends the calls that were given it. It may be used from any thread, and from callbacks, while
// they run; not from a signal handler.
typedef struct unisonic_cancel unisonic_cancel;

// A conversation: messages, and the tools that the model may call.
typedef struct unisonic_chat unisonic_chat;

// What was generated.
typedef struct unisonic_completion unisonic_completion;

// Makes text of tokens as they come: whole characters, with U+FFFD for bytes that are none.
typedef struct unisonic_detokenizer unisonic_detokenizer;

// Devices that were found.
typedef struct unisonic_device_list unisonic_device_list;

// Why a call failed. It belongs to no library handle; free it with unisonic_error_free.
typedef struct unisonic_error unisonic_error;

// A model as operations on rows. One thread at a time builds it: UNISONIC_STATUS_BUSY for others.
typedef struct unisonic_graph unisonic_graph;

// What calls have in common: where lines of the log go, where compiled kernels are kept, and the table of
// handles. Several in one process know nothing of each other.
typedef struct unisonic_library unisonic_library;

// A model on a device.
//
// One call at a time runs it; others wait for their turn, and may be cancelled meanwhile. Many requests at
// once go through unisonic_batch.
typedef struct unisonic_model unisonic_model;

// A graph on a device. One call at a time runs it; others wait for their turn, in callbacks of its own calls they are refused:
// UNISONIC_STATUS_BUSY.
typedef struct unisonic_program unisonic_program;

// Chooses tokens for programs that run the model step by step (unisonic_session_sample).
typedef struct unisonic_sampler unisonic_sampler;

// A sequence of rows on a program, with keys and values of its own. One thread at a time uses it: UNISONIC_STATUS_BUSY for others.
typedef struct unisonic_sequence unisonic_sequence;

// One sequence of tokens on a model. Sessions of a model may be used from several threads; one session by
// one thread at a time: UNISONIC_STATUS_BUSY for others, also in callbacks of its own calls.
//
// A call that fails leaves the session as it was before.
typedef struct unisonic_session unisonic_session;

// Numbers with a shape, row after row. It does not change once it is made, so any number of threads may use it.
typedef struct unisonic_tensor unisonic_tensor;

// The vocabulary and the chat template of a model file.
typedef struct unisonic_tokenizer unisonic_tokenizer;

// Tensors by name, and the metadata of the model file that they are of. Nothing of a file but its head is read before a program is
// loaded.
typedef struct unisonic_weights unisonic_weights;

// Takes a line of the log: UTF-8 with a NUL behind its `len` bytes, until the callback returns. Comes from
// the thread that calls the library, during the call.
typedef void (*unisonic_log_fn)(void *user, unisonic_log_level level, const char *message, size_t len);

// Options of a library handle.
typedef struct {
  // sizeof(unisonic_library_options).
  size_t struct_size;
  // Takes the lines of the log; NULL: nobody does. It may be called from any thread that calls the
  // library.
  unisonic_log_fn log;
  // Given to `log`.
  void *log_user;
  // Folder for compiled kernels and other things that the next start need not make again; NULL: nothing is
  // kept.
  const char *cache_path;
  // Bytes of `cache_path`.
  size_t cache_path_len;
  // The least important lines that `log` takes, a unisonic_log_level; 0: UNISONIC_LOG_LEVEL_INFO.
  int32_t log_level;
  // 0.
  uint32_t reserved;
} unisonic_library_options;

// A text with its length, in structs that do not grow. What the library gives out is UTF-8 and has a NUL
// behind it.
typedef struct {
  // The bytes; NULL for no text.
  const char *data;
  // How many, without the NUL.
  size_t len_bytes;
} unisonic_text;

// A device. Its texts live as long as the list.
typedef struct {
  // sizeof(unisonic_device_info).
  size_t struct_size;
  // By which it is opened, such as "cpu" or "vulkan:0"; for a backend without devices, its name.
  unisonic_text name;
  // Hardware or implementation.
  unisonic_text hardware;
  // Driver and version, where there is one.
  unisonic_text driver;
  // Why it cannot be used and what to do; without text if it can.
  unisonic_text problem;
  // Memory in all; 0 where the driver does not say.
  uint64_t memory_len_bytes;
} unisonic_device_info;

// Options of unisonic_chat_encode.
typedef struct {
  // sizeof(unisonic_chat_options).
  size_t struct_size;
  // What a template may show as today's date, as "2026-01-31"; NULL: none. The clock is not read.
  const char *date;
  // Bytes of `date`.
  size_t date_len;
  // 1: does not end with the beginning of the assistant's turn.
  uint32_t no_generation_prompt;
  // 0.
  uint32_t reserved;
} unisonic_chat_options;

// Is told how many bytes of the weights are loaded, from any thread, never twice at a time. Returns 0 to go
// on, 1 to end loading with UNISONIC_STATUS_CANCELLED, anything else to end it with
// UNISONIC_STATUS_CALLBACK_FAILED.
typedef int32_t (*unisonic_progress_fn)(void *user, uint64_t loaded_len_bytes, uint64_t total_len_bytes);

// How to load a model. None of these can change a bit of any result.
typedef struct {
  // sizeof(unisonic_load_options).
  size_t struct_size;
  // The device, as unisonic_device_list_get names it; NULL: "cpu".
  const char *device;
  // Bytes of `device`.
  size_t device_len;
  // Is told how far loading is; NULL: nobody is.
  unisonic_progress_fn progress;
  // Given to `progress`.
  void *progress_user;
  // Ends loading from another thread; NULL: nobody does.
  unisonic_cancel *cancel;
  // Most memory that a GPU is asked for; 0: what is free.
  uint64_t memory_limit_bytes;
  // Threads of the CPU; 0: one for each processor.
  uint32_t threads;
  // Longest sequence, in tokens; 0: what the model was made for, 8192 at most.
  uint32_t context_len;
  // Sequences that can be at full length at a time; 0: 1. Memory for keys and values grows with it.
  uint32_t sequences;
  // Most tokens in a step; 0: 64.
  uint32_t chunk_rows;
  // Most tokens of a step whose logits are kept; 0: 16.
  uint32_t max_outputs;
  // 0.
  uint32_t reserved;
} unisonic_load_options;

// What a loaded model is. Its texts live as long as the model.
typedef struct {
  // sizeof(unisonic_model_info).
  size_t struct_size;
  // Of the file's metadata.
  unisonic_text architecture;
  // Of the file's metadata; may be empty.
  unisonic_text name;
  // The device that runs it, as it is opened.
  unisonic_text device;
  // Hardware or implementation.
  unisonic_text hardware;
  // The arithmetic: results of equal arithmetic have equal bits on all devices.
  unisonic_text profile;
  // Parameters of all tensors.
  uint64_t parameters;
  // Values of a row of logits.
  uint32_t vocab_len;
  // Longest sequence, in tokens.
  uint32_t context_len;
  // Longest sequence that the model was made for.
  uint32_t trained_context_len;
  // Always 0.
  uint32_t reserved;
} unisonic_model_info;

// What a loaded model takes.
typedef struct {
  // sizeof(unisonic_model_memory).
  size_t struct_size;
  // Weights on the device.
  uint64_t weights_len_bytes;
  // Keys and values of all sequences, used or not.
  uint64_t kv_len_bytes;
  // Pages of 64 tokens for keys and values.
  uint64_t pages;
  // Pages of sessions and requests.
  uint64_t pages_held;
  // Pages that are only kept for sequences that may begin in the same way.
  uint64_t pages_cached;
} unisonic_model_memory;

// What is added to the logit of a token.
typedef struct {
  // In [-1048576, 1048576]; -INFINITY: never.
  double bias;
  // The token.
  uint32_t token;
  // 0.
  uint32_t reserved;
} unisonic_logit_bias;

// How tokens are chosen. All 0 is greedy: the largest logit, of equals the lowest id. The order is:
// penalties, logit bias, constraint, top_n_sigma, top_k, typical, top_p, min_p, temperature, draw.
typedef struct {
  // sizeof(unisonic_sampler_options).
  size_t struct_size;
  // Logits are divided by it before the draw, in [1e-4, 1e4]; 0: greedy.
  double temperature;
  // Keeps the most probable tokens that together reach this share, up to 1; 0: all.
  double top_p;
  // Keeps tokens at least this fraction as probable as the most probable one, up to 1; 0: all.
  double min_p;
  // Keeps the tokens whose surprisal is nearest to the entropy and that together reach this share, up to
  // 1; 0: all.
  double typical;
  // Keeps logits within so many standard deviations of the largest, up to 64; 0: all.
  double top_n_sigma;
  // Divides positive logits of tokens in the window and multiplies others, in [1/1024, 1024]; 0: 1, which
  // changes nothing.
  double repeat_penalty;
  // Subtracted from logits of tokens in the window, in [-1024, 1024].
  double presence_penalty;
  // Subtracted from logits of tokens in the window for each time they occur there, in [-1024, 1024].
  double frequency_penalty;
  // A draw depends on it, on the position of the token in its sequence and on the logits, and on nothing
  // else.
  uint64_t seed;
  // Biases, each token at most once.
  const unisonic_logit_bias *logit_bias;
  // How many.
  size_t logit_bias_len;
  // What the answer follows: a text in the language of `constraint_kind`.
  const char *constraint;
  // Bytes of `constraint`.
  size_t constraint_len;
  // One of UNISONIC_CONSTRAINT_...
  uint32_t constraint_kind;
  // Keeps the k tokens with the largest logits; 0: all.
  uint32_t top_k;
  // The window of the penalties: so many tokens before the one that is chosen; -1: all; 0: 64.
  int32_t repeat_last_n;
  // 0.
  uint32_t reserved;
} unisonic_sampler_options;

// Options of unisonic_session_new.
typedef struct {
  // sizeof(unisonic_session_options).
  size_t struct_size;
  // Sequences that begin in the same way share what was computed for that, if they are of equal salts:
  // whoever measures time can tell. Any bytes.
  const char *salt;
  // Bytes of `salt`.
  size_t salt_len;
} unisonic_session_options;

// A token that was chosen, with the text that it lets out. What it points to lives until the callback
// returns.
typedef struct {
  // sizeof(unisonic_token_event) of the library: fields beyond it are not there.
  size_t struct_size;
  // Characters that are complete and no part of a stop string; may be empty.
  unisonic_text text;
  // The logits that it was chosen from, if they were asked for.
  const float *logits;
  // How many.
  size_t logits_len;
  // The request, of a batch; otherwise 0.
  uint64_t request;
  // The token; UNISONIC_NO_TOKEN for text that was held back and comes at the end.
  uint32_t token;
  // How many tokens of the answer came before it.
  uint32_t index;
} unisonic_token_event;

// Takes a token. Returns UNISONIC_CONTINUE, UNISONIC_STOP for an answer that ends with this token, anything
// else for a generation that fails with UNISONIC_STATUS_CALLBACK_FAILED.
typedef int32_t (*unisonic_token_fn)(void *user, const unisonic_token_event *event);

// How to continue a prompt.
typedef struct {
  // sizeof(unisonic_generate_options).
  size_t struct_size;
  // Takes tokens and text as they come, in the thread of the call; NULL: nobody does.
  unisonic_token_fn on_token;
  // Given to `on_token`.
  void *user;
  // How tokens are chosen; NULL: greedily.
  const unisonic_sampler_options *sampler;
  // Texts that end the answer.
  const unisonic_text *stops;
  // How many.
  size_t stops_len;
  // Ends the generation from another thread; NULL: nobody does.
  unisonic_cancel *cancel;
  // Most tokens to generate; 0: until the model ends its answer, or the context is full.
  uint32_t max_tokens;
  // 1: `on_token` is given logits.
  uint32_t want_logits;
  // 1: the completion has a receipt. Reads the model's file once, for its digest.
  uint32_t want_receipt;
  // 1: does not guess tokens ahead. Guessing changes the speed and nothing else.
  uint32_t no_speculation;
} unisonic_generate_options;

// Options of unisonic_batch_new.
typedef struct {
  // sizeof(unisonic_batch_options).
  size_t struct_size;
  // As of unisonic_session_options.
  const char *salt;
  // Bytes of `salt`.
  size_t salt_len;
} unisonic_batch_options;

// What recomputing a receipt came to.
typedef struct {
  // sizeof(unisonic_verdict).
  size_t struct_size;
  // Index of the first token of the answer that differs, from 0; 0 if none does.
  uint64_t step;
  // Position of that token in its sequence.
  uint64_t position;
  // 1 if all tokens, and the bits of all logits that they were chosen from, are the receipt's; otherwise
  // 0.
  uint32_t equal;
  // The token in the receipt.
  uint32_t expected;
  // The token that is chosen here.
  uint32_t found;
  // 1 if the logits differ there.
  uint32_t logits_differ;
} unisonic_verdict;

// Which tensor a node reads.
typedef struct {
  // Its name; NULL: none.
  const char *name;
  // Bytes of `name`.
  size_t name_len;
  // Rows of the matrix; 0 for a vector.
  uint32_t rows;
  // Length of a row, or of the vector.
  uint32_t cols;
  // The first row, or value of a vector, where the tensor has more.
  uint32_t first;
  // All rows, or values, of the tensor; 0: those above.
  uint32_t of;
} unisonic_weight;

// A position table.
typedef struct {
  // sizeof(unisonic_rope_options).
  size_t struct_size;
  // The base of the frequencies.
  double base;
  // Positions are divided by it; 0: 1.
  double linear_factor;
  // The factor of YaRN; 0: no YaRN. Not together with `linear_factor`.
  double yarn_factor;
  // Cosine and sine are multiplied by it; 0: 1.
  double attention_factor;
  // Divisors of the frequencies, one a pair; without a name: none.
  unisonic_weight factors;
  // UNISONIC_ROPE_INTERLEAVED or UNISONIC_ROPE_HALF_SPLIT.
  uint32_t style;
  // Values of a head that turn; even.
  uint32_t rotary_len;
  // The context of training, for YaRN.
  uint32_t original_context_len;
  // 0.
  uint32_t reserved;
} unisonic_rope_options;

// A node: an operation and what it takes. Each UNISONIC_OP_... says which fields mean something to it; the others are 0.
typedef struct {
  // sizeof(unisonic_node).
  size_t struct_size;
  // Numbers of values, in the order that the operation says.
  const uint32_t *inputs;
  // How many.
  size_t inputs_len;
  // What it is called in messages, without spaces; NULL: as the operation.
  const char *label;
  // Bytes of `label`.
  size_t label_len;
  // A tensor.
  unisonic_weight weight;
  // Another one.
  unisonic_weight bias;
  // Epsilon, scale or bound.
  double number;
  // Bound of scores.
  double soft_cap;
  // UNISONIC_OP_....
  uint32_t op;
  // Values of a row of the result.
  uint32_t width;
  // A position table.
  uint32_t rope;
  // A cache.
  uint32_t kv;
  // Values of a head.
  uint32_t head_len;
  // Sliding window, in tokens.
  uint32_t window;
  // UNISONIC_ACTIVATION_....
  uint32_t activation;
  // Experts of a row.
  uint32_t chosen;
  // A sum of UNISONIC_NODE_....
  uint32_t flags;
  // 0.
  uint32_t reserved;
} unisonic_node;

// How to load a program. None of these can change a bit of any result.
typedef struct {
  // sizeof(unisonic_program_options).
  size_t struct_size;
  // The device, as unisonic_device_list_get names it; NULL: "cpu".
  const char *device;
  // Bytes of `device`.
  size_t device_len;
  // Is told how far loading is; NULL: nobody is.
  unisonic_progress_fn progress;
  // Given to `progress`.
  void *progress_user;
  // Ends loading from another thread; NULL: nobody does.
  unisonic_cancel *cancel;
  // Passes that are left out, separated by commas; NULL: none.
  const char *passes_off;
  // Bytes of `passes_off`.
  size_t passes_off_len;
  // Most memory that a GPU is asked for; 0: what is free.
  uint64_t memory_limit_bytes;
  // Threads of the CPU; 0: one for each processor.
  uint32_t threads;
  // Longest sequence, in rows; 0: what the graph says, 8192 at most.
  uint32_t context_len;
  // Sequences that can be at full length at a time; 0: 1. Memory for keys and values grows with it.
  uint32_t sequences;
  // Most rows in a step; 0: 64.
  uint32_t chunk_rows;
} unisonic_program_options;

// What a program is. Its texts live as long as the program.
typedef struct {
  // sizeof(unisonic_program_info).
  size_t struct_size;
  // The device that runs it, as it is opened.
  unisonic_text device;
  // Hardware or implementation.
  unisonic_text hardware;
  // The arithmetic: results of equal arithmetic have equal bits on all devices.
  unisonic_text profile;
  // Values of a row that it gives.
  uint64_t output_width;
  // Steps of the plan.
  uint64_t steps;
  // Values of a row that it takes; 0 if it takes none.
  uint32_t input_width;
  // 1 if it takes a token id for each row; otherwise 0.
  uint32_t takes_tokens;
  // 1 if what comes of a row depends on its position or on rows before it; otherwise sequences stay empty.
  uint32_t has_state;
  // Longest sequence, in rows.
  uint32_t context_len;
} unisonic_program_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The status that came with the error; UNISONIC_STATUS_OK for NULL.
unisonic_status unisonic_error_status(const unisonic_error *error);

// What happened, what was expected, what was found and what to do: UTF-8 with a NUL behind it, until the
// error is freed. Empty for NULL.
const char *unisonic_error_message(const unisonic_error *error);

// Bytes of unisonic_error_message without the NUL.
size_t unisonic_error_message_len(const unisonic_error *error);

// Frees an error; NULL is fine.
void unisonic_error_free(unisonic_error *error);

// Version of the ABI of the library that runs: at least UNISONIC_ABI_VERSION of the header, and of the same
// major version, or unisonic_library_open refuses.
uint32_t unisonic_abi_version(void);

// Version of the library, as "0.1.0".
const char *unisonic_version(void);

// A library handle. `abi_version` is UNISONIC_ABI_VERSION, as the caller was compiled with it:
// UNISONIC_STATUS_VERSION where this library does not serve it. Close it with unisonic_library_close.
unisonic_status unisonic_library_open(uint32_t abi_version,
                                      const unisonic_library_options *options,
                                      unisonic_library **library,
                                      unisonic_error **error);

// Closes a library handle; NULL is fine. What was made with it and not freed stays, and so does the log
// callback until the last of it is freed.
unisonic_status unisonic_library_close(unisonic_library *library);

// Handles that were made with this library handle and not freed, itself included; 0 if it is none. For tests of leaks.
size_t unisonic_library_len_handles(unisonic_library *library);

// The bytes of a buffer, with a NUL behind them, until it is freed; NULL if it is no buffer, or one of token
// ids.
const uint8_t *unisonic_buffer_data(unisonic_buffer *buffer);

// Number of bytes, without the NUL; 0 if it is no buffer, or one of token ids.
size_t unisonic_buffer_len_bytes(unisonic_buffer *buffer);

// The token ids of a buffer, until it is freed; NULL if it is no buffer of token ids.
const uint32_t *unisonic_buffer_tokens(unisonic_buffer *buffer);

// Number of token ids; 0 if it is no buffer of token ids.
size_t unisonic_buffer_len_tokens(unisonic_buffer *buffer);

// Frees a buffer; NULL is fine.
unisonic_status unisonic_buffer_free(unisonic_buffer *buffer);

// Finds all devices, those that cannot be used too, with the reason. Asks drivers, which can take seconds
// and, of some drivers of GPUs, prints to stderr. Free the list with unisonic_device_list_free.
unisonic_status unisonic_device_list_new(unisonic_library *library,
                                         unisonic_device_list **list,
                                         unisonic_error **error);

// Number of devices; 0 if the list is none.
size_t unisonic_device_list_len(unisonic_device_list *list);

// Describes device `index`, from 0, into `info`, whose struct_size is set.
unisonic_status unisonic_device_list_get(unisonic_device_list *list,
                                         size_t index,
                                         unisonic_device_info *info,
                                         unisonic_error **error);

// Frees a list; NULL is fine.
unisonic_status unisonic_device_list_free(unisonic_device_list *list);

// A switch that is off. Free it with unisonic_cancel_free; calls that still have it keep it.
unisonic_status unisonic_cancel_new(unisonic_library *library, unisonic_cancel **cancel, unisonic_error **error);

// Switches it on: calls that have it end at the next step of the model, and so do those that get it until it
// is reset.
unisonic_status unisonic_cancel_request(unisonic_cancel *cancel, unisonic_error **error);

// Switches it off, for the next call.
unisonic_status unisonic_cancel_reset(unisonic_cancel *cancel, unisonic_error **error);

// Frees a switch; NULL is fine.
unisonic_status unisonic_cancel_free(unisonic_cancel *cancel);

// Reads the tokenizer of a model file without its weights. `path` as in unisonic_model_load. Free it with
// unisonic_tokenizer_free.
unisonic_status unisonic_tokenizer_open(unisonic_library *library,
                                        const char *path,
                                        size_t path_len,
                                        unisonic_tokenizer **tokenizer,
                                        unisonic_error **error);

// The token ids of a text, into a buffer. `flags` is 0 or a sum of UNISONIC_ENCODE_...; with 0 every byte of
// the text is text.
unisonic_status unisonic_tokenizer_encode(unisonic_tokenizer *tokenizer,
                                          const char *text,
                                          size_t text_len,
                                          uint32_t flags,
                                          unisonic_buffer **tokens,
                                          unisonic_error **error);

// The bytes of token ids, into a buffer. They need not be UTF-8, as tokens may end within a character.
// `flags` is 0 or UNISONIC_DECODE_CONTROL.
unisonic_status unisonic_tokenizer_decode(unisonic_tokenizer *tokenizer,
                                          const uint32_t *tokens,
                                          size_t tokens_len,
                                          uint32_t flags,
                                          unisonic_buffer **text,
                                          unisonic_error **error);

// Number of tokens of the vocabulary; 0 if it is no tokenizer.
uint32_t unisonic_tokenizer_vocab_len(unisonic_tokenizer *tokenizer);

// The token that begins a text; UNISONIC_NO_TOKEN if there is none.
uint32_t unisonic_tokenizer_bos(unisonic_tokenizer *tokenizer);

// The token that ends a text; UNISONIC_NO_TOKEN if there is none.
uint32_t unisonic_tokenizer_eos(unisonic_tokenizer *tokenizer);

// 1 if a generation ends with this token, as with the end of a turn; otherwise 0.
int32_t unisonic_tokenizer_is_stop(unisonic_tokenizer *tokenizer, uint32_t token);

// Frees a tokenizer; NULL is fine.
unisonic_status unisonic_tokenizer_free(unisonic_tokenizer *tokenizer);

// A detokenizer at the beginning of a text. Free it with unisonic_detokenizer_free.
unisonic_status unisonic_detokenizer_new(unisonic_tokenizer *tokenizer,
                                         unisonic_detokenizer **detokenizer,
                                         unisonic_error **error);

// The characters that a token completes, into a buffer; with UNISONIC_NO_TOKEN what is left at the end of
// the text, after which another may begin.
unisonic_status unisonic_detokenizer_push(unisonic_detokenizer *detokenizer,
                                          uint32_t token,
                                          unisonic_buffer **text,
                                          unisonic_error **error);

// Frees a detokenizer; NULL is fine.
unisonic_status unisonic_detokenizer_free(unisonic_detokenizer *detokenizer);

// An empty conversation. Free it with unisonic_chat_free.
unisonic_status unisonic_chat_new(unisonic_tokenizer *tokenizer, unisonic_chat **chat, unisonic_error **error);

// Appends a message. `role` is "system", "user", "assistant", "tool" or what else the template knows. What
// `content` says is text and never a control token.
unisonic_status unisonic_chat_add(unisonic_chat *chat,
                                  const char *role,
                                  size_t role_len,
                                  const char *content,
                                  size_t content_len,
                                  unisonic_error **error);

// Sets the tools that the model may call: a JSON list, as the template's model was trained to read it
// (mostly that of OpenAI's `tools`). Its texts are never control tokens.
unisonic_status unisonic_chat_set_tools(unisonic_chat *chat, const char *json, size_t json_len, unisonic_error **error);

// Token ids of the conversation, to be continued by the model.
unisonic_status unisonic_chat_encode(unisonic_chat *chat,
                                     const unisonic_chat_options *chat_options,
                                     unisonic_buffer **tokens,
                                     unisonic_error **error);

// Frees a conversation; NULL is fine.
unisonic_status unisonic_chat_free(unisonic_chat *chat);

// Loads the model of a GGUF file, of which `path` may be any shard. `path` is the path's bytes on Unix,
// whatever they are, and UTF-8 elsewhere; it need not end with a NUL. Free the model with
// unisonic_model_free.
unisonic_status unisonic_model_load(unisonic_library *library,
                                    const char *path,
                                    size_t path_len,
                                    const unisonic_load_options *load_options,
                                    unisonic_model **model,
                                    unisonic_error **error);

// The tokenizer of a model. It may outlive the model; free it with unisonic_tokenizer_free.
unisonic_status unisonic_model_tokenizer(unisonic_model *model, unisonic_tokenizer **tokenizer, unisonic_error **error);

// Describes a model into `info`, whose struct_size is set.
unisonic_status unisonic_model_get_info(unisonic_model *model, unisonic_model_info *info, unisonic_error **error);

// What a model takes, into `memory`, whose struct_size is set. Waits for the call that runs the model, if
// one does.
unisonic_status unisonic_model_get_memory(unisonic_model *model, unisonic_model_memory *memory, unisonic_error **error);

// Frees a model; NULL is fine. Its memory goes when its sessions and batches are freed too.
unisonic_status unisonic_model_free(unisonic_model *model);

// A sampler, of one answer: its constraint begins where it chooses first. Free it with
// unisonic_sampler_free.
unisonic_status unisonic_sampler_new(unisonic_model *model,
                                     const unisonic_sampler_options *sampler_options,
                                     unisonic_sampler **sampler,
                                     unisonic_error **error);

// Frees a sampler; NULL is fine.
unisonic_status unisonic_sampler_free(unisonic_sampler *sampler);

// The tokens, an end token included, until the completion is freed; NULL if it is none.
const uint32_t *unisonic_completion_tokens(unisonic_completion *completion);

// Number of tokens.
size_t unisonic_completion_len_tokens(unisonic_completion *completion);

// The text: UTF-8 with a NUL behind it, until the completion is freed; NULL if it is none. A NUL that the
// model says is U+FFFD.
const char *unisonic_completion_text(unisonic_completion *completion);

// Bytes of the text, without the NUL.
size_t unisonic_completion_text_len(unisonic_completion *completion);

// Why it ended; UNISONIC_STOP_CANCELLED if it is no completion.
unisonic_stop unisonic_completion_stop(unisonic_completion *completion);

// The receipt, if one was asked for: JSON with a NUL behind it, until the completion is freed; otherwise
// NULL. It names the model by digest, the options and the tokens, and has a digest of all logits:
// unisonic_receipt_verify and `unisonic verify` recompute it.
const char *unisonic_completion_receipt(unisonic_completion *completion);

// Frees a completion; NULL is fine.
unisonic_status unisonic_completion_free(unisonic_completion *completion);

// An empty session. Free it with unisonic_session_free.
unisonic_status unisonic_session_new(unisonic_model *model,
                                     const unisonic_session_options *session_options,
                                     unisonic_session **session,
                                     unisonic_error **error);

// Appends tokens and runs them: afterwards unisonic_session_get_logits says what may follow. `cancel` may be
// NULL.
unisonic_status unisonic_session_append(unisonic_session *session,
                                        const uint32_t *tokens,
                                        size_t tokens_len,
                                        unisonic_cancel *cancel,
                                        unisonic_error **error);

// Copies the logits that follow the last token: `logits_len` is vocab_len of unisonic_model_info. Runs the
// last token if that was not done, as after a generation.
unisonic_status unisonic_session_get_logits(unisonic_session *session,
                                            float *logits,
                                            size_t logits_len,
                                            unisonic_error **error);

// The token that the sampler chooses to follow the last one; it is not appended. UNISONIC_NO_TOKEN if the
// sampler's constraint allows nothing more.
unisonic_status unisonic_session_sample(unisonic_session *session,
                                        unisonic_sampler *sampler,
                                        uint32_t *token,
                                        unisonic_error **error);

// Number of tokens; 0 if it is no session, or another thread uses it.
size_t unisonic_session_len(unisonic_session *session);

// All tokens, into a buffer.
unisonic_status unisonic_session_get_tokens(unisonic_session *session,
                                            unisonic_buffer **tokens,
                                            unisonic_error **error);

// Forgets all tokens past the first `len`; what stays is as if nothing had followed it.
unisonic_status unisonic_session_truncate(unisonic_session *session, size_t len, unisonic_error **error);

// A session with the same tokens, which then goes its own way. What was computed is shared where it can be.
unisonic_status unisonic_session_fork(unisonic_session *session, unisonic_session **fork, unisonic_error **error);

// The session as bytes, for unisonic_session_restore in any process and on any device: tokens, keys and
// values, and how the last answer was chosen. The same as `unisonic run --save-session`. Reads the model's
// file once, for its digest.
unisonic_status unisonic_session_save(unisonic_session *session, unisonic_buffer **bytes, unisonic_error **error);

// A session from the bytes that unisonic_session_save or `unisonic run --save-session` gave:
// UNISONIC_STATUS_MISMATCH for those of another model or arithmetic, and for damaged ones.
unisonic_status unisonic_session_restore(unisonic_model *model,
                                         const unisonic_session_options *session_options,
                                         const uint8_t *bytes,
                                         size_t bytes_len,
                                         unisonic_session **session,
                                         unisonic_error **error);

// Frees a session; NULL is fine.
unisonic_status unisonic_session_free(unisonic_session *session);

// Appends a prompt to a session and continues it. The session then holds prompt and answer. Callbacks come
// while this call runs the model: in them the model cannot be run, but tokenizers, cancel switches and other
// models can be used.
//
// A generation that is cancelled is no failure: the completion has what there was (UNISONIC_STOP_CANCELLED).
// `completion` may be NULL if nobody wants it. Free it with unisonic_completion_free.
unisonic_status unisonic_session_generate(unisonic_session *session,
                                          const uint32_t *prompt,
                                          size_t prompt_len,
                                          const unisonic_generate_options *generate_options,
                                          unisonic_completion **completion,
                                          unisonic_error **error);

// An empty batch. Free it with unisonic_batch_free, which ends what it has.
unisonic_status unisonic_batch_new(unisonic_model *model,
                                   const unisonic_batch_options *batch_options,
                                   unisonic_batch **batch,
                                   unisonic_error **error);

// Adds a request, from any thread and also while the batch runs, in callbacks too. `request` is set to its
// number: 1, 2 and so on. Callbacks come from the call that runs the batch.
unisonic_status unisonic_batch_add(unisonic_batch *batch,
                                   const uint32_t *prompt,
                                   size_t prompt_len,
                                   const unisonic_generate_options *generate_options,
                                   uint64_t *request,
                                   unisonic_error **error);

// Runs one step of the model for all requests and calls their callbacks. `more` is set to 1 if there is more
// to do, otherwise to 0. An error is of the device, not of a request, and the step may be tried again.
unisonic_status unisonic_batch_step(unisonic_batch *batch, uint32_t *more, unisonic_error **error);

// Runs steps until all requests have ended.
unisonic_status unisonic_batch_run(unisonic_batch *batch, unisonic_error **error);

// What a request came to: its completion, which then is the caller's, or its error. UNISONIC_STATUS_BUSY
// while it has not ended. A request can be taken once.
unisonic_status unisonic_batch_take(unisonic_batch *batch,
                                    uint64_t request,
                                    unisonic_completion **completion,
                                    unisonic_error **error);

// Frees a batch and ends its requests; NULL is fine.
unisonic_status unisonic_batch_free(unisonic_batch *batch);

// Recomputes a receipt (JSON), into `verdict`, whose struct_size is set. That something differs is no
// failure; UNISONIC_STATUS_MISMATCH is for a receipt that is damaged, or of another model or arithmetic.
// Reads the model's file once, for its digest.
unisonic_status unisonic_receipt_verify(unisonic_model *model,
                                        const char *receipt,
                                        size_t receipt_len,
                                        unisonic_verdict *verdict,
                                        unisonic_error **error);

// The embedding of token ids: fails with UNISONIC_STATUS_UNSUPPORTED, and a message that says why. It is
// here so that programs can ask for it, and get it from the version of the library that has it.
unisonic_status unisonic_model_embed(unisonic_model *model,
                                     const uint32_t *tokens,
                                     size_t tokens_len,
                                     float *embedding,
                                     size_t embedding_len,
                                     unisonic_error **error);

// Copies numbers, row after row, into a tensor. `dims` are 1 to 4, the length of a row last; `data` has as many numbers of `dtype`,
// a UNISONIC_DTYPE_..., as their product says, `data_len_bytes` bytes. Free the tensor with unisonic_tensor_free.
unisonic_status unisonic_tensor_new(unisonic_library *library,
                                    uint32_t dtype,
                                    const uint64_t *dims,
                                    size_t dims_len,
                                    const void *data,
                                    size_t data_len_bytes,
                                    unisonic_tensor **tensor,
                                    unisonic_error **error);

// Its UNISONIC_DTYPE_...; 0 if it is no tensor.
uint32_t unisonic_tensor_dtype(unisonic_tensor *tensor);

// Number of its dimensions; 0 if it is no tensor.
size_t unisonic_tensor_len_dims(unisonic_tensor *tensor);

// Dimension `index`, from 0; the last is the length of a row. 0 if there is none.
uint64_t unisonic_tensor_dim(unisonic_tensor *tensor, size_t index);

// Bytes of its numbers; 0 if it is no tensor.
size_t unisonic_tensor_len_bytes(unisonic_tensor *tensor);

// Copies `len_bytes` bytes of its numbers, from byte `offset_bytes` on, to `to`.
unisonic_status unisonic_tensor_read(unisonic_tensor *tensor,
                                     size_t offset_bytes,
                                     void *to,
                                     size_t len_bytes,
                                     unisonic_error **error);

// Rows of a tensor as one of their own: `len` of them, from row `first` on.
unisonic_status unisonic_tensor_rows(unisonic_tensor *tensor,
                                     size_t first,
                                     size_t len,
                                     unisonic_tensor **rows,
                                     unisonic_error **error);

// The index of the largest value of row `row`, of equals the lowest: the most likely token of a row of logits.
unisonic_status unisonic_tensor_argmax(unisonic_tensor *tensor, size_t row, uint32_t *index, unisonic_error **error);

// Frees a tensor; NULL is fine.
unisonic_status unisonic_tensor_free(unisonic_tensor *tensor);

// An empty graph, for token ids below `vocab_len` and sequences of at most `context_len` rows. `name` is for messages and without
// spaces. Free it with unisonic_graph_free.
unisonic_status unisonic_graph_new(unisonic_library *library,
                                   const char *name,
                                   size_t name_len,
                                   uint32_t vocab_len,
                                   uint32_t context_len,
                                   unisonic_graph **graph,
                                   unisonic_error **error);

// A graph from its text form, as unisonic_graph_print writes it, held to all rules. It can grow further.
unisonic_status unisonic_graph_parse(unisonic_library *library,
                                     const char *text,
                                     size_t text_len,
                                     unisonic_graph **graph,
                                     unisonic_error **error);

// The text form of a graph that is whole, into a buffer.
unisonic_status unisonic_graph_print(unisonic_graph *graph, unisonic_buffer **text, unisonic_error **error);

// Adds a position table; its number for nodes goes to `rope`.
unisonic_status unisonic_graph_add_rope(unisonic_graph *graph,
                                        const unisonic_rope_options *rope_options,
                                        uint32_t *rope,
                                        unisonic_error **error);

// Adds a cache of keys and values of `heads` heads with `head_len` values each; its number for nodes goes to `kv`.
unisonic_status unisonic_graph_add_kv(unisonic_graph *graph,
                                      uint32_t heads,
                                      uint32_t head_len,
                                      uint32_t *kv,
                                      unisonic_error **error);

// Adds a node; the number of its result goes to `value`. UNISONIC_STATUS_GRAPH, with the node and the rule that it breaks, leaves the
// graph as it was.
unisonic_status unisonic_graph_add_node(unisonic_graph *graph,
                                        const unisonic_node *node,
                                        uint32_t *value,
                                        unisonic_error **error);

// Values of a row of value `value`; 0 if there is none.
uint32_t unisonic_graph_value_width(unisonic_graph *graph, uint32_t value);

// Says what the graph gives: floats of output rows, those that UNISONIC_OP_SELECT_OUTPUTS or what comes after it makes.
unisonic_status unisonic_graph_set_output(unisonic_graph *graph, uint32_t value, unisonic_error **error);

// Checks all rules and limits: UNISONIC_STATUS_GRAPH with every broken one and the node that it is in.
unisonic_status unisonic_graph_verify(unisonic_graph *graph, unisonic_error **error);

// What a device would be given for the graph, as text for people, into a buffer. `passes_off` names passes of the planner that are
// left out, separated by commas: that changes the speed and no bit of a result. `unisonic passes` lists them.
unisonic_status unisonic_graph_plan(unisonic_graph *graph,
                                    unisonic_weights *weights,
                                    const char *passes_off,
                                    size_t passes_off_len,
                                    unisonic_buffer **text,
                                    unisonic_error **error);

// Frees a graph; NULL is fine.
unisonic_status unisonic_graph_free(unisonic_graph *graph);

// Opens the model file at `path`, as unisonic_model_load does, for its tensors and metadata; `path_len` 0: no file, only tensors
// that are added. Free the weights with unisonic_weights_free.
unisonic_status unisonic_weights_open(unisonic_library *library,
                                      const char *path,
                                      size_t path_len,
                                      unisonic_weights **weights,
                                      unisonic_error **error);

// Adds a tensor of f32 under a name; it goes before one of the file. A name is added once.
unisonic_status unisonic_weights_add(unisonic_weights *weights,
                                     const char *name,
                                     size_t name_len,
                                     unisonic_tensor *tensor,
                                     unisonic_error **error);

// The dimensions of a tensor, the length of a row last: up to `capacity` of them into `dims`, and how many there are into
// `dims_len`, 0 if there is no such tensor.
unisonic_status unisonic_weights_shape(unisonic_weights *weights,
                                       const char *name,
                                       size_t name_len,
                                       uint64_t *dims,
                                       size_t capacity,
                                       size_t *dims_len,
                                       unisonic_error **error);

// A number or, as 0 and 1, a truth of the metadata; UNISONIC_STATUS_UNSUPPORTED if there is none.
unisonic_status unisonic_weights_get_number(unisonic_weights *weights,
                                            const char *key,
                                            size_t key_len,
                                            double *number,
                                            unisonic_error **error);

// A text of the metadata, into a buffer; UNISONIC_STATUS_UNSUPPORTED if there is none.
unisonic_status unisonic_weights_get_text(unisonic_weights *weights,
                                          const char *key,
                                          size_t key_len,
                                          unisonic_buffer **text,
                                          unisonic_error **error);

// 1 if there is a tensor of this name; otherwise 0.
int32_t unisonic_weights_has(unisonic_weights *weights, const char *name, size_t name_len);

// Frees weights; NULL is fine. Programs that were loaded from them stay.
unisonic_status unisonic_weights_free(unisonic_weights *weights);

// Plans a graph that is whole and loads it, with its weights, on a device. The graph and the weights may be freed afterwards. Free
// the program with unisonic_program_free.
unisonic_status unisonic_program_load(unisonic_graph *graph,
                                      unisonic_weights *weights,
                                      const unisonic_program_options *program_options,
                                      unisonic_program **program,
                                      unisonic_error **error);

// Describes a program into `info`, whose struct_size is set.
unisonic_status unisonic_program_get_info(unisonic_program *program,
                                          unisonic_program_info *info,
                                          unisonic_error **error);

// The plan of a program, as text for people, into a buffer: what unisonic_graph_plan gives. Waits for the call that
// runs the program, if one does.
unisonic_status unisonic_program_print(unisonic_program *program, unisonic_buffer **text, unisonic_error **error);

// Frees a program; NULL is fine.
unisonic_status unisonic_program_free(unisonic_program *program);

// An empty sequence, for this program alone. Free it with unisonic_sequence_free.
unisonic_status unisonic_sequence_new(unisonic_program *program, unisonic_sequence **sequence, unisonic_error **error);

// Rows that have been run; 0 if it is no sequence, or another thread uses it.
size_t unisonic_sequence_len(unisonic_sequence *sequence);

// Forgets all rows past the first `len`; what stays is as if nothing had followed it.
unisonic_status unisonic_sequence_truncate(unisonic_sequence *sequence, size_t len, unisonic_error **error);

// Frees a sequence; NULL is fine.
unisonic_status unisonic_sequence_free(unisonic_sequence *sequence);

// Appends rows to a sequence and gives what the program makes of those from index `first_output` on, as a tensor of a row each;
// no rows if `first_output` is at the end or behind it. `tokens` has an id for each row if the program takes tokens, `values` is
// a tensor of f32 rows if it takes such, and otherwise they are without length and NULL. `sequence` may be NULL: the rows are a
// sequence of their own, which is forgotten. Free the tensor with unisonic_tensor_free.
//
// After a failure the sequence is as it was before.
unisonic_status unisonic_program_run(unisonic_program *program,
                                     unisonic_sequence *sequence,
                                     const uint32_t *tokens,
                                     size_t tokens_len,
                                     unisonic_tensor *values,
                                     size_t first_output,
                                     unisonic_tensor **output,
                                     unisonic_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONIC_H */
