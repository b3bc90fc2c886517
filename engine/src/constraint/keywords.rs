//! Which keywords a JSON schema may hold.
//!
//! A schema says what it does not know by silence: validators ignore unknown keywords, and so does llguidance, beyond those
//! of the specification. An answer that has to be right is better refused than unchecked, so here every keyword is known or
//! an error; only names that begin with `x-` are anyone's.

use serde_json::Value as Json;

use super::ConstraintError;

/// What a keyword's value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Nothing with keywords.
    Value,
    /// A schema.
    Schema,
    /// An array of schemas.
    Schemas,
    /// A schema, or in older drafts an array of them.
    SchemaOrSchemas,
    /// An object of schemas by name.
    Named,
    /// A place in the schema.
    Reference,
}

/// The keywords that can be used: those that constrain, and annotations.
const KEYWORDS: [(&str, Holds); 43] = [
    ("$anchor", Holds::Value),
    ("$comment", Holds::Value),
    ("$defs", Holds::Named),
    ("$id", Holds::Value),
    ("$ref", Holds::Reference),
    ("$schema", Holds::Value),
    ("additionalItems", Holds::Schema),
    ("additionalProperties", Holds::Schema),
    ("allOf", Holds::Schemas),
    ("anyOf", Holds::Schemas),
    ("const", Holds::Value),
    ("contentEncoding", Holds::Value),
    ("contentMediaType", Holds::Value),
    ("default", Holds::Value),
    ("definitions", Holds::Named),
    ("deprecated", Holds::Value),
    ("description", Holds::Value),
    ("enum", Holds::Value),
    ("examples", Holds::Value),
    ("exclusiveMaximum", Holds::Value),
    ("exclusiveMinimum", Holds::Value),
    ("format", Holds::Value),
    ("id", Holds::Value),
    ("items", Holds::SchemaOrSchemas),
    ("maxItems", Holds::Value),
    ("maxLength", Holds::Value),
    ("maxProperties", Holds::Value),
    ("maximum", Holds::Value),
    ("minItems", Holds::Value),
    ("minLength", Holds::Value),
    ("minProperties", Holds::Value),
    ("minimum", Holds::Value),
    ("multipleOf", Holds::Value),
    ("oneOf", Holds::Schemas),
    ("pattern", Holds::Value),
    ("patternProperties", Holds::Named),
    ("prefixItems", Holds::Schemas),
    ("properties", Holds::Named),
    ("readOnly", Holds::Value),
    ("required", Holds::Value),
    ("title", Holds::Value),
    ("type", Holds::Value),
    ("writeOnly", Holds::Value),
];

/// Most schemas in a schema: compiling goes as deep as references lead, on a stack that is large enough for so many.
const MAX_SCHEMAS: usize = 4096;
/// Most properties of an object: from some 500 on llguidance gives up within an answer, when nobody can be told in time.
const MAX_PROPERTIES: usize = 400;

/// Looks through a schema for keywords that it may not hold, and for more than can be compiled.
pub(super) fn check(schema: &Json) -> Result<(), ConstraintError> {
    Walk { pointer: "#".to_owned(), schemas: 0 }.schema(schema)
}

struct Walk {
    /// Where it is.
    pointer: String,
    /// Schemas that it has seen.
    schemas: usize,
}

impl Walk {
    fn schema(&mut self, schema: &Json) -> Result<(), ConstraintError> {
        // What is no object has no keywords; whether it is a schema is for the compiler to say.
        let Json::Object(members) = schema else { return Ok(()) };
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            return Err(too_large(format!(
                "it has more than {MAX_SCHEMAS} schemas in it; ask for less at a time"
            )));
        }
        for (name, value) in members {
            match KEYWORDS.iter().find(|(known, _)| known == name) {
                Some(&(_, holds)) => self.value(name, holds, value)?,
                None if name.starts_with("x-") && name != "x-guidance" => {}
                None => {
                    return Err(self.error(
                        name,
                        "leave it out, or say the same with others: an answer could break it unseen",
                    ));
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, name: &str, holds: Holds, value: &Json) -> Result<(), ConstraintError> {
        let parts: Vec<(String, &Json)> = match (holds, value) {
            (Holds::Schema | Holds::SchemaOrSchemas, Json::Object(_)) => {
                return self.below(name, |walk| walk.schema(value));
            }
            (Holds::Schemas | Holds::SchemaOrSchemas, Json::Array(schemas)) => {
                schemas.iter().enumerate().map(|(index, schema)| (index.to_string(), schema)).collect()
            }
            (Holds::Named, Json::Object(schemas))
                if name == "properties" && schemas.len() > MAX_PROPERTIES =>
            {
                return Err(too_large(format!(
                    "{}/properties has {} properties, but {MAX_PROPERTIES} are the most; ask for less at a time",
                    self.pointer,
                    schemas.len()
                )));
            }
            (Holds::Named, Json::Object(schemas)) => {
                schemas.iter().map(|(name, schema)| (name.clone(), schema)).collect()
            }
            (Holds::Reference, Json::String(to)) if to != "#" && !to.starts_with("#/") => {
                let keyword = &format!("$ref\": \"{to}");
                return Err(
                    self.error(keyword, "a reference can be `#`, or `#/` and a path in the schema itself")
                );
            }
            _ => return Ok(()),
        };
        self.below(name, |walk| {
            parts.into_iter().try_for_each(|(name, schema)| walk.below(&name, |walk| walk.schema(schema)))
        })
    }

    fn below(
        &mut self,
        name: &str,
        walk: impl FnOnce(&mut Self) -> Result<(), ConstraintError>,
    ) -> Result<(), ConstraintError> {
        let len = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        let done = walk(self);
        self.pointer.truncate(len);
        done
    }

    fn error(&self, keyword: &str, instead: &'static str) -> ConstraintError {
        ConstraintError::Keyword { keyword: keyword.to_owned(), pointer: self.pointer.clone(), instead }
    }
}

fn too_large(reason: String) -> ConstraintError {
    ConstraintError::Refused { kind: "JSON schema", reason }
}
