//! `--dir`: what is in a folder is its owner's, and stays as it is.

use super::*;

/// The hidden name of an unfinished file or its lock.
fn hidden(name: &str, bytes: &[u8], ending: &str) -> String {
    format!(".{name}.{}.{ending}", &sha256(bytes)[..12])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let user = User::new();
    let server = Hub::start(&[("m.gguf", b"x")], Faults::default());
    let file = user.home.path().join("file");
    fs::write(&file, b"").unwrap();
    let dir = file.join("models");
    failure(
        &user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]),
        1,
        &["cannot write", "file/models"],
    );
}

#[test]
fn a_folder_gets_the_file_and_keeps_what_is_another() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("sub folder/m.gguf", &model)], Faults::default());
    let dir = user.home.path().join("new/models");
    let args = ["--dir", dir.to_str().unwrap(), REPO];
    assert_eq!(path(&user.pull(&server, &args)), dir.join("m.gguf"));
    assert_eq!(fs::read(dir.join("m.gguf")).unwrap(), model);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(path(&user.pull(&server, &args)), dir.join("m.gguf"));
    assert_eq!(server.requests("/storage/").len(), 1);

    fs::write(dir.join("m.gguf"), b"mine").unwrap();
    failure(&user.pull(&server, &args), 1, &["m.gguf is there already and is another file"]);
    assert_eq!(fs::read(dir.join("m.gguf")).unwrap(), b"mine");
    assert!(!user.home.path().join("hf").exists());
}

#[test]
fn other_files_of_similar_names_are_left_alone() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let dir = user.home.path();
    let others = ["m.gguf.lock", "m.gguf.part"];
    for name in others {
        fs::write(dir.join(name), "mine").unwrap();
    }
    path(&user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]));
    assert_eq!(names(dir), ["m.gguf", "m.gguf.lock", "m.gguf.part"]);
    for name in others {
        assert_eq!(fs::read(dir.join(name)).unwrap(), b"mine");
    }
}

#[cfg(unix)]
#[test]
fn links_are_not_written_through() {
    use std::os::unix::fs::symlink;
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let victim = user.home.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let links = [hidden("m.gguf", &model, "part"), hidden("m.gguf", &model, "lock"), "m.gguf".to_owned()];
    for (name, to) in links.iter().zip(["victim", "victim", "nowhere"]) {
        let dir = user.home.path().join(format!("in{name}"));
        fs::create_dir(&dir).unwrap();
        symlink(user.home.path().join(to), dir.join(name)).unwrap();
        let output = user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]);
        failure(&output, 1, &[name, "is not a regular file"]);
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert_eq!(names(&dir), [name.as_str()]);
    }
    assert!(!user.home.path().join("nowhere").exists());
    // One to the right file is used.
    fs::write(&victim, &model).unwrap();
    let dir = user.home.path().join("right");
    fs::create_dir(&dir).unwrap();
    symlink(&victim, dir.join("m.gguf")).unwrap();
    path(&user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_waited_for() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let dir = user.home.path();
    for name in ["m.gguf".to_owned(), hidden("m.gguf", &model, "part"), hidden("m.gguf", &model, "lock")] {
        assert!(Command::new("mkfifo").arg(dir.join(&name)).status().unwrap().success());
        let output = user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]);
        failure(&output, 1, &[&name, "is not a regular file"]);
        fs::remove_file(dir.join(&name)).unwrap();
    }
}

#[test]
fn a_whole_file_needs_no_lock() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let dir = user.home.path();
    fs::write(dir.join("m.gguf"), &model).unwrap();
    // As in a folder that cannot be written, which root can.
    fs::create_dir(dir.join(hidden("m.gguf", &model, "lock"))).unwrap();
    path(&user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]));

    path(&user.pull(&server, &[REPO]));
    let lock = user.blob(&model).with_extension("lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    path(&user.pull(&server, &[REPO]));
}

#[test]
fn files_of_one_name_have_parts_of_their_own() {
    let (user, model, other) = (User::new(), model(), data("gguf/all-types.gguf"));
    let faults = Faults { cut_first_after: Some(1000), ..Faults::default() };
    let server = Hub::start(&[("a/m.gguf", &model), ("b/m.gguf", &other)], faults);
    let dir = user.home.path().join("models");
    let pull = |name| user.pull(&server, &["--dir", dir.to_str().unwrap(), &format!("{REPO}:{name}")]);
    failure(&pull("a/m.gguf"), 1, &["lost after"]);
    let part = hidden("m.gguf", &model, "part");
    assert_eq!(names(&dir), [part.as_str()]);
    assert_eq!(fs::read(path(&pull("b/m.gguf"))).unwrap(), other);
    assert_eq!(fs::read(dir.join(&part)).unwrap(), model[..1000]);
    failure(&pull("a/m.gguf"), 1, &["is another file"]);
    assert_eq!(names(&dir), [part.as_str(), "m.gguf"]);
}

#[test]
fn a_file_may_have_the_longest_name() {
    let (user, model) = (User::new(), model());
    let name = format!("{}.gguf", "a\u{e9}".repeat(83));
    assert_eq!(name.len(), 254);
    let server = Hub::start(&[(&name, &model)], Faults::default());
    let dir = user.home.path().join("models");
    let output = user.pull(&server, &["--dir", dir.to_str().unwrap(), REPO]);
    assert_eq!(path(&output), dir.join(&name));
}

#[cfg(unix)]
#[test]
fn a_folder_may_have_a_name_that_is_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let dir = user.home.path().join(OsStr::from_bytes(b"\xff"));
    let output = user.command(&server, &[REPO]).arg("--dir").arg(&dir).output().unwrap();
    let expected = [dir.join("m.gguf").as_os_str().as_bytes(), b"\n"].concat();
    assert_eq!(output.stdout, expected, "{}", stderr(&output));
}

#[test]
fn several_at_once_fetch_a_file_once_into_a_folder() {
    let (user, model) = (User::new(), model());
    let server = Hub::start(&[("m.gguf", &model)], Faults::default());
    let dir = user.home.path().join("models");
    let mut command = user.command(&server, &["--dir", dir.to_str().unwrap(), REPO]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let started: Vec<_> = (0..4).map(|_| command.spawn().unwrap()).collect();
    for process in started {
        assert_eq!(fs::read(path(&process.wait_with_output().unwrap())).unwrap(), model);
    }
    assert_eq!(server.requests("/storage/").len(), 1);
    assert_eq!(names(&dir), ["m.gguf"]);
}
