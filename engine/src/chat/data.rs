//! What a conversation has beside texts: tools and their calls, as JSON whose members keep their order.

use std::fmt;

use minijinja::Value;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

use super::ChatError;

/// JSON in the order in which it was written: that is how models were trained to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text; never parsed for special tokens.
    Text(String),
    /// A list.
    List(Vec<Data>),
    /// An object.
    Object(Vec<(String, Data)>),
}

impl Data {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// An object.
    pub fn object<const N: usize>(members: [(&str, Data); N]) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Data> {
        match self {
            Self::Object(members) => members.iter().find(|(of, _)| of == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// All texts in it, names of members included.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        let mut left = vec![self];
        while let Some(data) = left.pop() {
            match data {
                Self::Text(text) => texts.push(text.as_str()),
                Self::List(items) => left.extend(items),
                Self::Object(members) => {
                    texts.extend(members.iter().map(|(name, _)| name.as_str()));
                    left.extend(members.iter().map(|(_, value)| value));
                }
                Self::Null | Self::Bool(_) | Self::Number(_) => {}
            }
        }
        texts
    }

    /// What it weighs in a template, about.
    pub(super) fn len_bytes(&self) -> usize {
        const NODE_LEN_BYTES: usize = 32;
        let inside = match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 0,
            Self::Text(text) => text.len(),
            Self::List(items) => items.iter().map(Data::len_bytes).sum(),
            Self::Object(members) => members.iter().map(|(name, value)| name.len() + value.len_bytes()).sum(),
        };
        NODE_LEN_BYTES + inside
    }

    /// For a template, each text prepared by `shield`.
    pub(super) fn value(
        &self,
        shield: &dyn Fn(&str) -> Result<String, ChatError>,
    ) -> Result<Value, ChatError> {
        Ok(match self {
            Self::Null => Value::from(()),
            Self::Bool(bool) => Value::from(*bool),
            Self::Number(number) => number_value(number),
            Self::Text(text) => Value::from(shield(text)?),
            Self::List(items) => {
                let items: Result<Vec<Value>, ChatError> =
                    items.iter().map(|item| item.value(shield)).collect();
                Value::from(items?)
            }
            Self::Object(members) => {
                let mut values = Vec::with_capacity(members.len());
                for (name, value) in members {
                    values.push((shield(name)?, value.value(shield)?));
                }
                Value::from_pairs(values)
            }
        })
    }
}

fn number_value(number: &Number) -> Value {
    let whole = number.as_i64().map(Value::from).or_else(|| number.as_u64().map(Value::from));
    whole.unwrap_or_else(|| Value::from(number.as_f64().unwrap_or(f64::NAN)))
}

impl fmt::Display for Data {
    /// As JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Self::Object(members) => {
                let mut object = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, value)| object.serialize_entry(name, value))?;
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Data;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E: Error>(self) -> Result<Data, E> {
                Ok(Data::Null)
            }

            fn visit_bool<E: Error>(self, bool: bool) -> Result<Data, E> {
                Ok(Data::Bool(bool))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Data, E> {
                Ok(Data::Number(number.into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Data, E> {
                Ok(Data::Number(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Data, E> {
                Ok(Number::from_f64(number).map_or(Data::Null, Data::Number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Data, E> {
                Ok(Data::text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Data, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Data::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Data::Object(members))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order() {
        let json = r#"{"type":"function","b":[1,-2,0.5,null,true,"é"],"a":{}}"#;
        let data: Data = serde_json::from_str(json).expect("JSON");
        assert_eq!(data.to_string(), json);
        assert_eq!(data.get("type").and_then(Data::as_text), Some("function"));
        let value = data.value(&|text| Ok(text.to_uppercase())).expect("a value");
        assert_eq!(value.to_string(), "{'TYPE': 'FUNCTION', 'B': [1, -2, 0.5, None, True, 'É'], 'A': {}}");
    }
}
