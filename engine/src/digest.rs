//! SHA-256 digests: of models, of logits, of what is kept on disk.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; as text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Of a list of fields: the bytes that are hashed are, for each, its length in bytes (u64, little-endian)
    /// and itself, so that unlike lists are unlike bytes.
    pub fn of_fields(fields: &[&[u8]]) -> Self {
        let mut sha256 = Sha256::new();
        for field in fields {
            sha256.update((field.len() as u64).to_le_bytes());
            sha256.update(field);
        }
        Self(sha256.finalize().into())
    }
}

/// Token ids as bytes, each a little-endian u32.
pub(crate) fn ids_bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no SHA-256 digest; expected 64 hexadecimal digits")]
pub struct NotADigest(String);

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest(text.to_owned()))?;
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        // printf abc | sha256sum
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("\"{text}\""));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g")] {
            assert!(wrong.parse::<Digest>().unwrap_err().to_string().contains("64"), "{wrong}");
        }
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(Digest::of_fields(&[b"ab", b"c"]), Digest::of_fields(&[b"a", b"bc"]));
        assert_ne!(Digest::of_fields(&[b"", b"a"]), Digest::of_fields(&[b"a", b""]));
        assert_ne!(Digest::of_fields(&[b"a"]), Digest::of_fields(&[b"a", b""]));
        assert_eq!(Digest::of_fields(&[b"a"]), Digest::of(b"\x01\0\0\0\0\0\0\0a"));
    }
}
