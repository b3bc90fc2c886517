//! Answers that follow a schema, a grammar or a regular expression, through the whole program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::{Value as Json, json};

const SCHEMA: &str = r#"{"type": "object", "required": ["name", "tags"], "additionalProperties": false, "properties": {
    "name": {"type": "string", "maxLength": 5}, "tags": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"enum": ["hot", "cold", null]}}}}"#;

fn run(args: &[&str]) -> Json {
    last_line_json(&succeeded(unisonic(&[&["run", "--json"], args].concat())))
}

fn ids(line: &Json) -> Vec<u64> {
    line["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// Whether a text is what [`SCHEMA`] says.
#[track_caller]
fn assert_fits(line: &Json) {
    let value: Json = serde_json::from_str(line["text"].as_str().unwrap()).unwrap();
    let tags = value["tags"].as_array().unwrap();
    assert!(value["name"].as_str().unwrap().chars().count() <= 5, "{value}");
    assert!((2..=3).contains(&tags.len()), "{value}");
    assert!(tags.iter().all(|tag| tag.is_null() || tag == "hot" || tag == "cold"), "{value}");
    assert_eq!(value.as_object().unwrap().len(), 2);
}

/// Draws every token alike, so that what a random model says has no end of white space.
const DRAWN: [&str; 4] = ["--temperature", "100", "--seed", "3"];

#[test]
fn an_answer_follows_its_schema_whoever_guesses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schema.json");
    std::fs::write(&path, SCHEMA).unwrap();
    let (path, model) = (path.to_str().unwrap(), model());
    let args = [&["-n", "500", "--logits-digest", &model, "List:"], &DRAWN[..]].concat();
    let right = run(&[&args[..], &["--json-schema", SCHEMA, "--speculate", "off"]].concat());
    assert_fits(&right);
    assert_eq!(right["stop"], "grammar");
    for options in [
        &["--json-schema", path][..],
        &["--json-schema", SCHEMA, "--speculate", "ngram", "--chunk", "3"],
        &["--json-schema", SCHEMA, "--draft-model", &model],
    ] {
        let mut found = run(&[&args[..], options].concat());
        let mut right = right.clone();
        for line in [&mut found, &mut right] {
            line.as_object_mut().unwrap().remove("speculation");
        }
        assert_eq!(found, right, "{options:?}");
    }
}

#[test]
fn grammars_and_regular_expressions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sum.lark");
    std::fs::write(&path, "start: NUMBER (\" + \" NUMBER){2} \" = ?\"\nNUMBER: /[1-9][0-9]?/\n").unwrap();
    let (path, model) = (path.to_str().unwrap(), model());
    let line = run(&["-n", "50", "--grammar", path, &model, "Hi"]);
    let text = line["text"].as_str().unwrap();
    assert_eq!((text.matches(" + ").count(), text.ends_with(" = ?")), (2, true), "{text}");
    let line = run(&["-n", "50", "--regex", "(yes|no), (maybe|never)!", &model, "Hi"]);
    let text = line["text"].as_str().unwrap();
    assert!(text.starts_with("yes, ") || text.starts_with("no, "), "{text}");
    assert_eq!((line["stop"].as_str(), text.ends_with('!')), (Some("grammar"), true), "{text}");
}

#[test]
fn what_cannot_be_followed_is_said() {
    let model = model();
    let fails = |args: &[&str], code: i32| failed(unisonic(&[&["run", &model, "Hi"], args].concat()), code);
    let unique = r#"{"properties": {"a": {"type": "array", "uniqueItems": true}}}"#;
    assert_says(&fails(&["--json-schema", unique], 1), &["`uniqueItems`", "#/properties/a", "not supported"]);
    assert_says(&fails(&["--json-schema", "{]"], 1), &["not JSON"]);
    assert_says(&fails(&["--json-schema", "no/such/file"], 1), &["no/such/file"]);
    assert_says(&fails(&["--regex", "("], 1), &["regular expression"]);
    assert_says(&fails(&["--grammar", "no/such/file"], 1), &["no/such/file"]);
    fails(&["--regex", "a", "--json-schema", "{}"], 2);
}

