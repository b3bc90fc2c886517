//! Options of sampling whose JSON is not that of their types.

/// Tokens of the window, or -1 for all.
pub(super) mod window {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::sampling::Window;

    pub fn serialize<S: Serializer>(window: &Window, serializer: S) -> Result<S::Ok, S::Error> {
        match *window {
            Window::All => serializer.serialize_i64(-1),
            Window::Last(len) => serializer.serialize_u32(len),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Window, D::Error> {
        match i64::deserialize(deserializer)? {
            -1 => Ok(Window::All),
            len => u32::try_from(len).map(Window::Last).map_err(|_| {
                D::Error::custom(format_args!("repeat_last_n is {len}, but must be -1 (all) to {}", u32::MAX))
            }),
        }
    }
}

/// An object from ids, as text, to numbers, or `"-inf"`.
pub(super) mod biases {
    use std::fmt;

    use serde::de::{Error, MapAccess, Visitor};
    use serde::ser::SerializeMap;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// A number that JSON may lack.
    #[derive(Serialize, Deserialize)]
    #[serde(untagged, expecting = "expected a number or \"-inf\"")]
    enum Bias {
        Number(f64),
        Text(Never),
    }

    #[derive(Serialize, Deserialize)]
    enum Never {
        #[serde(rename = "-inf")]
        Never,
    }

    pub fn serialize<S: Serializer>(biases: &[(u32, f64)], serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(biases.len()))?;
        for &(id, bias) in biases {
            let never = bias == f64::NEG_INFINITY;
            map.serialize_entry(&id, &if never { Bias::Text(Never::Never) } else { Bias::Number(bias) })?;
        }
        map.end()
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u32, f64)>, D::Error> {
        deserializer.deserialize_map(Biases)
    }

    struct Biases;

    impl<'de> Visitor<'de> for Biases {
        type Value = Vec<(u32, f64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object from token ids to numbers")
        }

        // Not into a map: an id that occurs twice is an error, which the check of the options tells.
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut biases = Vec::new();
            while let Some(id) = map.next_key::<String>()? {
                let id = id.parse().map_err(|_| {
                    A::Error::custom(format_args!("logit_bias has `{id}`, which is no token id"))
                })?;
                let bias = match map.next_value()? {
                    Bias::Number(bias) => bias,
                    Bias::Text(Never::Never) => f64::NEG_INFINITY,
                };
                biases.push((id, bias));
            }
            Ok(biases)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sampling::{SamplerOptions, Window};

    fn read(json: &str) -> Result<SamplerOptions, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        assert_eq!(read("{}"), Ok(SamplerOptions::default()));
        let options = SamplerOptions {
            temperature: 0.1 + 0.2,
            top_k: Some(5),
            typical: Some(0.5),
            repeat_window: Window::All,
            logit_bias: vec![(7, f64::NEG_INFINITY), (3, 1e-3)],
            seed: u64::MAX,
            ..SamplerOptions::default()
        };
        let json = serde_json::to_string(&options).unwrap();
        assert!(
            json.contains(r#""repeat_last_n":-1"#) && json.contains(r#"{"7":"-inf","3":0.001}"#),
            "{json}"
        );
        assert_eq!(read(&json), Ok(options));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, said) in [
            (r#"{"temprature": 1}"#, "temprature"),
            (r#"{"top_k": -1}"#, "-1"),
            (r#"{"temperature": "hot"}"#, "hot"),
            (r#"{"repeat_last_n": -2}"#, "repeat_last_n is -2"),
            (r#"{"logit_bias": {"x": 1}}"#, "`x`"),
            (r#"{"logit_bias": {"1": "inf"}}"#, "-inf"),
            (r#"{"logit_bias": [1]}"#, "object"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(said), "{json}: {error}");
        }
        let twice = read(r#"{"logit_bias": {"1": 1, "1": 2}}"#).unwrap();
        assert!(twice.check(10).unwrap_err().to_string().contains("twice"));
    }
}
