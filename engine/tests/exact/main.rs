//! Reuse, speculation and batching change the time of an answer and not a bit of it.
//!
//! On a device that hashes ([`toy`]), where thousands of cases take no time, and on the native CPU with a
//! tiny model.
//!
//! | report | test |
//! |---|---|
//! | 1.01 llama.cpp #2838, 1.09 mistral.rs #1026 | `reuse::repeated_and_alternating_prompts_have_one_answer` |
//! | 1.03 llama.cpp #249 | `reuse::chunks_are_invisible_to_reuse` |
//! | 1.07 lattice #243 | `speculation::the_first_guess_is_checked` |
//! | 1.12 vLLM #44701 | `kv/key.rs`, `kv/tests.rs`: `salts_share_nothing` |
//! | 7.11 llama.cpp #20153 | `reuse::a_chat_runs_only_what_follows_the_first_difference` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod grammar;
mod long_runs;
mod picked;
mod product;
mod product_smollm2;
mod product_tiny;
mod random_schedules;
mod receipts;
mod requests;
mod reuse;
mod saved;
mod schedules;
mod schemas;
mod speculation;
mod stored;
mod toy;
