//! What the hub's tools share through the environment: where the cache is, whom to ask, and who asks.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use hf_hub::Cache;

use super::address::Endpoint;
use super::error::PullError;

const HUB: &str = "https://huggingface.co";

/// The hub's cache: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub`.
pub fn cache() -> Result<Cache, PullError> {
    let cache = variable("HF_HUB_CACHE").map(|path| Cache::new(PathBuf::from(path)));
    cache.or_else(home_cache).ok_or(PullError::NoHome)
}

/// The server of `--mirror`, else of `HF_ENDPOINT`, else the hub.
pub fn mirror(given: Option<&str>) -> Result<Endpoint, PullError> {
    let (from, address) = match (given, variable("HF_ENDPOINT")) {
        (Some(given), _) => ("--mirror", given.to_owned()),
        // What is lost here could not be part of an address either.
        (None, Some(set)) => ("HF_ENDPOINT", set.to_string_lossy().into_owned()),
        (None, None) => ("", HUB.to_owned()),
    };
    Endpoint::parse(&address).map_err(|problem| PullError::Mirror { from, problem })
}

/// The token of `HF_TOKEN`, else of the file that `hf auth login` writes.
pub fn token() -> Result<Option<String>, PullError> {
    const FROM: &str = "HF_TOKEN";
    if let Some(token) = env::var_os(FROM) {
        return checked(token.into_string().map_err(|_| PullError::Token { from: FROM })?, FROM);
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

/// `Cache::from_env` takes an empty `HF_HOME` for a folder, and panics where there is neither that nor a home folder.
fn home_cache() -> Option<Cache> {
    let home = match variable("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => env::home_dir().filter(|home| !home.as_os_str().is_empty())?.join(".cache/huggingface"),
    };
    Some(Cache::new(home.join("hub")))
}

/// A variable that is set, and not to nothing.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
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
