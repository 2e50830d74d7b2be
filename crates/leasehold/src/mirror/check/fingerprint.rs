//! The summand of a digest: 52 bits per key and version.

use sha2::{Digest as _, Sha256};

/// Returns the two halves of the fingerprint of a key in a version, 26 bits each.
///
/// The fingerprint is the first 52 bits of SHA-256 over `key:version`. Two halves, so that stores with
/// only double precision can add up 2²⁷ of them exactly. `leasehold_internal.fingerprint` is the same in SQL.
pub fn fingerprint(key: &str, version: i64) -> (u32, u32) {
    const HALF: u64 = (1 << 26) - 1;
    let hash = Sha256::digest(format!("{key}:{version}"));
    let bits = hash.iter().take(7).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)) >> 4;
    let half = |bits: u64| u32::try_from(bits & HALF).unwrap_or_default();
    (half(bits >> 26), half(bits))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn halves_are_the_first_52_bits_of_the_hash() {
        // printf 'a:1' | sha256sum
        let bits = 0x2b_2c40_a670_6d9e_u64 >> 4;
        let expected = ((bits >> 26) as u32, (bits & ((1 << 26) - 1)) as u32);
        assert_eq!(fingerprint("a", 1), expected);
    }
}
