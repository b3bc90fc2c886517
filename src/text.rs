//! Texts that commands are given: as an argument, as a file, or on stdin under the name `-`.

use std::io::Read;
use std::path::Path;

use anyhow::Context;

/// An argument, or what stdin holds if it is `-`.
pub fn argument(text: &str) -> anyhow::Result<String> {
    if text == "-" { stdin() } else { Ok(text.to_owned()) }
}

/// What a file holds, or stdin if its name is `-`.
pub fn file(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        return stdin();
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read the text of {}", path.display()))
}

fn stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read a text from stdin")?;
    Ok(text)
}
