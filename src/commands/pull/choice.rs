//! Which of a repository's files are meant: sets of shards as one model, and the model that a name or a quantisation
//! picks.

use indicatif::DecimalBytes;

use super::error::PullError;
use super::reference::Reference;

/// A file as the hub announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Path inside the repository; [`super::reference::is_plain_path`] holds.
    pub path: String,
    pub len_bytes: Option<u64>,
    /// 64 lower-case hexadecimal digits.
    pub sha256: Option<String>,
}

/// One file, or all shards of a set in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub files: Vec<RemoteFile>,
    /// Shards that the names promise and the repository lacks.
    missing: u32,
}

impl Model {
    /// The path that stands for the model: the first file's.
    pub fn path(&self) -> &str {
        self.files.first().map_or("", |file| &file.path)
    }

    /// Size of all files; none where the hub leaves one out.
    pub fn len_bytes(&self) -> Option<u64> {
        self.files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.len_bytes?))
    }

    /// Vision towers and importance matrices go with a model and are none.
    fn is_companion(&self) -> bool {
        let name = last_part(self.path()).to_ascii_lowercase();
        name.starts_with("mmproj") || name.contains("imatrix")
    }
}

/// The GGUF models among files, sorted by path.
pub fn models(files: &[RemoteFile]) -> Vec<Model> {
    let mut files: Vec<&RemoteFile> = files.iter().filter(|file| is_gguf(&file.path)).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    let mut models: Vec<Model> = Vec::new();
    let mut open_set = None;
    for file in files {
        let shard = Shard::of(&file.path);
        let set = shard.as_ref().map(|shard| (shard.stem, shard.count));
        match models.last_mut() {
            Some(model) if set.is_some() && set == open_set => model.files.push(file.clone()),
            _ => models.push(Model { files: vec![file.clone()], missing: 0 }),
        }
        open_set = set;
        if let (Some(model), Some(shard)) = (models.last_mut(), shard) {
            let found = u32::try_from(model.files.len()).unwrap_or(u32::MAX);
            model.missing = shard.count.saturating_sub(found);
        }
    }
    models
}

/// The model that is meant.
pub fn choose(models: &[Model], reference: &Reference) -> Result<Model, PullError> {
    let repo = &reference.repo;
    if models.is_empty() {
        return Err(PullError::NoGguf { repo: repo.clone() });
    }
    let matches = match &reference.wanted {
        None => models.iter().filter(|model| !model.is_companion()).collect(),
        Some(wanted) => matching(models, wanted),
    };
    let wanted = || reference.wanted.clone().unwrap_or_default();
    match matches.as_slice() {
        [model] if model.missing > 0 => {
            Err(PullError::MissingShards { path: model.path().to_owned(), missing: model.missing })
        }
        [model] => Ok((*model).clone()),
        [] => {
            Err(PullError::NoFile { repo: repo.clone(), wanted: wanted(), list: list(repo, models.iter()) })
        }
        several => Err(PullError::Several {
            reference: reference.to_string(),
            list: list(repo, several.iter().copied()),
        }),
    }
}

/// By path, by last part of the path, or by quantisation: the first of these that finds something.
fn matching<'a>(models: &'a [Model], wanted: &str) -> Vec<&'a Model> {
    let by = |test: &dyn Fn(&str) -> bool| -> Vec<&'a Model> {
        models.iter().filter(|model| model.files.iter().any(|file| test(&file.path))).collect()
    };
    let mut found = by(&|path| path == wanted);
    if found.is_empty() {
        found = by(&|path| last_part(path) == wanted);
    }
    if found.is_empty() {
        found = by(&|path| carries(path, wanted));
        found.retain(|model| !model.is_companion());
    }
    found
}

