//! Models in several files, as `llama-gguf-split` and gguf-py write them.
//!
//! Every shard has `split.no` (from 0), `split.count` and `split.tensors.count`; the first has all other metadata too.
//! File names end in the number from 1 and the count: `-00002-of-00003.gguf`. That is checked for all shards before
//! any data is read. Shards of two models of equal shape and equal `general.*` cannot be told apart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::super::{Metadata, MetadataError, Value, required};
use super::file::{Opened, Shard};
use super::subject::shown;
use super::{ALIGNMENT_KEY, FormatError, ShardError};

pub(super) const NO_KEY: &str = "split.no";
pub(super) const COUNT_KEY: &str = "split.count";
pub(super) const TENSOR_COUNT_KEY: &str = "split.tensors.count";
/// File names have five digits.
pub(super) const MAX_SHARDS: u32 = 99_999;

/// How the name of shard `no` (from 0) of `count` ends.
pub(super) fn suffix(no: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", no + 1)
}

/// Given any file of a set, all of it in order; given a single file, that one.
pub(super) fn open_set(given: Opened) -> Result<Vec<Opened>, FormatError> {
    let error = |problem| FormatError::Shards { path: given.shard.path.clone(), problem };
    let count = given.header.metadata.u32(COUNT_KEY).map_err(|e| error(e.into()))?.unwrap_or(1);
    if count <= 1 {
        return Ok(vec![given]);
    }
    let (given_no, paths) = locate(&given, count).map_err(error)?;
    let mut given = Some(given);
    let mut set: Vec<Opened> = Vec::new();
    for (no, path) in (0..).zip(&paths) {
        let opened = match given.take_if(|_| no == given_no) {
            Some(given) => given,
            None => Shard::open(path)?,
        };
        let first = set.first().unwrap_or(&opened);
        check_shard(&opened, first, no)
            .map_err(|problem| FormatError::Shards { path: path.clone(), problem })?;
        set.push(opened);
    }
    check_tensors(&set)?;
    Ok(set)
}

/// The number of the given shard and the paths of all of them.
fn locate(given: &Opened, count: u32) -> Result<(u32, Vec<PathBuf>), ShardError> {
    let no = integer(&given.header.metadata, NO_KEY)?;
    if no >= count || count > MAX_SHARDS {
        return Err(ShardError::Number { no, count });
    }
    let path = &given.shard.path;
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(stem) = name.and_then(|name| name.strip_suffix(&suffix(no, count))) else {
        return Err(ShardError::Name { no, count, suffix: suffix(no, count) });
    };
    let paths: Vec<_> =
        (0..count).map(|i| path.with_file_name(format!("{stem}{}", suffix(i, count)))).collect();
    let missing: Vec<_> = paths.iter().filter(|path| !path.exists()).cloned().collect();
    if missing.is_empty() { Ok((no, paths)) } else { Err(ShardError::Missing { count, missing }) }
}

fn integer(metadata: &Metadata, key: &'static str) -> Result<u32, MetadataError> {
    required(metadata.u32(key), key, "an unsigned 32-bit integer")
}

/// Whether a shard belongs to the set of the first one, at this place.
fn check_shard(shard: &Opened, first: &Opened, no: u32) -> Result<(), ShardError> {
    let (metadata, of_first) = (&shard.header.metadata, &first.header.metadata);
    let differs = |key: &str, found: String, other: String| ShardError::Differs {
        key: key.to_owned(),
        found,
        other,
        other_path: first.shard.path.clone(),
    };
    for key in [COUNT_KEY, TENSOR_COUNT_KEY] {
        let (found, other) = (integer(metadata, key)?, integer(of_first, key)?);
        if found != other {
            return Err(differs(key, found.to_string(), other.to_string()));
        }
    }
    let by_metadata = integer(metadata, NO_KEY)?;
    if by_metadata != no {
        return Err(ShardError::Renamed { by_name: no + 1, by_metadata: u64::from(by_metadata) + 1 });
    }
    // What names the model, where later shards repeat it. Each file has its own alignment.
    for (key, found) in metadata.iter().filter(|(key, _)| key.starts_with("general.")) {
        match of_first.get(key) {
            Some(other) if other != found && key != ALIGNMENT_KEY => {
                return Err(differs(key, brief(found), brief(other)));
            }
            _ => {}
        }
    }
    Ok(())
}

fn brief(value: &Value) -> String {
    match value {
        Value::String(s) => format!("`{}`", shown(s)),
        Value::U32(n) => n.to_string(),
        other => format!("another value ({})", other.type_name()),
    }
}

/// Whether the tensors of all shards are as many as the set has, each once.
fn check_tensors(set: &[Opened]) -> Result<(), FormatError> {
    let mut holders: HashMap<&str, &Path> = HashMap::new();
    for Opened { shard, header } in set {
        for tensor in &header.tensors {
            if let Some(other) = holders.insert(&tensor.name, &shard.path) {
                let (tensor, other_path) = (tensor.name.clone(), other.to_owned());
                let problem = ShardError::DuplicateTensor { tensor, other_path };
                return Err(FormatError::Shards { path: shard.path.clone(), problem });
            }
        }
    }
    let Some(first) = set.first() else { return Ok(()) };
    let error = |problem| FormatError::Shards { path: first.shard.path.clone(), problem };
    let expected = integer(&first.header.metadata, TENSOR_COUNT_KEY).map_err(|e| error(e.into()))?;
    let found = holders.len() as u64;
    if found == u64::from(expected) {
        Ok(())
    } else {
        Err(error(ShardError::TensorCount { found, expected }))
    }
}
