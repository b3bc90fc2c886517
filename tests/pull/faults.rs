//! Servers that fail, refuse, redirect and lie.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A hub whose first answer to each kind of request is another one.
fn fails_first(
    model: &[u8],
    tells_names_only: bool,
    change: impl Fn(Response) -> Response + Send + Sync + 'static,
) -> Server {
    let asked = ["/api/", "/resolve/", "/storage/"].map(|part| (part, AtomicUsize::new(0)));
    let faults = Faults { tells_names_only, ..Faults::default() };
    Hub::start_with(&[("m.gguf", model)], faults, move |request, answer| {
        let is_first = |(part, count): &(&str, AtomicUsize)| {
            request.path.contains(part) && count.fetch_add(1, Ordering::Relaxed) == 0
        };
        if asked.iter().any(is_first) { change(answer) } else { answer }
    })
}

#[test]
fn every_request_is_tried_again() {
    let (user, model) = (User::new(), model());
    // With names only, the size is what is asked for again, else the bytes.
    for (status, names_only) in [(429, true), (500, false), (503, false)] {
        let busy = move |_| Response::new(status).header("Retry-After", "0");
        let server = fails_first(&model, names_only, busy);
        let dir = user.home.path().join(status.to_string());
        let args = ["--retries", "2", "--dir", dir.to_str().unwrap(), REPO];
        let output = user.command(&server, &args).output().unwrap();
        assert_eq!(fs::read(path(&output)).unwrap(), model);
        assert_eq!(stderr(&output).matches("trying again").count(), 3, "{}", stderr(&output));
        failure(
            &user.pull(&fails_first(&model, names_only, busy), &[REPO]),
            1,
            &[&format!("status {status}")],
        );
    }
    // Of a refusal for good nothing is tried again.
    let server = fails_first(&model, true, |_| Response::new(404));
    failure(&user.command(&server, &[REPO]).output().unwrap(), 1, &["no public repository"]);
    assert_eq!(server.requests("").len(), 1);
}

#[test]
fn a_cut_description_is_asked_for_again() {
    let (user, model) = (User::new(), model());
    let server = fails_first(&model, true, |answer| match answer.status {
        200 => Response { cut_after: Some(10), ..answer },
        _ => answer,
    });
    let output = user.command(&server, &["--retries", "1", REPO]).output().unwrap();
    assert_eq!(fs::read(path(&output)).unwrap(), model);
    assert!(!stderr(&output).contains("run the command again"), "{}", stderr(&output));
}

#[test]
fn an_attempt_that_got_further_does_not_count() {
    let (user, model) = (User::new(), model());
    let server =
        Hub::start_with(&[("m.gguf", &model)], Faults::default(), |request, answer| match &answer.body {
            body if request.path.contains("/storage/") && body.len() > 250_000 => {
                Response { cut_after: Some(250_000), ..answer }
            }
            _ => answer,
        });
    let output = user.command(&server, &["--retries", "1", REPO]).output().unwrap();
    assert_eq!(fs::read(path(&output)).unwrap(), model);
    assert_eq!(server.requests("/storage/").len(), 3);
}

#[test]
fn a_part_that_is_not_continued_is_fetched_anew_once() {
    let model = model();
    let len = model.len();
    let ranges = [
        (format!("bytes 100000-{}/*", len - 1), len - 100_000),
        (format!("bytes 0-{}/{len}", len - 1), len),
        (format!("bytes 100000-{}/{}", len - 1, len + 1), len),
        ("none".to_owned(), len),
        ("416".to_owned(), len),
    ];
    for (range, received) in ranges {
        let user = User::new();
        let faults = Faults { cut_first_after: Some(100_000), ..Faults::default() };
        let answered = range.clone();
        let server =
            Hub::start_with(&[("m.gguf", &model)], faults, move |_, mut answer| match answer.status {
                206 if answered == "416" => Response::new(416),
                206 => {
                    answer.headers = vec![("Content-Range", answered.clone())];
                    answer
                }
                _ => answer,
            });
        failure(&user.pull(&server, &[REPO]), 1, &["lost after"]);
        let json = json(&user.pull(&server, &["--json", REPO]));
        assert_eq!(json["received_bytes"], received, "{range}");
        assert_eq!(fs::read(json["path"].as_str().unwrap()).unwrap(), model);
        assert_eq!(server.requests("/storage/").len(), if received == len { 3 } else { 2 }, "{range}");
    }
}

