//! What keys and values depend on beside the tokens.

/// Sequences share pages only under equal keys: keys and values are a function of the key and the tokens.
///
/// A salt separates callers who must not learn from the speed of an answer what others asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey {
    /// Digest of the model's weights; may stay empty where pages do not outlive the engine, which has one model.
    pub weights: Vec<u8>,
    /// The arithmetic ([`DeviceInfo::profile`](unisonic_core::plan::DeviceInfo::profile)).
    pub profile: String,
    /// Name or digest of an adapter; empty for none.
    pub adapter: Vec<u8>,
    /// The caller's own.
    pub salt: Vec<u8>,
}

impl CacheKey {
    /// The key as bytes for digests and files: each field in the order above, as its length in bytes (u64,
    /// little-endian) and its bytes. Unlike keys have unlike bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let fields = [&self.weights, self.profile.as_bytes(), &self.adapter, &self.salt];
        fields.iter().flat_map(|field| [&(field.len() as u64).to_le_bytes(), *field].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report 1.12 (vLLM #44701): fields that join to the same bytes.
    #[test]
    fn a_salt_is_never_taken_for_an_adapter() {
        let adapter = CacheKey { adapter: b"x".to_vec(), ..CacheKey::default() };
        let salt = CacheKey { salt: b"x".to_vec(), ..CacheKey::default() };
        assert_ne!(adapter.to_bytes(), salt.to_bytes());
        let key = |profile: &str, adapter: &[u8], salt: &[u8]| CacheKey {
            weights: vec![7],
            profile: profile.into(),
            adapter: adapter.to_vec(),
            salt: salt.to_vec(),
        };
        let keys =
            [key("u1", b"ab", b"c"), key("u1", b"a", b"bc"), key("u1", b"", b"abc"), key("u", b"1ab", b"c")];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a.to_bytes(), b.to_bytes(), "{a:?} {b:?}");
            }
        }
        assert_eq!(
            key("u1", b"", b"s").to_bytes(),
            b"\x01\0\0\0\0\0\0\0\x07\x02\0\0\0\0\0\0\0u1\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0s"
        );
    }
}
