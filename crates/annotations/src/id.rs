//! Ids and tokens: random, and parsed before they are used.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const BASE: u128 = 62;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62²² > 2¹²⁸.
const LENGTH: usize = 22;

/// The id of an annotation: a random number of 128 bits, in base 62.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AnnotationId(String);

/// Not an id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id must have 22 letters and digits")]
pub struct BadId;

impl AnnotationId {
    pub fn random() -> Self {
        Self(base62(rand::random::<u128>(), LENGTH))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AnnotationId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let fits = text.len() == LENGTH && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if fits { Ok(Self(text.to_owned())) } else { Err(BadId) }
    }
}

impl fmt::Display for AnnotationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the id of a new group: its 12 characters have 71 bits, too many to guess through a rate
/// limit.
pub fn random_group() -> String {
    base62(rand::random::<u128>() % BASE.pow(12), 12)
}

fn base62(mut number: u128, length: usize) -> String {
    let mut digits = vec![b'0'; length];
    for place in digits.iter_mut().rev() {
        let digit = usize::try_from(number % BASE).unwrap_or_default();
        *place = DIGITS.get(digit).copied().unwrap_or(b'0');
        number /= BASE;
    }
    String::from_utf8(digits).unwrap_or_default()
}

/// The credential of a user or program. Only its hash is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// 256 bits.
    pub fn random() -> Self {
        let (high, low) = (rand::random::<u128>(), rand::random::<u128>());
        Self(format!("{}{}", base62(high, LENGTH), base62(low, LENGTH)))
    }

    /// Returns `None` if the text does not have the form of a token.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (16..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what the database stores.
    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }

    /// Compares in constant time.
    pub fn is(&self, other: &Self) -> bool {
        self.hash().ct_eq(&other.hash()).into()
    }
}

/// Hides the token, which must not reach a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_parse_and_other_texts_do_not() {
        for _ in 0..100 {
            let id = AnnotationId::random();
            assert_eq!(id.as_str().parse(), Ok(id.clone()));
        }
        assert_eq!(base62(u128::MAX, LENGTH).len(), 22);
        assert_eq!(base62(61, 3), "00z");
        for bad in
            ["", "a", "../../../../etc/passwd", "aaaaaaaaaaaaaaaaaaaaa-", "äaaaaaaaaaaaaaaaaaaaa"]
        {
            assert_eq!(bad.parse::<AnnotationId>(), Err(BadId), "{bad}");
        }
    }

    #[test]
    fn h8_tokens_compare_by_hash_and_hide_in_debug_output() {
        let token = Token::random();
        assert!(Token::parse(token.as_str()).is_some_and(|same| same.is(&token)));
        assert!(!Token::random().is(&token));
        assert!(!format!("{token:?}").contains(token.as_str()));
        assert!(
            Token::parse("short").is_none() && Token::parse("with a space in the middle").is_none()
        );
    }
}
