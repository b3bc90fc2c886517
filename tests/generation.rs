//! Generation as its callers rely on it, beside the bits of its results.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::cell::Cell;
use std::ops::ControlFlow;

use unisonic_engine::{EngineOptions, GenerateOptions, Stop, generate};

/// Who waits for a long prompt can stop it: no token comes, and what was read stays.
#[test]
fn a_prompt_can_be_cancelled_between_its_chunks() {
    let options = EngineOptions { chunk_rows: 8, ..EngineOptions::default() };
    let mut engine = common::load(&common::quant("Q4_0"), false, &options);
    let prompt = common::some_ids(40, 259);
    let mut session = engine.session();
    let asked = Cell::new(0);
    let second_time = || {
        asked.set(asked.get() + 1);
        asked.get() == 2
    };
    let options =
        GenerateOptions { max_tokens: Some(1), cancelled: Some(&second_time), ..GenerateOptions::default() };
    let mut chosen = 0;
    let completion = generate(&mut engine, &mut session, &prompt, options, &|_| false, &mut |_, _| {
        chosen += 1;
        ControlFlow::Continue(())
    });
    let completion = completion.unwrap();
    assert_eq!((completion.token_ids.len(), completion.stop, chosen), (0, Stop::Cancelled, 0));
    assert_eq!(session.tokens(), &prompt[..16]);
}
