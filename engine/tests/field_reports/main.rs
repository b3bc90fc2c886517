//! Faults that people reported of other runtimes when the same question got unlike answers, when tokens were chosen, and
//! when a prompt was kept for the next turn: each with the input that shows it and the right answer.
//!
//! | report | test |
//! |---|---|
//! | 1.01 llama.cpp #2838 | `unlike_answers::five_times_then_another_then_five_times`; `exact/reuse.rs` |
//! | 1.03 llama.cpp #249 | `unlike_answers::batch_sizes`; `exact/reuse.rs`: `chunks_are_invisible_to_reuse` |
//! | 1.04 llama.cpp #95 | `unlike_answers::thread_counts` |
//! | 1.05 aprender PR #1822 | `unlike_answers::q4_k_on_cpu_and_gpu_kernels` |
//! | 1.07 lattice #243 | `exact/speculation.rs`: `the_first_guess_is_checked` |
//! | 1.09 mistral.rs #1026 | `unlike_answers::a_prompt_comes_back_after_another` |
//! | 1.12 vLLM #44701 | `unlike_answers::a_salt_that_is_anothers_name`; `kv/key.rs`, for adapters too |
//! | 6.01 vLLM #5404 | `choices::ties_go_to_the_lowest_id` |
//! | 6.02 Camelid PR #534 | `choices::temperature_comes_after_truncation` |
//! | 6.03 llama.cpp PR #13344 | `choices::banned_tokens_are_no_part_of_a_deviation` |
//! | 6.05 mistral.rs #2095 | `choices::a_context_used_twice_has_finite_logits`, `choices::a_nan_is_named` |
//! | 6.06 lattice #312 | `choices::a_repeated_token_is_penalised_once` |
//! | 6.11 ollama #5044 | `choices::a_seed_leaves_the_temperature` |
//! | 6.14 llama.cpp #19699 | `choices::a_bias_decides_under_speculation` |
//! | 6.17 vLLM PR #11073 | `choices::log_probabilities_are_numbers_of_json` |
//! | 7.11 llama.cpp #20153 | `turns::only_what_follows_the_first_difference_is_run`; `exact/reuse.rs` |
//!
//! What does not apply as it was reported:
//!
//! - 1.05 asks for the product of dequantised weights as well: there is none, and its sums would have other bits. Both
//!   kinds of kernels are held against the oracle instead.
//! - 1.12: this engine has no adapters yet; their field of the key is tested.
//! - 6.02 wants both orders of temperature and truncation: there is one (docs/numerics.md "Sampling"), since a second would be a
//!   second meaning of each option.
//! - 6.06 has another answer on a GPU: sampling runs on the host, whatever the device.
//! - 6.08 (llama.cpp #7554) is the time that a grammar takes: a time is measured and not tested. To the sampler a grammar is a
//!   mask, and `sampling/tests.rs` holds choices under masks.
//! - The other rows of group 7 are about time and energy; so are `benches/results/`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod choices;
#[allow(dead_code, reason = "shared with tests/exact, of which this uses a part")]
#[path = "../exact/common.rs"]
mod common;
mod turns;
mod unlike_answers;
