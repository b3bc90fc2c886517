//! Values that requests may write in more than one way.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

/// The bias from which on OpenAI's documentation says that a token is never chosen.
const NEVER_BIAS: f64 = -100.0;

/// A text, some texts, or null for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts(pub Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_unit<E: Error>(self) -> Result<Texts, E> {
                Ok(Texts::default())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

/// A seed: any whole number; negative ones count down from 2^64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seed(pub u64);

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;

        impl Visitor<'_> for Whole {
            type Value = Seed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, seed: u64) -> Result<Seed, E> {
                Ok(Seed(seed))
            }

            fn visit_i64<E: Error>(self, seed: i64) -> Result<Seed, E> {
                Ok(Seed(seed as u64))
            }
        }

        deserializer.deserialize_any(Whole)
    }
}

/// An object from token ids to numbers; -100 and less, false and "-inf" mean never.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Biases(pub Vec<(u32, f64)>);

impl<'de> Deserialize<'de> for Biases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ById;

        impl<'de> Visitor<'de> for ById {
            type Value = Biases;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from token ids to numbers")
            }

            fn visit_unit<E: Error>(self) -> Result<Biases, E> {
                Ok(Biases::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Biases, A::Error> {
                let mut biases = Vec::new();
                while let Some(id) = map.next_key::<String>()? {
                    let id =
                        id.parse().map_err(|_| A::Error::custom(format_args!("`{id}` is no token id")))?;
                    let bias = match map.next_value::<Json>()? {
                        Json::Bool(false) => f64::NEG_INFINITY,
                        Json::String(text) if text == "-inf" => f64::NEG_INFINITY,
                        other => other.as_f64().ok_or_else(|| {
                            A::Error::custom(format_args!(
                                "the bias of token {id} is {other}, but must be a number"
                            ))
                        })?,
                    };
                    biases.push((id, if bias <= NEVER_BIAS { f64::NEG_INFINITY } else { bias }));
                }
                Ok(Biases(biases))
            }
        }

        deserializer.deserialize_any(ById)
    }
}
