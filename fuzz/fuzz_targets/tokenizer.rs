//! The check is in `checks/tokenizer.rs`, which the tests of the engine run over all regressions too.

#![no_main]

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::tokenizer::check(bytes));
