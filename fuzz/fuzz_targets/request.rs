//! The check is in `checks/request.rs`, which the tests of the server run over all regressions too.

#![no_main]

#[path = "../checks/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| request::check(bytes));
