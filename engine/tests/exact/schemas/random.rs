//! Schemas that follow from a seed.

use serde_json::{Map, Value as Json, json};

use crate::common::Random;

/// Patterns that the checker knows.
pub const PATTERNS: [&str; 3] = ["^[a-c]{2,4}$", "^x[0-9]+y$", "^(on|off)$"];
const NAMES: [&str; 8] = ["a", "name", "not", "items", "é", "two words", "quote\"d", "a/b~c"];
const DEPTH: usize = 3;

/// Makes schemas over all supported keywords.
pub struct RandomSchema {
    random: Random,
    /// Whether texts under it are short.
    short: bool,
}

impl RandomSchema {
    pub fn new(seed: u64, short: bool) -> Self {
        Self { random: Random::new(seed), short }
    }

    /// A schema with definitions.
    pub fn root(&mut self) -> Json {
        let definition = self.schema(1);
        let mut root = self.object(DEPTH);
        if self.random.chance(30) {
            root = self.schema(DEPTH);
        }
        if let Json::Object(members) = &mut root {
            members.insert("$defs".into(), json!({ "d": definition }));
            if self.random.chance(20) {
                members.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
            }
        }
        root
    }

    fn schema(&mut self, depth: usize) -> Json {
        let leaf = depth == 0 || self.random.chance(40);
        let mut schema = match self.random.below(if leaf { 6 } else { 12 }) {
            0 => json!({ "type": "boolean" }),
            1 => json!({ "type": ["null", "boolean"] }),
            2 => self.integer(),
            3 => self.number(),
            4 => self.string(),
            5 => self.constant(),
            6 | 7 => self.object(depth),
            8 => self.array(depth),
            9 => self.any_of(depth),
            10 => self.all_of(),
            _ => self.reference(depth),
        };
        if self.random.chance(15) {
            schema["description"] = "what it is for".into();
        }
        schema
    }

    fn integer(&mut self) -> Json {
        let low = self.random.below(200) as i64 - 100;
        let high = low + self.random.below(1000) as i64;
        let mut schema = json!({ "type": "integer" });
        if self.short || self.random.chance(50) {
            schema[if self.random.chance(70) { "minimum" } else { "exclusiveMinimum" }] = (low - 1).into();
            schema[if self.random.chance(70) { "maximum" } else { "exclusiveMaximum" }] = (high + 1).into();
        }
        if self.random.chance(20) {
            schema = json!({ "type": "integer", "multipleOf": 1 + self.random.below(12) });
            schema["minimum"] = 0.into();
            schema["maximum"] = 5000.into();
        }
        schema
    }

    fn number(&mut self) -> Json {
        let low = self.random.below(1000) as f64 / 8.0 - 60.0;
        let mut schema = json!({ "type": "number" });
        if self.random.chance(70) {
            schema["minimum"] = low.into();
            schema["maximum"] = (low + self.random.below(500) as f64 / 4.0 + 1.0).into();
        }
        schema
    }

    fn string(&mut self) -> Json {
        match self.random.below(6) {
            0 => json!({ "type": "string", "pattern": PATTERNS[self.random.below(3) as usize] }),
            1 => json!({ "type": "string", "format": "date" }),
            _ if self.short || self.random.chance(50) => {
                let least = self.random.below(4);
                json!({ "type": "string", "minLength": least, "maxLength": least + self.random.below(6) })
            }
            _ => json!({ "type": "string" }),
        }
    }

    fn constant(&mut self) -> Json {
        match self.random.below(3) {
            0 => json!({ "const": { "a": [1, null, "é\n"] } }),
            1 => json!({ "enum": ["red", "green", "blue \"sky\"", 7, false] }),
            _ => json!({ "type": "string", "enum": ["yes", "no", ""] }),
        }
    }

    fn object(&mut self, depth: usize) -> Json {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for _ in 0..self.random.below(4) {
            let name = NAMES[self.random.below(8) as usize];
            if self.random.chance(60) && !required.contains(&name) {
                required.push(name);
            }
            properties.insert(name.into(), self.schema(depth.saturating_sub(1)));
        }
        let mut schema = json!({ "type": "object", "properties": properties, "required": required });
        match self.random.below(if self.short { 2 } else { 4 }) {
            0 | 1 => schema["additionalProperties"] = false.into(),
            2 => schema["additionalProperties"] = self.schema(0),
            _ => {}
        }
        // The number of members can be bounded where all that are named are required.
        let required = schema["required"].as_array().map_or(0, Vec::len);
        let all = schema["properties"].as_object().map_or(0, Map::len) == required;
        if !self.short && all && self.random.chance(20) {
            schema["maxProperties"] = (4 + self.random.below(3)).into();
        }
        schema
    }

    fn array(&mut self, depth: usize) -> Json {
        let mut schema = json!({ "type": "array", "items": self.schema(depth.saturating_sub(1)) });
        if self.random.chance(30) {
            let prefix: Vec<Json> =
                (0..1 + self.random.below(2)).map(|_| self.schema(depth.saturating_sub(1))).collect();
            schema["prefixItems"] = prefix.into();
            if self.random.chance(50) {
                schema["items"] = false.into();
                return schema;
            }
        }
        if self.short || self.random.chance(50) {
            let least = self.random.below(3);
            schema["minItems"] = least.into();
            schema["maxItems"] = (least.max(2) + self.random.below(2)).into();
        }
        schema
    }

    fn any_of(&mut self, depth: usize) -> Json {
        if self.random.chance(30) {
            return json!({ "oneOf": [{ "type": "null" }, self.integer(), self.string()] });
        }
        let choices: Vec<Json> =
            (0..2 + self.random.below(2)).map(|_| self.schema(depth.saturating_sub(1))).collect();
        json!({ "anyOf": choices })
    }

    fn all_of(&mut self) -> Json {
        let more = json!({ "minimum": -1000, "maxLength": 50 });
        match self.random.below(2) {
            0 => json!({ "allOf": [self.integer(), more] }),
            _ => json!({ "allOf": [self.string(), more] }),
        }
    }

    fn reference(&mut self, depth: usize) -> Json {
        // Only what is not inside the definition may name it: texts have to end.
        if depth < 2 { self.string() } else { json!({ "$ref": "#/$defs/d" }) }
    }
}
