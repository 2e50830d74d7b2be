//! Delete tokens: derived from the paste's identity, checked without a query, never stored.
//!
//! # Invariants
//! - A token names the paste that it was made for. If the name is used again, the new paste has another
//!   token.
//! - The identity in a token is trusted only if the rest, an HMAC under the database's own secret,
//!   matches; the comparison takes constant time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::code::ShortCode;

/// Hexadecimal digits of the identity, and of the HMAC: 128 bits each.
const HALF: usize = 32;

/// The key that delete tokens are derived from.
pub struct TokenKey(Hmac<Sha256>);

impl TokenKey {
    /// Returns `None` if the secret is unusable. HMAC accepts keys of every length, so this does not
    /// happen.
    pub fn new(secret: &[u8]) -> Option<Self> {
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// Returns the token that deletes a paste.
    pub fn token(&self, code: &ShortCode, paste: Uuid) -> String {
        let mut token = paste.simple().to_string();
        for byte in self.mac(code, paste) {
            use std::fmt::Write;
            // Writing to a string does not fail.
            let _ = write!(token, "{byte:02x}");
        }
        token
    }

    /// Returns the paste that a token deletes, or `None` if the token was not made for this code.
    pub fn paste(&self, code: &ShortCode, token: &str) -> Option<Uuid> {
        use subtle::ConstantTimeEq;
        let (paste, _) = token.split_at_checked(HALF)?;
        let paste = Uuid::try_parse(paste).ok()?;
        let right = self.token(code, paste);
        bool::from(right.as_bytes().ct_eq(token.as_bytes())).then_some(paste)
    }

    fn mac(&self, code: &ShortCode, paste: Uuid) -> [u8; HALF / 2] {
        let mut mac = self.0.clone();
        mac.update(b"delete ");
        mac.update(paste.as_bytes());
        mac.update(code.as_str().as_bytes());
        let whole = mac.finalize().into_bytes();
        std::array::from_fn(|at| whole.get(at).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> ShortCode {
        text.parse().expect("a code")
    }

    #[test]
    fn e25_token_names_one_paste_under_one_code() {
        let key = TokenKey::new(b"secret").expect("a key");
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let token = key.token(&code("notes"), one);
        assert_eq!(token.len(), 2 * HALF);
        assert_eq!(key.paste(&code("notes"), &token), Some(one));
        assert_eq!(key.paste(&code("other"), &token), None);
        assert_ne!(token, key.token(&code("notes"), other));
        let (_, mac) = token.split_at(HALF);
        let forged = format!("{}{mac}", other.simple());
        let (long, upper) = (format!("{token}0"), token.to_uppercase());
        for wrong in [forged.as_str(), "", "x", mac, &long, &upper] {
            assert_eq!(key.paste(&code("notes"), wrong), None, "{wrong}");
        }
        let another = TokenKey::new(b"another").expect("a key");
        assert_eq!(another.paste(&code("notes"), &token), None);
    }
}