#[test]
fn files_come_as_they_are() {
    let (user, model) = (User::new(), model());
    for part in ["/api/", "/storage/"] {
        let server = Hub::start_with(&[("m.gguf", &model)], Faults::default(), move |request, answer| {
            assert_eq!(request.headers["accept-encoding"], "identity");
            if request.path.contains(part) { answer.header("Content-Encoding", "gzip") } else { answer }
        });
        failure(&user.pull(&server, &[REPO]), 1, &["content encoding `gzip`"]);
    }
}

#[test]
fn a_redirect_leads_to_an_address_that_can_be_shown() {
    let (user, model) = (User::new(), model());
    let redirecting = |to: &'static str| {
        Hub::start_with(&[("m.gguf", &model)], Faults::default(), move |_, mut answer| {
            if answer.status == 302 {
                answer.headers = vec![("Location", to.to_owned())];
            }
            answer
        })
    };
    for wrong in ["http://127.0.0.1:99999/secret", "http://u:secret@127.0.0.1/", "/storage/m.gguf#secret"] {
        failure(&user.pull(&redirecting(wrong), &[REPO]), 1, &["a redirect to an address"]);
    }
    let server = redirecting("../../../../storage/m.gguf?Signature=secret");
    assert_eq!(fs::read(path(&user.pull(&server, &[REPO]))).unwrap(), model);
}

#[test]
fn a_lost_connection_is_tried_again() {
    let (user, model) = (User::new(), model());
    let faults = Faults { cut_first_after: Some(1), ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    let output = user.command(&server, &[REPO]).args(["--retries", "1"]).output().unwrap();
    assert_eq!(fs::read(path(&output)).unwrap(), model);
    assert!(stderr(&output).contains("trying again (1 of 1)"), "{}", stderr(&output));
}

#[test]
fn a_silent_connection_is_given_up() {
    let (user, model) = (User::new(), model());
    let faults = Faults { cut_first_after: Some(1000), stalls: true, ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    failure(
        &user.pull(&server, &["--timeout", "1", REPO]),
        1,
        &["lost after 1.00 kB", "run the command again"],
    );
}

#[test]
fn a_server_without_ranges_sends_the_whole_file_again() {
    let (user, model) = (User::new(), model());
    let faults = Faults { cut_first_after: Some(100_000), ignores_ranges: true, ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults);
    failure(&user.pull(&server, &[REPO]), 1, &["lost after"]);
    let json = json(&user.pull(&server, &["--json", REPO]));
    assert_eq!(json["received_bytes"], model.len());
    assert_eq!(fs::read(json["path"].as_str().unwrap()).unwrap(), model);
}

#[test]
fn no_more_is_written_than_was_announced() {
    let (user, model) = (User::new(), model());
    let faults = Faults { sends_too_much: true, ..Faults::default() };
    let server = Hub::start(&[("m.gguf", &model)], faults.clone());
    let len = (model.len() + 4096).to_string();
    failure(&user.pull(&server, &[REPO]), 1, &["Content-Length", &len, "announced"]);
    let server =
        Hub::start_with(&[("m.gguf", &model)], faults, |_, answer| Response { hides_length: true, ..answer });
    assert_eq!(fs::read(path(&user.pull(&server, &[REPO]))).unwrap(), model);
}

#[test]
fn a_server_that_lies_does_no_harm() {
    let (user, model) = (User::new(), model());
    let files: [(&str, &[u8]); 6] = [
        ("../up.gguf", b"x"),
        ("/abs.gguf", b"x"),
        ("a/../../b.gguf", b"x"),
        ("fugg.\u{202e}mm.gguf", b"x"),
        ("m.gguf", &model),
        ("m.gguf", &model),
    ];
    let server = Hub::start(&files, Faults::default());
    assert!(path(&user.pull(&server, &[REPO])).ends_with("m.gguf"));
    assert!(stderr(&user.pull(&server, &[&format!("{REPO}:../up.gguf")])).contains("no GGUF file"));

    let one: [(&str, &[u8]); 1] = [("m.gguf", &model)];
    let server = Hub::start(&one, Faults { contradicts_itself: true, ..Faults::default() });
    failure(&User::new().pull(&server, &[REPO]), 1, &["nothing was fetched"]);
    let server = Hub::start(&one, Faults { redirects_for_ever: true, ..Faults::default() });
    failure(
        &user.pull(&server, &["--dir", user.home.path().join("d").to_str().unwrap(), REPO]),
        1,
        &["redirects"],
    );
    assert_eq!(fs::read_dir(user.home.path().join("d")).unwrap().count(), 0);
    assert!(server.requests("/resolve/").len() < 20);
    for answer in ["[]", "{", "{\"sha\": \"../../x\"}", ""] {
        let server = Server::start(move |_| Response::new(200).body(answer));
        failure(&User::new().pull(&server, &[REPO]), 1, &["cannot be used"]);
    }
}
