//! What a report says of the model.

use std::path::Path;

use anyhow::Context;
use unisonic_core::format::GgufFile;

use super::results::{Model, ModelFile};
use crate::output::bytes_bar;
use crate::{digest, model};

/// Reads the facts off an open file; digests of files take their time and are made on request.
pub fn model_facts(file: &GgufFile, with_sha256: bool) -> anyhow::Result<Model> {
    let metadata = file.metadata();
    let word = |key| metadata.string(key).ok().flatten().map(str::to_owned);
    let facts = model::tensor_facts(file);
    let types = facts.types.iter().map(|(ty, count)| format!("{ty} {count}"));
    Ok(Model {
        name: word("general.name"),
        architecture: word("general.architecture").unwrap_or_default(),
        types: types.collect::<Vec<_>>().join(", "),
        parameters: facts.parameters,
        files: file.paths().map(|path| model_file(path, with_sha256)).collect::<Result<_, _>>()?,
    })
}

fn model_file(path: &Path, with_sha256: bool) -> anyhow::Result<ModelFile> {
    let metadata = path.metadata().with_context(|| format!("cannot read {}", path.display()))?;
    let sha256 = || {
        let bar = bytes_bar("hashing", metadata.len());
        let sha256 = digest::file_sha256(path, &bar);
        bar.finish_and_clear();
        sha256.map(|digest| digest.to_string())
    };
    let sha256 = with_sha256.then(sha256).transpose()?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(ModelFile { name, len_bytes: metadata.len(), sha256 })
}
