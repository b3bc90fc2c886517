//! How long a context the tests need, and whether it can be had.

use anyhow::{Context, bail};
use unisonic_core::format::GgufFile;

use super::measure::{self, DIGEST_PROMPT_TOKENS, DIGEST_TOKENS, Test};
use crate::model::Capacity;

/// The longest context that the model was made for, where its file says so in the usual way.
pub fn trained_len(file: &GgufFile) -> Option<u32> {
    let architecture = file.metadata().string("general.architecture").ok().flatten()?;
    file.metadata().u32(&format!("{architecture}.context_length")).ok().flatten()
}

/// Tokens that the digest's sequence needs room for.
const DIGEST_END: u32 = DIGEST_PROMPT_TOKENS + DIGEST_TOKENS + 1;

/// Whether the digest can be made: a model that was made for fewer tokens has none.
pub fn has_digest(trained: Option<u32>) -> bool {
    trained.is_none_or(|trained| trained >= DIGEST_END)
}

/// As long a context as the tests need, for a sequence at each depth.
pub fn capacity(tests: &[Test], context: Option<u32>, trained: Option<u32>) -> anyhow::Result<Capacity> {
    let digest = if has_digest(trained) { DIGEST_END.into() } else { 0 };
    let (longest, what, options) = tests.iter().map(|test| (test.end(), test)).fold(
        (digest, "the digest".to_owned(), String::new()),
        |(longest, what, options), (end, test)| match end > longest {
            true => {
                let work = test.work.as_str();
                let depth = if test.depth > 0 { "--depth or " } else { "" };
                let what = format!("--depth {} with --{work} {}", test.depth, test.tokens);
                (end, what, format!("; lower {depth}--{work}"))
            }
            false => (longest, what, options),
        },
    );
    if let Some(trained) = trained.filter(|&trained| longest > trained.into()) {
        bail!("{what} needs a context of {longest} tokens, but the model was made for {trained}{options}");
    }
    if let Some(context) = context.filter(|&context| longest > context.into()) {
        bail!("{what} needs a context of {longest} tokens; raise --context {context}, or leave it out");
    }
    let needed = u32::try_from(longest).context("no context is that long")?;
    Ok(Capacity {
        context_len: Some(context.unwrap_or(needed)),
        sequences: sequences(tests).context("too many sequences")?,
        max_outputs: tests.iter().map(Test::outputs).max().unwrap_or(1),
    })
}

/// Of all depths; none if nobody can count them.
fn sequences(tests: &[Test]) -> Option<u32> {
    let depths = measure::depths(tests);
    depths.into_iter().try_fold(0u32, |all, depth| all.checked_add(measure::sequences(tests, depth)))
}

#[cfg(test)]
mod tests {
    use super::super::measure::Work;
    use super::*;

    fn decode(tokens: u32, depth: u32) -> Test {
        Test { work: Work::Decode, tokens, depth }
    }

    #[test]
    fn the_context_is_what_the_tests_need() {
        let tests = [decode(64, 0), decode(64, 512)];
        let capacity = capacity(&tests, None, Some(8192)).expect("fits");
        assert_eq!((capacity.context_len, capacity.sequences), (Some(576), 2));
        let capacity = super::capacity(&[decode(1, 0)], None, None).expect("fits");
        assert_eq!(capacity.context_len, Some(81), "the digest needs a place");
    }

    #[test]
    fn a_context_that_is_too_short_names_the_option() {
        let says = |context, trained| {
            capacity(&[decode(64, 512)], context, trained).map(|_| ()).unwrap_err().to_string()
        };
        let message = says(Some(512), Some(8192));
        assert!(
            message.contains("--depth 512 with --decode 64") && message.contains("raise --context 512"),
            "{message}"
        );
        let message = says(None, Some(512));
        assert!(message.contains("576") && message.contains("made for 512"), "{message}");
        assert!(message.contains("lower --depth or --decode"), "{message}");
    }

    #[test]
    fn a_model_for_short_texts_has_no_digest() {
        assert!(has_digest(None) && has_digest(Some(81)) && !has_digest(Some(80)));
        let capacity = capacity(&[decode(8, 0)], None, Some(80)).expect("fits");
        assert_eq!(capacity.context_len, Some(8));
    }
}
