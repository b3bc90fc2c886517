//! Text to ids and back.

use serde_json::json;

use crate::common::Server;

#[tokio::test]
async fn text_becomes_ids_and_ids_text() {
    let server = Server::new().await;
    let tokenize = async |body| server.json("/tokenize", &body).await["tokens"].clone();
    assert_eq!(tokenize(json!({ "content": "é" })).await, json!([198, 172]));
    let with_bos = tokenize(json!({ "content": "a", "add_special": true })).await;
    assert_eq!(with_bos[0], 1);
    // A control token of the model, as itself and as text.
    assert_eq!(tokenize(json!({ "content": "</s>" })).await, json!([2]));
    assert_eq!(
        tokenize(json!({ "content": "</s>", "parse_special": false })).await,
        json!([63, 50, 118, 65])
    );
    let text = server.json("/detokenize", &json!({ "tokens": [198, 172, 2] })).await;
    assert_eq!(text["content"], "é</s>");
    server.refused("/detokenize", &json!({ "tokens": [1, 259] }), "tokens[1]").await;
    server.refused("/detokenize", &json!({ "tokens": ["a"] }), "tokens[0]").await;
    server.refused("/tokenize", &json!({ "content": 5 }), "content").await;
}
