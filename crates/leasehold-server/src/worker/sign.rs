//! The signature on a request, and the secret behind it.
//!
//! # What is true
//! - The secret comes from the environment: a command line is visible to everyone on the machine.
//! - It has no `Debug` and no `Display`, and is cut out of every text that is stored or logged.
//! - The time stands under the signature, so a receiver can refuse what is old.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Where the secret comes from.
pub const SECRET_VARIABLE: &str = "LEASEHOLD_HTTP_SECRET";
const SHORTEST: usize = 16;

pub struct Secret(String);

impl Secret {
    /// `found` is what the environment holds.
    pub fn new(found: Option<String>) -> Result<Self, String> {
        let text = found.unwrap_or_default();
        if text.len() >= SHORTEST {
            return Ok(Self(text));
        }
        let problem = if text.is_empty() { "is not set" } else { "is too short" };
        Err(format!(
            "requests are signed, but {SECRET_VARIABLE} {problem}; set it to {SHORTEST} bytes or \
             more, such as the output of: openssl rand -hex 32"
        ))
    }

    /// The header's value: `v1=` and the HMAC-SHA256 of `timestamp.body` in hex.
    pub fn sign(&self, timestamp: i64, body: &[u8]) -> String {
        // A key of any length fits HMAC; the error exists for other constructions.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()) else {
            return String::new();
        };
        mac.update(timestamp.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        let mut signature = String::from("v1=");
        for byte in mac.finalize().into_bytes() {
            signature.push_str(&format!("{byte:02x}"));
        }
        signature
    }

    /// The text without the secret and without this signature: a receiver may send back what it
    /// was sent.
    pub fn cut_from(&self, text: &str, signature: &str) -> String {
        let code = signature.trim_start_matches("v1=");
        text.replace(&self.0, "[secret]").replace(code, "[signature]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_other_tools_make() {
        let secret = Secret::new(Some("correct horse battery staple".into())).expect("long enough");
        // printf '1700000000.{"v":1}' | openssl dgst -sha256 -hmac 'correct horse battery staple'
        let expected = "58366d7ddda42147f91a940b446cac842ced76c6d354d9b047f92201144ee5ad";
        assert_eq!(secret.sign(1_700_000_000, br#"{"v":1}"#), format!("v1={expected}"));
    }

    #[test]
    fn another_time_another_body_or_another_secret_make_another_signature() {
        let one = Secret::new(Some("a".repeat(16))).expect("long enough");
        let two = Secret::new(Some("b".repeat(16))).expect("long enough");
        let all = [one.sign(1, b"x"), one.sign(2, b"x"), one.sign(1, b"y"), two.sign(1, b"x")];
        for (n, signature) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(signature));
        }
    }

    #[test]
    fn a_missing_or_short_secret_is_refused_without_showing_it() {
        for bad in [None, Some(String::new()), Some("hunter2hunter2!".to_owned())] {
            let text = Secret::new(bad).err().expect("refused");
            assert!(text.contains("openssl rand") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn h12_the_secret_is_cut_from_texts() {
        let secret = Secret::new(Some("sixteen or more bytes".into())).expect("long enough");
        let signature = secret.sign(1, b"x");
        let echo = format!("got {signature} made with sixteen or more bytes, ok");
        assert_eq!(secret.cut_from(&echo, &signature), "got v1=[signature] made with [secret], ok");
    }
}
