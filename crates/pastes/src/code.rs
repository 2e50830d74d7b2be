//! Short codes and tokens: strings from outside, parsed before anything else sees them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The longest code or alias.
pub const LONGEST_CODE: usize = 32;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The service's own paths; an alias must not shadow them.
const RESERVED: [&str; 16] = [
    "api", "assets", "raw", "download", "qr", "mine", "healthz", "metrics", "console", "openapi",
    "robots", "favicon", "static", "admin", "login", "about",
];

/// The name of a paste in its URL: letters, digits, dash and underscore, at most 32.
///
/// Nothing else can become part of a query, a path or a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShortCode(Box<str>);

/// Why a text is no short code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a code must have 1 to {LONGEST_CODE} letters, digits, dashes and underscores")]
pub struct BadCode;

impl ShortCode {
    /// Returns a random code. With 22 characters (131 bits) it cannot be guessed.
    pub fn random(length: usize) -> Self {
        let length = length.clamp(6, LONGEST_CODE);
        Self((0..length).map(|_| char::from(BASE62[rand::random_range(0..62)])).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShortCode {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        let fits = (1..=LONGEST_CODE).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if fits { Ok(Self(text.into())) } else { Err(BadCode) }
    }
}

impl fmt::Display for ShortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A code that the user chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias(ShortCode);

impl Alias {
    /// Returns `None` if the text is malformed or is one of the service's own paths.
    pub fn parse(text: &str) -> Option<Self> {
        let code: ShortCode = text.parse().ok()?;
        let reserved = RESERVED.iter().any(|word| word.eq_ignore_ascii_case(text));
        (text.len() >= 3 && !reserved).then_some(Self(code))
    }

    pub fn into_code(self) -> ShortCode {
        self.0
    }
}

/// A token that a client sends to prove ownership. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(Box<str>);

impl Bearer {
    pub fn new(text: &str) -> Option<Self> {
        let fits =
            (16..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub fn is(&self, other: &str) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// An owner's token: it lists and deletes the pastes that were made with it. Only its hash is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerToken(Bearer);

impl OwnerToken {
    /// Returns a token of 256 random bits.
    pub fn random() -> Self {
        Self(Bearer((0..43).map(|_| char::from(BASE62[rand::random_range(0..62)])).collect()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        Bearer::new(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_str().as_bytes()).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_code_has_only_plain_characters() {
        for good in ["a", "aB3xYz", "my-paste_1", &"x".repeat(32)] {
            assert!(good.parse::<ShortCode>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "../x",
            "%2e%2e",
            "a/b",
            "a\\b",
            "a b",
            "ä",
            "a\0",
            "．．",
            &"x".repeat(33),
            "a'--",
        ] {
            assert!(bad.parse::<ShortCode>().is_err(), "{bad}");
        }
    }

    #[test]
    fn h9_random_code_has_more_than_128_bits() {
        let code = ShortCode::random(22);
        assert_eq!(code.as_str().len(), 22);
        assert!(22.0 * 62f64.log2() > 128.0);
        assert_ne!(code, ShortCode::random(22));
    }

    #[test]
    fn alias_cannot_shadow_our_own_paths() {
        assert!(Alias::parse("release-notes").is_some());
        for bad in ["api", "RAW", "Assets", "ab", "a/b"] {
            assert!(Alias::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn h8_token_is_not_printed_and_compares_in_constant_time() {
        let token = OwnerToken::random();
        assert!(!format!("{token:?}").contains(token.as_str()));
        assert!(Bearer::new(token.as_str()).is_some_and(|bearer| bearer.is(token.as_str())));
        assert!(Bearer::new(token.as_str()).is_some_and(|bearer| !bearer.is("other")));
    }
}
