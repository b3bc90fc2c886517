//! What may come, against lists of all texts; what is refused; and what goes wrong.

use proptest::prelude::*;
use unisonic_core::format::{Metadata, Strings, Value};

use super::position::Position;
use super::*;
use crate::Sample;
use crate::sampling::{Sampler, SamplerOptions};
use crate::tokenizer::{ControlTokens, Tokenizer};

/// Tokens of text, with one that two ids have, and one that only looks like an end token.
const WORDS: [&str; 14] =
    ["a", "ab", "abc", "b", "ba", "c", "aaa", "{\"", "\":", "true", "name", "▁", "▁a", "[/s]"];
const END: u32 = 2;

/// A control token, an end token, a tool's token, 256 bytes, and words.
fn tokenizer(words: &[&str]) -> Tokenizer {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let controls = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<tool>", 3)];
    let bytes = bytes.iter().map(|text| (text.as_str(), 6));
    let tokens: Vec<(&str, i32)> =
        controls.into_iter().chain(bytes).chain(words.iter().map(|&word| (word, 1))).collect();
    of_tokens(&tokens)
}

fn of_tokens(tokens: &[(&str, i32)]) -> Tokenizer {
    let mut metadata = Metadata::default();
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
    for (key, value) in [
        ("model", Value::String("llama".into())),
        ("tokens", Value::Strings(Strings::from_iter(texts))),
        ("token_type", Value::I32s(tokens.iter().map(|(_, kind)| *kind).collect())),
        ("scores", Value::F32s(vec![0.0; tokens.len()])),
    ] {
        assert!(metadata.insert(&format!("tokenizer.ggml.{key}"), value));
    }
    Tokenizer::from_metadata(&metadata).unwrap()
}

fn compile(kind: ConstraintKind, text: &str) -> Result<Grammar, ConstraintError> {
    Grammars::new(&tokenizer(&WORDS)).unwrap().compile(&Constraint::new(kind, text))
}

fn schema(text: &str) -> Result<Grammar, ConstraintError> {
    compile(ConstraintKind::JsonSchema, text)
}

/// Ids that may come after an answer; none if it is complete.
fn allowed(position: &mut Position, answer: &[u32]) -> Vec<u32> {
    position.go_to(answer).unwrap();
    if position.is_complete() { Vec::new() } else { position.mask().unwrap().to_list() }
}

fn bytes_of(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| tokenizer.token_bytes(id, ControlTokens::Hide).into_owned()).collect()
}

/// Ids that may come after an answer when these are all texts.
fn allowed_by_list(tokenizer: &Tokenizer, texts: &[String], answer: &[u32]) -> Vec<u32> {
    let so_far = bytes_of(tokenizer, answer);
    let may = |id: &u32| {
        let more = tokenizer.token_bytes(*id, ControlTokens::Hide);
        let begun = [&so_far, &*more].concat();
        match tokenizer.is_stop(*id) {
            true => texts.iter().any(|text| text.as_bytes() == so_far),
            false => !more.is_empty() && texts.iter().any(|text| text.as_bytes().starts_with(&begun)),
        }
    };
    let ids: Vec<u32> = (0..tokenizer.vocab_len()).filter(may).collect();
    // Where only the end may come, the answer is complete.
    if ids == [END] { Vec::new() } else { ids }
}

fn quoted(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| serde_json::to_string(text).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Three ways to say which texts there are, and all answers of random choices among what may come.
    #[test]
    fn tokens_may_come_that_some_text_goes_on_with(
        texts in prop::collection::vec("[abcé ]{1,6}", 1..6),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let tokenizer = tokenizer(&WORDS);
        let grammars = Grammars::new(&tokenizer).unwrap();
        let strings = quoted(&texts);
        for (kind, text, texts) in [
            (ConstraintKind::Regex, texts.join("|"), &texts),
            (ConstraintKind::Lark, format!("start: {}", strings.join(" | ")), &texts),
            (ConstraintKind::JsonSchema, format!("{{\"enum\": [{}]}}", strings.join(",")), &strings),
        ] {
            let mut grammar = grammars.compile(&Constraint::new(kind, text)).unwrap();
            let mut answer = Vec::new();
            for choice in &choices {
                let right = allowed_by_list(&tokenizer, texts, &answer);
                prop_assert_eq!(&allowed(&mut grammar.judge, &answer), &right, "{:?} after {:?}", kind, answer);
                if right.is_empty() {
                    break;
                }
                // Guesses are possible as far as the text goes.
                let next = right[choice.index(right.len())];
                grammar.scout.go_to(&answer).unwrap();
                prop_assert_eq!(grammar.scout.possible(&[next, 3]), 1);
                let forced = grammar.scout.forced();
                prop_assert_eq!(grammar.scout.possible(&forced), forced.len());
                if next == END {
                    break;
                }
                answer.push(next);
            }
            // Back at any place it is as if nothing had followed.
            for len in (0..answer.len()).rev() {
                let right = allowed_by_list(&tokenizer, texts, &answer[..len]);
                prop_assert_eq!(&allowed(&mut grammar.judge, &answer[..len]), &right, "back at {}", len);
            }
        }
    }
}

