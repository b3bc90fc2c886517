//! What all objects of an answer begin with.

use serde_json::{Value as Json, json};

use crate::app::unix_time;
use crate::model::Model;

/// Which answer it is, of what.
#[derive(Clone)]
pub struct Head {
    /// Unlike any other's.
    pub id: String,
    /// Unix time.
    pub created: u64,
    /// Name of the model.
    pub model: String,
    /// Seed of choice 0: with it the same request gives the same answer.
    pub seed: u64,
    /// Name of the arithmetic: answers are the same where it is the same.
    pub fingerprint: String,
}

impl Head {
    /// Of a new answer.
    pub fn new(id: String, model: &Model, seed: u64) -> Self {
        Self {
            id,
            created: unix_time(),
            model: model.name.clone(),
            seed,
            fingerprint: format!("unisonic-{}", model.profile),
        }
    }

    /// An object of this answer.
    pub fn json(&self, object: &str, choices: Json) -> Json {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "seed": self.seed,
            "choices": choices,
        })
    }
}
