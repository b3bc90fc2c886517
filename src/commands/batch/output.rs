//! The output: a line an answer, each written whole; a batch that was stopped goes on where it was.
//!
//! Beside an unfinished output lies `OUT.unfinished`, which says what is being made. It is written before the
//! output is begun and removed when that is complete, so that an output without it is complete or somebody
//! else's. The lock on the output keeps a second process away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use unisonic_engine::Digest;
use unisonic_engine::sampling::SamplerOptions;

/// All that the lines of an output depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    pub unisonic_batch: u32,
    pub input_sha256: Digest,
    pub model_sha256: Digest,
    pub profile: String,
    pub context_len: u32,
    pub max_tokens: Option<u32>,
    pub sampler: SamplerOptions,
    pub ordered: bool,
}

/// An output that is being written.
pub struct Output {
    path: PathBuf,
    file: File,
    /// Lines of the input that have an answer in it.
    done: BTreeSet<u64>,
    /// Of those that wait for one before them, if the output is in order.
    held: BTreeMap<u64, Option<String>>,
    ordered: bool,
}

impl Output {
    /// Begins an output, or goes on with one of the same origin.
    pub fn open(path: &Path, origin: &Origin) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .append(true)
            .open(path)
            .with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process is writing {}", path.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let unfinished = unfinished(path);
        let len_bytes = file.metadata().with_context(cannot)?.len();
        let done = match fs::read(&unfinished) {
            Ok(text) if len_bytes > 0 => {
                same_origin(&text, origin, path, &unfinished)?;
                keep_whole_lines(&mut file, path)?
            }
            // Whoever was killed in the middle of this has not written a line.
            Ok(_) => begin(&unfinished, origin)?,
            Err(error) if error.kind() == ErrorKind::NotFound && len_bytes == 0 => {
                begin(&unfinished, origin)?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{} is there already, and is complete or was not written by `unisonic batch`; remove it, or give \
                 another name",
                path.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", unfinished.display()));
            }
        };
        Ok(Self { path: path.to_owned(), file, done, held: BTreeMap::new(), ordered: origin.ordered })
    }

    /// Lines of the input that have an answer.
    pub fn done(&self) -> &BTreeSet<u64> {
        &self.done
    }

    /// Says that a line of the input will get an answer. Lines come in order.
    pub fn expect(&mut self, line: u64) {
        if self.ordered {
            self.held.insert(line, None);
        }
    }

    /// Lines that will get an answer, or wait for one before them; of an output that is in order.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Adds the answer to an expected line.
    pub fn add(&mut self, line: u64, id: Option<Json>, answer: Json) -> anyhow::Result<()> {
        let mut members = json!({ "line": line });
        if let (Json::Object(members), Json::Object(answer)) = (&mut members, answer) {
            members.extend(id.map(|id| ("id".to_owned(), id)));
            members.extend(answer);
        }
        let text = format!("{members}\n");
        if !self.ordered {
            return self.append(&text);
        }
        self.held.insert(line, Some(text));
        while let Some(first) = self.held.first_entry()
            && let Some(text) = first.get().clone()
        {
            first.remove();
            self.append(&text)?;
        }
        Ok(())
    }

    /// All lines have answers.
    pub fn finish(self) -> anyhow::Result<()> {
        let synced = self.file.sync_all();
        let removed = synced.and_then(|()| fs::remove_file(unfinished(&self.path)));
        removed.with_context(|| format!("cannot finish {}", self.path.display()))
    }

    /// In one call, so that a process that is killed leaves whole lines, if the system does.
    fn append(&mut self, text: &str) -> anyhow::Result<()> {
        self.file.write_all(text.as_bytes()).with_context(|| {
            format!("cannot write {}; the same command goes on with it", self.path.display())
        })
    }
}

/// What an unfinished output has beside it.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Says what an output will be of; no line of it is there yet.
fn begin(unfinished: &Path, origin: &Origin) -> anyhow::Result<BTreeSet<u64>> {
    let text = format!("{}\n", serde_json::to_string(origin)?);
    let written = File::create(unfinished).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}", unfinished.display()))?;
    Ok(BTreeSet::new())
}

/// Refuses to go on with what had another origin, and says what differs.
fn same_origin(text: &[u8], origin: &Origin, path: &Path, unfinished: &Path) -> anyhow::Result<()> {
    let before: Origin = serde_json::from_slice(text).with_context(|| {
        format!("{} is damaged; remove it and {}, and start again", unfinished.display(), path.display())
    })?;
    let (before, now) = (serde_json::to_value(before)?, serde_json::to_value(origin)?);
    let (Json::Object(before), Json::Object(now)) = (before, now) else { return Ok(()) };
    // Another model or input has other options with it.
    let first = ["model_sha256", "input_sha256"].into_iter().filter_map(|name| now.get_key_value(name));
    for (name, now) in first.chain(&now) {
        let before = before.get(name).unwrap_or(&Json::Null);
        if before != now {
            let what = match name.as_str() {
                "input_sha256" => "the input has changed",
                "model_sha256" => "the model is another",
                _ => "options have changed",
            };
            bail!(
                "{} is unfinished, and {what}: its {name} was {before}, but now is {now}. Go on with what it was begun \
                 with, or remove it and {}, and start again",
                path.display(),
                unfinished.display()
            );
        }
    }
    Ok(())
}

