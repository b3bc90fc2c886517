//! Random schemas: they make grammars, and answers under them are what they say, by a checker that shares nothing with the
//! grammars.

mod check;
mod random;

use unisonic_engine::constraint::{Constraint, ConstraintError, ConstraintKind};
use unisonic_engine::draft::NgramDrafter;
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::tokenizer::ControlTokens;
use unisonic_engine::{Engine, GenerateOptions};

use super::common::{answer_in, constrained, cpu, grammars, ids, load, options, quick, say, tokenizer};
use super::toy::Toy;
use check::fits;
use random::RandomSchema;

/// Of 1,000 schemas each is a grammar, or an error that says why it is none.
#[test]
fn random_schemas_make_grammars() {
    let count = if quick() { 200 } else { 1000 };
    let mut refused = Vec::new();
    for seed in 0..count {
        let schema = RandomSchema::new(seed, false).root();
        let constraint = Constraint::new(ConstraintKind::JsonSchema, schema.to_string());
        match grammars().compile(&constraint) {
            Ok(_) => {}
            Err(ConstraintError::Refused { reason, .. }) if !reason.contains("panic") => {
                refused.push(format!("{reason}: {schema}"));
            }
            Err(error) => panic!("{error}: {schema}"),
        }
    }
    say(&format!(
        "{count} random schemas: {} make grammars, {} are refused",
        count - refused.len() as u64,
        refused.len()
    ));
    refused.iter().take(5).for_each(|refused| say(refused));
    assert!(refused.len() * 20 < count as usize, "the generator makes too many that are refused");
}

/// An answer of the engine under the schema; none if it does not end.
fn answer(engine: &mut Engine, seed: u64, schema: &serde_json::Value) -> Option<String> {
    let constraint = Constraint::new(ConstraintKind::JsonSchema, schema.to_string());
    let prompt = ids(seed, 5, 250);
    let options = SamplerOptions { temperature: 1.0, seed, ..SamplerOptions::default() };
    let mut sampler = constrained(&constraint, &options, prompt.len());
    let mut drafter = NgramDrafter::new();
    let options = GenerateOptions {
        max_tokens: Some(1000),
        sampler: Some(&mut sampler),
        drafter: Some(&mut drafter),
        cancelled: None,
    };
    let mut session = engine.session();
    let (answer, _) = answer_in(engine, &mut session, &prompt, tokenizer().eos(), options).unwrap();
    let text = tokenizer().decode(&answer.ids, ControlTokens::Hide);
    ["grammar", "eog"].contains(&answer.stop).then_some(text)
}

/// 200 answers, most on a device that hashes, some of a tiny model.
#[test]
fn answers_fit_their_schemas() {
    let mut engines = [load(&Toy::NEW, "Q4_0", &options()), cpu(&options())];
    let (mut answers, mut unfinished, mut seed) = (0, 0, 0);
    while answers < 200 {
        seed += 1;
        let schema = RandomSchema::new(seed, true).root();
        let on_cpu = usize::from(seed.is_multiple_of(10));
        let constraint = Constraint::new(ConstraintKind::JsonSchema, schema.to_string());
        if grammars().compile(&constraint).is_err() {
            continue;
        }
        let Some(text) = answer(&mut engines[on_cpu], seed, &schema) else {
            unfinished += 1;
            continue;
        };
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{schema}"));
        assert!(fits(&schema, &schema, &value), "{text}\ndoes not fit\n{schema}");
        answers += 1;
    }
    say(&format!(
        "{answers} answers fit their random schemas; {unfinished} others did not end in 1000 tokens"
    ));
    assert!(unfinished < 20, "the generator makes too many without an end");
}

/// The checker sees what is wrong.
#[test]
fn the_checker_refuses() {
    let of = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    for (schema, right, wrong) in [
        (r#"{"type": "integer", "minimum": 3, "maximum": 5}"#, "4", "6"),
        (r#"{"type": "integer"}"#, "4", "4.5"),
        (r#"{"type": "number", "exclusiveMinimum": 3}"#, "3.5", "3"),
        (r#"{"type": "integer", "multipleOf": 7}"#, "14", "15"),
        (r#"{"type": "string", "minLength": 2, "maxLength": 3}"#, r#""éa""#, r#""é""#),
        (r#"{"type": "string", "pattern": "^[a-c]{2,4}$"}"#, r#""abc""#, r#""abd""#),
        (r#"{"type": "string", "format": "date"}"#, r#""2024-02-29""#, r#""2024-13-01""#),
        (r#"{"enum": [1, "a", null]}"#, "null", "2"),
        (r#"{"const": {"a": 1}}"#, r#"{"a": 1}"#, r#"{"a": 1, "b": 2}"#),
        (r#"{"type": "array", "items": {"type": "null"}, "maxItems": 2}"#, "[null]", "[null, null, null]"),
        (
            r#"{"type": "array", "prefixItems": [{"type": "null"}], "items": false, "minItems": 1}"#,
            "[null]",
            "[null, 1]",
        ),
        (
            r#"{"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}"#,
            r#"{"a": null}"#,
            "{}",
        ),
        (
            r#"{"type": "object", "properties": {"a": {}}, "additionalProperties": false}"#,
            r#"{"a": 1}"#,
            r#"{"b": 1}"#,
        ),
        (r#"{"anyOf": [{"type": "null"}, {"type": "boolean"}]}"#, "true", "1"),
        (r#"{"oneOf": [{"type": "null"}, {"type": "boolean"}]}"#, "true", "1"),
        (r#"{"allOf": [{"type": "integer"}, {"minimum": 3}]}"#, "3", "2"),
        (r#"{"type": ["null", "integer"]}"#, "1", r#""1""#),
        (r##"{"$defs": {"d": {"type": "null"}}, "$ref": "#/$defs/d"}"##, "null", "0"),
    ] {
        let schema = of(schema);
        assert!(fits(&schema, &schema, &of(right)), "{schema}: {right}");
        assert!(!fits(&schema, &schema, &of(wrong)), "{schema}: {wrong}");
    }
}

/// Or the others would show little.
#[test]
fn random_schemas_differ() {
    let texts: std::collections::BTreeSet<String> =
        (0..100).map(|seed| RandomSchema::new(seed, true).root().to_string()).collect();
    assert!(texts.len() > 90, "{}", texts.len());
}
