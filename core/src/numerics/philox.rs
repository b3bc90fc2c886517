//! Philox4x32-10, the counter-based random number generator of sampling (Salmon et al., "Parallel random numbers: as
//! easy as 1, 2, 3", 2011). A draw is a function of its counter, so it does not depend on batching or order.

/// Ten rounds of Philox4x32.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = 0xD251_1F53 * u64::from(counter[0]);
        let second = 0xCD9E_8D57 * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// The random word of a token: key = low and high half of the seed, counter = (position of the token that is drawn,
/// token id, purpose, 0), first word of the result. Purpose 0 is the draw.
pub fn random_word(seed: u64, position: u32, token: u32, purpose: u32) -> u32 {
    philox4x32_10([position, token, purpose, 0], [seed as u32, (seed >> 32) as u32])[0]
}
