//! The file of an entry.
//!
//! ```text
//! MAGIC | key, 32 bytes | length of the label, u32 | length of the value, u64 | SHA-256 of label and value | label | value
//! ```
//!
//! Numbers are little-endian.

use sha2::{Digest, Sha256};

use crate::key::Key;

const MAGIC: &[u8; 16] = b"unisonic cache 1";
/// What comes before the label.
pub const HEAD_LEN: usize = MAGIC.len() + 32 + 4 + 8 + 32;
/// The longest label.
const MAX_LABEL_LEN: usize = 1000;

/// The bytes of an entry. A label that is too long is cut.
pub fn write(key: &Key, label: &str, value: &[u8]) -> Vec<u8> {
    let end = (0..=label.len().min(MAX_LABEL_LEN)).rev().find(|&end| label.is_char_boundary(end));
    let label = &label[..end.unwrap_or(0)];
    let mut bytes = Vec::with_capacity(HEAD_LEN + label.len() + value.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&key.digest);
    bytes.extend_from_slice(&(label.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&digest(label.as_bytes(), value));
    bytes.extend_from_slice(label.as_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// The value of an entry; none if it is not what was written for this key.
pub fn read(mut bytes: Vec<u8>, key: &Key) -> Option<Vec<u8>> {
    let head = Head::of(&bytes)?;
    let value_at = HEAD_LEN.checked_add(head.label_len)?;
    let label = bytes.get(HEAD_LEN..value_at)?;
    let value = bytes.get(value_at..)?;
    let is_right =
        head.key == key.digest && head.value_len == value.len() as u64 && head.digest == digest(label, value);
    is_right.then(|| bytes.split_off(value_at))
}

/// The label of an entry that begins with these bytes.
pub fn label(bytes: &[u8]) -> Option<String> {
    let head = Head::of(bytes)?;
    let label = bytes.get(HEAD_LEN..)?.get(..head.label_len)?;
    Some(String::from_utf8_lossy(label).into_owned())
}

/// As much of an entry as [`label`] needs.
pub const LABEL_END: usize = HEAD_LEN + MAX_LABEL_LEN;

struct Head {
    key: [u8; 32],
    label_len: usize,
    value_len: u64,
    digest: [u8; 32],
}

impl Head {
    fn of(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (key, rest) = rest.split_first_chunk()?;
        let (label_len, rest) = rest.split_first_chunk()?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let digest = rest.first_chunk()?;
        let label_len = u32::from_le_bytes(*label_len) as usize;
        if label_len > MAX_LABEL_LEN {
            return None;
        }
        Some(Self { key: *key, label_len, value_len: u64::from_le_bytes(*value_len), digest: *digest })
    }
}

fn digest(label: &[u8], value: &[u8]) -> [u8; 32] {
    let mut sha256 = Sha256::new();
    sha256.update(label);
    sha256.update(value);
    sha256.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn only_what_was_written_is_read() {
        let key = Key::builder(Kind::SelfTest).field("a", "b").finish();
        let bytes = write(&key, "a label", b"the value");
        assert_eq!(read(bytes.clone(), &key).as_deref(), Some(&b"the value"[..]));
        assert_eq!(label(&bytes).as_deref(), Some("a label"));
        for len in 0..bytes.len() {
            assert_eq!(read(bytes[..len].to_vec(), &key), None, "cut after {len} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert_eq!(read(changed, &key), None, "byte {at} changed");
        }
        assert_eq!(read([&bytes[..], b"x"].concat(), &key), None, "something behind it");
        let other = Key::builder(Kind::SelfTest).field("a", "c").finish();
        assert_eq!(read(bytes, &other), None, "another key's");
        assert_eq!(read(write(&key, "", b""), &key).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let key = Key::builder(Kind::SelfTest).finish();
        let long = "ä".repeat(999);
        let bytes = write(&key, &format!("x{long}"), b"v");
        assert_eq!(label(&bytes).map(|label| label.len()), Some(999));
        assert_eq!(read(bytes, &key).as_deref(), Some(&b"v"[..]));
    }
}
