//! What the hub's tools share through the environment: where the cache is, and who asks.

use std::env;
use std::path::PathBuf;

use hf_hub::Cache;

use super::error::PullError;

/// The hub's cache: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub`.
pub fn cache() -> Result<Cache, PullError> {
    match env::var_os("HF_HUB_CACHE").filter(|path| !path.is_empty()) {
        Some(path) => Ok(Cache::new(PathBuf::from(path))),
        None => home_cache().ok_or(PullError::NoHome),
    }
}

/// The token of `HF_TOKEN`, else of the file that `hf auth login` writes.
pub fn token() -> Result<Option<String>, PullError> {
    if let Ok(token) = env::var("HF_TOKEN") {
        return checked(token, "HF_TOKEN");
    }
    match home_cache().and_then(|cache| cache.token()) {
        Some(token) => checked(token, "the hub's token file"),
        None => Ok(None),
    }
}

/// What cannot be part of a request is refused here, before an error could show it.
fn checked(token: String, from: &'static str) -> Result<Option<String>, PullError> {
    match token.trim() {
        "" => Ok(None),
        token if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(token.to_owned())),
        _ => Err(PullError::Token { from }),
    }
}

/// `Cache::from_env` panics where there is neither `HF_HOME` nor a home folder.
fn home_cache() -> Option<Cache> {
    (env::var("HF_HOME").is_ok() || env::home_dir().is_some()).then(Cache::from_env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_that_no_error_shows() {
        assert_eq!(checked(" hf_abc\n".into(), "HF_TOKEN").unwrap().as_deref(), Some("hf_abc"));
        assert_eq!(checked("\n".into(), "HF_TOKEN").unwrap(), None);
        let error = checked("hf_a\r\nHost: b".into(), "HF_TOKEN").unwrap_err();
        assert!(!error.to_string().contains("hf_a"), "{error}");
    }
}