/// Whether a path holds a quantisation's name: whole, in any case, so that `Q4_K` is not in `q4_k_m` and `Q4_0` not in
/// `IQ4_0`.
fn carries(path: &str, quantisation: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let quantisation = quantisation.to_ascii_lowercase();
    path.match_indices(&quantisation).any(|(start, found)| {
        let before = path.get(..start).and_then(|text| text.chars().next_back());
        let after = path.get(start + found.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// One line a model: what to type, and the size.
fn list<'a>(repo: &str, models: impl Iterator<Item = &'a Model>) -> String {
    let line = |model: &Model| {
        let size =
            model.len_bytes().map_or(String::new(), |len| format!("{:>12}", DecimalBytes(len).to_string()));
        let shards = match model.files.len() {
            1 => String::new(),
            count => format!("  ({count} files)"),
        };
        format!("\n{size}  unisonic pull {}{shards}", quoted(&format!("{repo}:{}", model.path())))
    };
    models.map(line).collect()
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,+@%=".contains(c);
    match argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

fn is_gguf(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".gguf")
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The parts of a shard's name, `STEM-00002-of-00003.gguf`.
struct Shard<'a> {
    stem: &'a str,
    count: u32,
}

impl<'a> Shard<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let (rest, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let five_digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        (five_digits(number) && five_digits(count)).then_some(())?;
        Some(Self { stem, count: count.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        let file =
            |path: &&str| RemoteFile { path: path.to_string(), len_bytes: Some(1_500_000), sha256: None };
        paths.iter().map(file).collect()
    }

    fn chosen(paths: &[&str], reference: &str) -> Result<Vec<String>, PullError> {
        let model = choose(&models(&files(paths)), &reference.parse().unwrap())?;
        Ok(model.files.into_iter().map(|file| file.path).collect())
    }

    const SEVERAL: &[&str] = &[
        "README.md",
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "m-IQ4_NL.gguf",
        "q8_0/m-q8_0-00002-of-00002.gguf",
        "q8_0/m-q8_0-00001-of-00002.gguf",
        "mmproj-m-Q8_0.gguf",
    ];

    #[test]
    fn the_only_model_needs_no_name() {
        assert_eq!(
            chosen(&["a.txt", "m.gguf", "mmproj-f16.gguf", "imatrix.gguf"], "o/n").unwrap(),
            ["m.gguf"]
        );
        assert_eq!(chosen(&["m.gguf", "m.gguf"], "o/n").unwrap(), ["m.gguf"]);
        assert!(matches!(chosen(&["a.txt"], "o/n"), Err(PullError::NoGguf { .. })));
    }

    #[test]
    fn several_models_are_listed_with_what_to_type() {
        let error = chosen(SEVERAL, "o/n").unwrap_err().to_string();
        assert!(error.contains("1.50 MB  unisonic pull o/n:m-Q4_K_M.gguf\n"), "{error}");
        assert!(
            error.contains("3.00 MB  unisonic pull o/n:q8_0/m-q8_0-00001-of-00002.gguf  (2 files)"),
            "{error}"
        );
        assert!(!error.contains("README") && !error.contains("mmproj"), "{error}");
    }

    #[test]
    fn what_to_type_is_quoted_for_the_shell() {
        let error = chosen(&["a b;c.gguf", "d'$(e).gguf"], "o/n").unwrap_err().to_string();
        assert!(error.contains("pull 'o/n:a b;c.gguf'\n"), "{error}");
        assert!(error.contains(r"pull 'o/n:d'\''$(e).gguf'"), "{error}");
    }

    #[test]
    fn a_quantisation_picks_the_file_that_carries_all_of_it() {
        assert_eq!(chosen(SEVERAL, "o/n:q4_k_m").unwrap(), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen(SEVERAL, "o/n:iq4_nl").unwrap(), ["m-IQ4_NL.gguf"]);
        for none in ["o/n:Q4_K", "o/n:Q4_NL", "o/n:Q2_K"] {
            assert!(matches!(chosen(SEVERAL, none), Err(PullError::NoFile { .. })), "{none}");
        }
        let several = chosen(&["a-Q8_0.gguf", "b_Q8_0.gguf"], "o/n:Q8_0");
        assert!(matches!(several, Err(PullError::Several { .. })));
    }

    #[test]
    fn any_shard_means_the_set() {
        let set = ["q8_0/m-q8_0-00001-of-00002.gguf", "q8_0/m-q8_0-00002-of-00002.gguf"];
        for name in ["o/n:Q8_0", "o/n:m-q8_0-00002-of-00002.gguf", "o/n:q8_0/m-q8_0-00001-of-00002.gguf"] {
            assert_eq!(chosen(SEVERAL, name).unwrap(), set, "{name}");
        }
        let lacking = chosen(&["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], "o/n");
        assert!(matches!(lacking, Err(PullError::MissingShards { missing: 1, .. })));
    }

    #[test]
    fn a_name_goes_before_a_quantisation() {
        assert_eq!(chosen(SEVERAL, "o/n:mmproj-m-Q8_0.gguf").unwrap(), ["mmproj-m-Q8_0.gguf"]);
        let error = chosen(SEVERAL, "o/n:no-such.gguf").unwrap_err().to_string();
        assert!(error.contains("no-such.gguf") && error.contains("m-Q4_K_S.gguf"), "{error}");
    }
}