#[test]
fn forced_text_is_cut_into_long_tokens() {
    let mut grammar =
        schema(r#"{"properties": {"name": {"const": true}}, "required": ["name"], "type": "object"}"#)
            .unwrap();
    let tokenizer = tokenizer(&WORDS);
    let forced = grammar.scout.forced();
    assert_eq!(String::from_utf8(bytes_of(&tokenizer, &forced)).unwrap(), "{");
    let open = 4 + u32::from(b'{');
    let word = |text: &str| 4 + 256 + WORDS.iter().position(|word| *word == text).unwrap() as u32;
    grammar.scout.go_to(&[word("{\"")]).unwrap();
    assert_eq!(bytes_of(&tokenizer, &grammar.scout.forced()), b"name\"");
    assert_eq!(grammar.scout.forced()[0], word("name"));
    assert!(allowed(&mut grammar.judge, &[]).contains(&open), "how a text is cut is the model's choice");
    assert!(allowed(&mut grammar.judge, &[]).contains(&word("{\"")));
}

#[test]
fn tokens_that_are_no_text_come_by_name_only() {
    let mut any = compile(ConstraintKind::Lark, "start: /(.|\\n)*/").unwrap();
    let free = allowed(&mut any.judge, &[]);
    assert!(free.contains(&END) && !free.contains(&3) && !free.contains(&0) && !free.contains(&(4 + 0xff)));
    let mut tool = compile(ConstraintKind::Lark, "start: <tool> \"a\"").unwrap();
    assert_eq!(allowed(&mut tool.judge, &[]), [3]);
    assert_eq!(allowed(&mut tool.judge, &[3]), [4 + u32::from(b'a'), 4 + 256]);
    assert!(allowed(&mut tool.judge, &[3, 4 + 256]).is_empty());
}

#[test]
fn a_vocabulary_without_an_end_token_has_grammars_too() {
    let tokenizer = of_tokens(&[("<unk>", 2), ("a", 1), ("b", 1)]);
    let stops = tokenizer.stops().to_vec();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut grammar = grammars.compile(&Constraint::new(ConstraintKind::Regex, "a+b")).unwrap();
    assert_eq!(allowed(&mut grammar.judge, &[]), [1]);
    assert_eq!(allowed(&mut grammar.judge, &[1]), [1, 2]);
    assert!(allowed(&mut grammar.judge, &[1, 2]).is_empty(), "{stops:?}");
}

#[test]
fn unsupported_keywords_are_named_with_their_place() {
    for (keyword, pointer, text) in [
        ("not", "#", r#"{"not": {}}"#),
        ("uniqueItems", "#/properties/a~1b", r#"{"properties": {"a/b": {"uniqueItems": true}}}"#),
        ("if", "#/anyOf/1", r#"{"anyOf": [{}, {"if": {}}]}"#),
        ("contains", "#/$defs/d", r#"{"$defs": {"d": {"contains": {}}}}"#),
        ("minLenght", "#/items", r#"{"items": {"minLenght": 3}}"#),
        ("nullable", "#/prefixItems/0", r#"{"prefixItems": [{"nullable": true}]}"#),
        ("dependentRequired", "#/allOf/0", r#"{"allOf": [{"dependentRequired": {}}]}"#),
        ("propertyNames", "#/additionalProperties", r#"{"additionalProperties": {"propertyNames": {}}}"#),
        (
            "unevaluatedProperties",
            "#/patternProperties/^a",
            r#"{"patternProperties": {"^a": {"unevaluatedProperties": false}}}"#,
        ),
        ("x-guidance", "#", r#"{"x-guidance": {"lenient": true}}"#),
        ("$dynamicRef", "#", r##"{"$dynamicRef": "#a"}"##),
    ] {
        let error = schema(text).unwrap_err();
        let ConstraintError::Keyword { keyword: found, pointer: at, .. } = &error else {
            panic!("{text}: {error}")
        };
        assert_eq!((found.as_str(), at.as_str()), (keyword, pointer));
        assert!(error.to_string().contains(&format!("`{keyword}` at {pointer}")), "{error}");
    }
    for (named, text) in [
        ("http://a/b", r#"{"$ref": "http://a/b"}"#),
        ("#/$defs/b", r##"{"$ref": "#/$defs/b"}"##),
        ("tomorrow", r#"{"type": "string", "format": "tomorrow"}"#),
        ("colour", r#"{"type": "colour"}"#),
        ("oneOf", r#"{"oneOf": [{"minimum": 1, "type": "number"}, {"maximum": 2, "type": "number"}]}"#),
        ("enum", r#"{"enum": 3}"#),
        ("(?=", r#"{"pattern": "(?=a)"}"#),
    ] {
        let error = schema(text).unwrap_err().to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
    assert!(matches!(schema("{"), Err(ConstraintError::NotJson(_))));
    assert!(schema("3").is_err() && schema("false").is_err());
}

/// What only describes is taken, and what is named like a keyword without being one.
#[test]
fn annotations_and_names_are_no_keywords() {
    for text in [
        r#"{"title": "t", "description": "d", "default": 1, "examples": [], "$comment": "", "deprecated": true, "readOnly": true}"#,
        r#"{"properties": {"not": {"type": "null"}, "if": true}, "required": ["not"], "type": "object"}"#,
        r#"{"const": {"not": 1}}"#,
        r#"{"enum": [{"contains": 1}, {"nullable": 2}]}"#,
        r#"{"type": "string", "x-order": 3}"#,
        "true",
        "{}",
    ] {
        schema(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

/// Large, deep and broken ones: an error or a grammar, in little time and memory, and no panic that gets out.
#[test]
fn hostile_constraints_are_errors() {
    use ConstraintKind::{JsonSchema, Lark, Regex};
    let deep = |open: &str, inner: &str, close: &str, times: usize| {
        open.repeat(times) + inner + &close.repeat(times)
    };
    let mut hostile = vec![
        (JsonSchema, deep("[", "", "]", 100_000)),
        (JsonSchema, deep(r#"{"items":"#, "{}", "}", 100_000)),
        (JsonSchema, r#"{"type": "array", "minItems": 1000000000}"#.into()),
        (JsonSchema, r#"{"type": "string", "minLength": 1000000000}"#.into()),
        (JsonSchema, r#"{"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}"#.into()),
        (JsonSchema, r#"{"type": "string", "pattern": "(((((a+)+)+)+)+)+$"}"#.into()),
        (JsonSchema, r#"{"type": "number", "multipleOf": 1e-300}"#.into()),
        (JsonSchema, r#"{"type": "number", "minimum": 1e300, "maximum": -1e300}"#.into()),
        (JsonSchema, r##"{"$ref": "#"}"##.into()),
        (JsonSchema, r##"{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}"##.into()),
        (JsonSchema, format!("{{\"type\": \"number\", \"minimum\": \"{}é\"}}", "x".repeat(98))),
        (JsonSchema, format!("{{\"enum\": [\"{}\"]}}", "x".repeat(500_000))),
        (Regex, deep("(", "a", ")", 100_000)),
        (Regex, deep("(", "a", ")*", 200)),
        (Regex, "((((a{1,1000}){1,1000}){1,1000}){1,1000}".into()),
        (Regex, "(a|b)*a(a|b){40}".into()),
        (Regex, "(".into()),
        (Regex, "[z-a]".into()),
        (Regex, String::new()),
        (Lark, String::new()),
        (Lark, "start".into()),
        (Lark, "start: other".into()),
        (Lark, "start: start".into()),
        (Lark, deep("start: ", "", "", 1) + &deep("(", "\"a\"", ")", 100_000)),
        (Lark, "start: \"a\"{1,2000000000}".into()),
        (Lark, "start: ".to_owned() + &"(a b c)* ".repeat(50_000)),
        (Lark, "start: %json ".to_owned() + &deep("{\"items\":", "{}", "}", 50_000)),
        (Lark, "start: <[999999999]>".into()),
        (Lark, "{\"grammars\": []}".into()),
    ];
    hostile.push((JsonSchema, "x".repeat(MAX_LEN_BYTES + 1)));
    let tokenizer = tokenizer(&WORDS);
    let grammars = Grammars::new(&tokenizer).unwrap();
    for (kind, text) in hostile {
        let shown: String = text.chars().take(60).collect();
        match grammars.compile(&Constraint::new(kind, text)) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.len() < 1000 && !error.contains("backtrace"), "{shown}: {error}");
            }
            Ok(mut grammar) => {
                // What compiles may still fail, and says so.
                for _ in 0..3 {
                    let _ = grammar.judge.mask().map_err(|error| error.to_string());
                }
            }
        }
    }
}

/// A sampler with a grammar chooses among what may come, after penalties and biases.
#[test]
fn masks_come_after_biases() {
    let tokenizer = tokenizer(&WORDS);
    let grammars = Grammars::new(&tokenizer).unwrap();
    let a = 4 + u32::from(b'a');
    let sampler = |bias: f64| {
        let options = SamplerOptions { logit_bias: vec![(a, bias)], ..SamplerOptions::default() };
        let grammar = grammars.compile(&Constraint::new(ConstraintKind::Regex, "[ab]")).unwrap();
        let sampler = Sampler::new(&options, tokenizer.vocab_len()).unwrap();
        ConstrainedSampler::new(sampler, grammar, 2)
    };
    // The largest logit is of what may not come.
    let mut logits = vec![0.0; tokenizer.vocab_len() as usize];
    logits[7] = 9.0;
    logits[4 + usize::from(b'b')] = 1.0;
    assert_eq!(sampler(0.0).sample(&logits, &[1, 7]).unwrap(), 4 + u32::from(b'b'));
    assert_eq!(sampler(3.0).sample(&logits, &[1, 7]).unwrap(), a);
    let mut chosen = sampler(3.0);
    assert!(!chosen.is_complete(&[1, 7]).unwrap());
    assert!(chosen.is_complete(&[1, 7, a]).unwrap());
    assert_eq!(chosen.possible(&[1, 7], &[a, a]), 1);
    // All that may come is biased away.
    let never = [4 + u32::from(b'c'), 4 + 256 + 5].map(|id| (id, f64::NEG_INFINITY));
    let options = SamplerOptions { logit_bias: never.into(), ..SamplerOptions::default() };
    let grammar = grammars.compile(&Constraint::new(ConstraintKind::Lark, "start: \"c\"")).unwrap();
    let sampler = Sampler::new(&options, tokenizer.vocab_len()).unwrap();
    let mut none = ConstrainedSampler::new(sampler, grammar, 0);
    assert!(none.sample(&logits, &[]).unwrap_err().to_string().contains("no token is left"));
    // An answer that does not follow it.
    assert!(
        none.sample(&logits, &[7]).unwrap_err().to_string().contains("the grammar failed after 0 tokens")
    );
}

#[test]
fn constraints_are_read_as_they_are_written() {
    let constraint = Constraint::json_object();
    let json = serde_json::to_string(&constraint).unwrap();
    assert_eq!(serde_json::from_str::<Constraint>(&json).unwrap(), constraint);
    let edited = json.replace("object", "string");
    assert!(serde_json::from_str::<Constraint>(&edited).unwrap_err().to_string().contains("sha256"));
    let other: Constraint = serde_json::from_str(&json.replace(RULES, "llguidance 0.1.0")).unwrap();
    let error = Grammars::new(&tokenizer(&WORDS)).unwrap().compile(&other).unwrap_err();
    assert_eq!(error, ConstraintError::Rules { found: "llguidance 0.1.0".into() });
    let manifest = include_str!("../../Cargo.toml");
    let version = RULES.rsplit(' ').next().unwrap();
    assert!(manifest.contains(&format!("llguidance = {{ version = \"={version}\"")), "the rules' version");
}

/// A chain of references goes as deep as it is long, which once ended the process.
#[test]
fn large_schemas_are_compiled_or_refused() {
    let chain = |len: usize| {
        let links: Vec<String> = (0..len)
            .map(|link| format!(r##""d{link}": {{"items": {{"$ref": "#/$defs/d{}"}}}}"##, link + 1))
            .collect();
        format!(r##"{{"$defs": {{{}, "d{len}": {{}}}}, "$ref": "#/$defs/d0"}}"##, links.join(", "))
    };
    // Whether llguidance takes it is not ours to say; that it says so is.
    let _ = schema(&chain(300));
    let _ = schema(&chain(2000));
    let wide = |len: usize| {
        let properties: Vec<String> = (0..len).map(|number| format!(r#""p{number}": {{}}"#)).collect();
        format!(r#"{{"type": "object", "properties": {{{}}}}}"#, properties.join(", "))
    };
    schema(&wide(400)).unwrap();
    for too_large in [chain(3000), wide(401), wide(10_000)] {
        let error = schema(&too_large).unwrap_err().to_string();
        assert!(error.contains("ask for less"), "{error}");
    }
}
