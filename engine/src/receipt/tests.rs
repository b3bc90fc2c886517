//! What a receipt says of itself. Recomputing has its tests in tests/exact/.

use super::*;

fn receipt() -> Receipt {
    let model = ModelId { file: "m.gguf".into(), sha256: Digest::of(b"m") };
    let mut chain = LogitsChain::new(model.sha256, "u1", &[1, 2]);
    let made_with = MadeWith {
        program: "unisonic 0".into(),
        device: "cpu".into(),
        chunk_rows: 64,
        context_len: 128,
        passes_off: vec!["a".into()],
    };
    Receipt {
        unisonic_receipt: VERSION,
        model,
        profile: "u1".into(),
        made_with,
        sampler: SamplerOptions {
            temperature: 0.1 + 0.2,
            logit_bias: vec![(3, f64::NEG_INFINITY), (4, -1.5)],
            seed: u64::MAX,
            ..SamplerOptions::default()
        },
        answer: None,
        prompt_ids: vec![1, 2],
        output_ids: vec![3, 4],
        stop: "length".into(),
        chain: vec![chain.push(&[1.0, -2.0]), chain.push(&[])],
        sha256: None,
    }
    .seal()
}

#[test]
fn the_chain_is_as_documented() {
    let model = Digest::of(b"m");
    let fields: [&[u8]; 4] = [LABEL, &model.0, b"u1", &[1, 0, 0, 0, 2, 0, 0, 0]];
    let head = fields.map(|field| [&(field.len() as u64).to_le_bytes(), field].concat()).concat();
    let first = Digest::of(&[&Digest::of(&head).0[..], &[0, 0, 0x80, 0x3f], &[0, 0, 0, 0xc0]].concat());
    assert_eq!(receipt().chain, [first, Digest::of(&first.0)]);
    let mut long = LogitsChain::new(model, "u1", &[1, 2]);
    let logits: Vec<f32> = (0..2 * 512 + 3).map(|i| i as f32).collect();
    let bytes: Vec<u8> = logits.iter().flat_map(|z| z.to_bits().to_le_bytes()).collect();
    assert_eq!(long.push(&logits), Digest::of(&[&Digest::of(&head).0[..], &bytes].concat()));
}

#[test]
fn a_receipt_is_read_as_it_was_written() {
    let receipt = receipt();
    let text = receipt.to_json();
    assert_eq!(Receipt::from_json(&text).unwrap(), receipt);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        text.starts_with("{\n\"unisonic_receipt\":1,\n\"model\":{\"file\":\"m.gguf\",\"sha256\":"),
        "{text}"
    );
    assert_eq!(text.lines().count(), value.as_object().unwrap().len() + 2);
    assert_eq!(value["sampler"]["logit_bias"]["3"], "-inf");
    assert_eq!(value["sampler"]["repeat_last_n"], 64);
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    assert_eq!(Receipt::from_json(&pretty).unwrap(), receipt, "white space means nothing");
}

#[test]
fn any_change_is_damage() {
    let text = receipt().to_json();
    let edits = [
        ("\"u1\"", "\"u2\""),
        ("m.gguf", "n.gguf"),
        ("[1,2]", "[1,3]"),
        ("[3,4]", "[3,5]"),
        ("[3,4]", "[3]"),
        ("length", "eog"),
        ("18446744073709551615", "18446744073709551614"),
        ("0.30000000000000004", "0.3"),
        ("-1.5", "-1.25"),
        ("\"chunk_rows\":64", "\"chunk_rows\":65"),
        ("\"chain\":", "\"chains\":"),
        ("\"sha256\":\"", "\"sha256\":\"0"),
    ];
    for (from, to) in edits {
        assert!(text.contains(from), "{from} in {text}");
        let error = Receipt::from_json(&text.replacen(from, to, 1)).unwrap_err();
        assert!(matches!(error, ReceiptError::Damaged { .. }), "{from} -> {to}: {error}");
    }
    for at in (0..text.len()).filter(|&at| text.is_char_boundary(at)) {
        assert!(Receipt::from_json(&text[..at]).is_err() || text[at..].trim().is_empty(), "cut at {at}");
    }
}

#[test]
fn what_is_no_receipt_is_said() {
    let check = |text: &str, said: &str| {
        let error = Receipt::from_json(text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    check("", "no receipt");
    check("GGUF", "not JSON");
    check("[]", "unisonic_receipt");
    check("{\"a\": 1}", "unisonic_receipt");
    check("{\"unisonic_receipt\": 2}", "version 2");
    check("{\"unisonic_receipt\": \"x\"}", "version");
    check("{\"unisonic_receipt\": 1}", "damaged");
}

#[test]
fn another_model_is_named_beside_the_receipts() {
    let receipt = receipt();
    assert!(receipt.check(Digest::of(b"m"), "u1").is_ok());
    let error = receipt.check(Digest::of(b"n"), "u1").unwrap_err().to_string();
    for part in [&Digest::of(b"m").to_string(), &Digest::of(b"n").to_string(), "m.gguf"] {
        assert!(error.contains(part), "{error}");
    }
    let error = receipt.check(Digest::of(b"m"), "u1-exact-v").unwrap_err().to_string();
    assert!(error.contains("`u1`") && error.contains("u1-exact-v"), "{error}");
}