/// Cuts off what comes after the last whole line; the numbers of the lines.
fn keep_whole_lines(file: &mut File, path: &Path) -> anyhow::Result<BTreeSet<u64>> {
    #[derive(Deserialize)]
    struct Numbered {
        line: u64,
    }
    let cannot = || format!("cannot read {}", path.display());
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text)).with_context(cannot)?;
    let mut done = BTreeSet::new();
    let mut whole_bytes = 0;
    for (index, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let is_last = whole_bytes + line.len() == text.len();
        let number = serde_json::from_slice::<Numbered>(line).ok().filter(|_| line.ends_with(b"\n"));
        match number {
            Some(Numbered { line }) if done.insert(line) => {}
            // A machine that stops may leave a last line with an end but without its middle.
            None if is_last => break,
            _ => bail!(
                "line {} of {} is not an answer of this batch, or is there twice; it was changed since. Remove it and \
                 {}, and start again",
                index + 1,
                path.display(),
                unfinished(path).display()
            ),
        }
        whole_bytes += line.len();
    }
    if whole_bytes < text.len() {
        file.set_len(whole_bytes as u64).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(ordered: bool) -> Origin {
        Origin {
            unisonic_batch: 1,
            input_sha256: Digest::of(b"in"),
            model_sha256: Digest::of(b"model"),
            profile: "u1".into(),
            context_len: 64,
            max_tokens: None,
            sampler: SamplerOptions::default(),
            ordered,
        }
    }

    fn error_of(path: &Path, origin: &Origin) -> String {
        format!("{:#}", Output::open(path, origin).err().expect("an error"))
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.jsonl");
        (folder, path)
    }

    #[test]
    fn a_torn_line_is_cut_off_wherever_it_is_torn() {
        let (folder, path) = place();
        let whole = "{\"line\":1}\n{\"id\":\"a\",\"line\":3}\n";
        for tail in ["", "{", "{\"line\":2", "{\"line\":2}", "\0\0\0\0", "{\"line\"\0\0\n"] {
            let mut output = Output::open(&path, &origin(false)).expect("an output");
            output.add(1, None, json!({})).expect("added");
            drop(output);
            fs::write(&path, format!("{whole}{tail}")).expect("a file");
            let mut output = Output::open(&path, &origin(false)).expect("it goes on");
            assert_eq!(output.done(), &BTreeSet::from([1, 3]), "{tail:?}");
            output.add(2, Some("b".into()), json!({ "x": 1 })).expect("added");
            output.finish().expect("finished");
            let text = fs::read_to_string(&path).expect("a text");
            let last: Json =
                serde_json::from_str(text.strip_prefix(whole).expect("the lines before")).expect("JSON");
            assert_eq!(last, json!({ "line": 2, "id": "b", "x": 1 }));
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn what_is_complete_or_foreign_is_left_alone() {
        let (folder, path) = place();
        fs::write(&path, "mine\n").expect("a file");
        assert!(error_of(&path, &origin(false)).contains("is there already"));
        assert_eq!(fs::read_to_string(&path).expect("a text"), "mine\n");
        fs::remove_file(&path).expect("removed");

        drop(Output::open(&path, &origin(false)).expect("an output"));
        for text in ["mine\n{\"line\":1}\n", "{\"line\":1}\n{\"line\":1}\n"] {
            fs::write(&path, text).expect("a file");
            assert!(error_of(&path, &origin(false)).contains("line "), "{text}");
        }
        assert!(error_of(&folder.path().join("no/such/file"), &origin(false)).contains("no/such/file"));
    }

    #[test]
    fn another_origin_is_refused_by_name() {
        let (_folder, path) = place();
        let mut first = Output::open(&path, &origin(false)).expect("an output");
        first.add(1, None, json!({})).expect("added");
        assert!(error_of(&path, &origin(false)).contains("another process"));
        drop(first);
        let check = |change: &dyn Fn(&mut Origin), said: &str| {
            let mut other = origin(false);
            change(&mut other);
            let error = error_of(&path, &other);
            assert!(error.contains(said), "{error}");
        };
        check(&|origin| origin.input_sha256 = Digest::of(b"other"), "the input has changed");
        check(&|origin| origin.model_sha256 = Digest::of(b"other"), "the model is another");
        let other_model = |origin: &mut Origin| {
            (origin.model_sha256, origin.context_len) = (Digest::of(b"other"), 32);
        };
        check(&other_model, "the model is another");
        check(&|origin| origin.ordered = true, "ordered");
        check(&|origin| origin.sampler.seed = 1, "sampler");
        Output::open(&path, &origin(false)).expect("it goes on");
    }

    #[test]
    fn what_was_killed_before_its_first_line_begins_anew() {
        let (_folder, path) = place();
        for text in ["", "{\"unisonic", "{}"] {
            fs::write(unfinished(&path), text).expect("a file");
            fs::write(&path, "").expect("a file");
            let mut output = Output::open(&path, &origin(false)).expect("an output");
            output.add(1, None, json!({})).expect("added");
            drop(output);
            let output = Output::open(&path, &origin(false)).expect("it goes on");
            assert_eq!(output.done(), &BTreeSet::from([1]));
        }
    }

    #[test]
    fn in_order_lines_wait_for_those_before_them() {
        let (_folder, path) = place();
        let mut output = Output::open(&path, &origin(true)).expect("an output");
        [2, 3, 5].into_iter().for_each(|line| output.expect(line));
        let lines = || fs::read_to_string(&path).expect("a text").lines().count();
        for (line, right) in [(5, 0), (2, 1), (3, 3)] {
            output.add(line, None, json!({})).expect("added");
            assert_eq!(lines(), right);
        }
        assert_eq!(output.held(), 0);
    }
}