#[test]
fn receipts_and_sessions_hold_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (receipt, session, model) = (place("receipt"), place("session"), model());
    let long =
        SCHEMA.replace("\"maxItems\": 3", "\"maxItems\": 40").replace("\"minItems\": 2", "\"minItems\": 30");
    let args = [&["--json-schema", &long, &model, "List:"], &DRAWN[..]].concat();
    let forty = run(&[&args[..], &["-n", "40", "--receipt", &receipt]].concat());
    let twenty = run(&[&args[..], &["-n", "20", "--save-session", &session]].concat());
    let rest = run(&["-n", "20", "--load-session", &session, "--receipt", &place("rest"), &model]);
    assert_eq!([ids(&twenty), ids(&rest)].concat(), ids(&forty));
    for (receipt, steps) in [(&receipt, "40"), (&place("rest"), "20")] {
        for chunk in ["1", "64"] {
            let text = succeeded(unisonic(&["verify", "--chunk", chunk, receipt]));
            assert_says(&text, &[&format!("equal: {steps} tokens")]);
        }
    }
    let text = std::fs::read_to_string(&receipt).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(json["answer"]["constraint"]["text"], long.as_str());
    assert_says(&failed(unisonic(&["verify", &place("edited")]), 1), &["edited"]);
    std::fs::write(place("edited"), text.replace("cold", "warm")).unwrap();
    assert_says(&failed(unisonic(&["verify", &place("edited")]), 1), &["damaged", "sha256"]);
    // A new prompt begins a new answer, which is free.
    let all = run(&["-n", "20", "--load-session", &session, &model, "Hi"]);
    assert_ne!(ids(&all), ids(&rest));
}

#[test]
fn lines_of_a_batch_have_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let schema: Json = serde_json::from_str(SCHEMA).unwrap();
    let drawn = |format: Json| json!({ "prompt": "List:", "max_tokens": 500, "temperature": 100, "seed": 3, "response_format": format });
    let lines = [
        drawn(
            json!({ "type": "json_schema", "json_schema": { "name": "list", "strict": true, "schema": schema } }),
        ),
        drawn(json!({ "type": "text" })),
        drawn(json!({ "type": "regex", "regex": "[ab]{7}" })),
        drawn(json!({ "type": "grammar", "grammar": "start: \"a\" \"b\"" })),
        drawn(json!({ "type": "json_object" })),
        drawn(json!({ "type": "json_schema", "json_schema": { "schema": { "not": {} } } })),
        drawn(json!({ "type": "json_schema", "json_schema": {} })),
        drawn(json!({ "type": "yaml" })),
        drawn(json!("json_object")),
    ];
    std::fs::write(&input, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    succeeded(unisonic(&["batch", "--ordered", input, "-o", output, "--model", &model()]));
    let text = std::fs::read_to_string(output).unwrap();
    let answers: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_fits(&answers[0]);
    let alone = run(&[&["-n", "500", "--json-schema", SCHEMA, &model(), "List:"], &DRAWN[..]].concat());
    assert_eq!(answers[0]["token_ids"], alone["token_ids"]);
    assert_eq!(answers[2]["token_ids"].as_array().unwrap().len(), 7);
    assert_eq!((&answers[3]["text"], &answers[3]["stop"]), (&json!("ab"), &json!("grammar")));
    assert!(answers[4]["text"].as_str().unwrap().starts_with('{'));
    for (answer, said) in [
        (&answers[5], &["`response_format`", "`not` at #"][..]),
        (&answers[6], &["`response_format`", "schema"]),
        (&answers[7], &["`response_format`", "yaml", "json_schema"]),
        (&answers[8], &["`response_format`"]),
    ] {
        assert_says(answer["error"].as_str().unwrap(), said);
        assert!(answer["line"].as_u64().unwrap() > 5);
    }
}
