//! The signature on a request, and the secret behind it.
//!
//! # Invariants
//! - The secret comes from the environment: a command line is visible to every user of the machine.
//! - It has no `Debug` and no `Display`, and is cut out of every text that is stored or logged.
//! - The signature covers the time, so that a receiver can reject old requests, and the URL, so that a
//!   receiver cannot forward a request to another one as if it were meant for it.
//! - Each receiver can have its own secret, and two of them while one replaces the other.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::cli::address::Environment;

/// The variable with the secret for every receiver.
pub const SECRET_VARIABLE: &str = "LEASEHOLD_HTTP_SECRET";
const SHORTEST: usize = 16;
/// Signatures per request: the new secret's, and the old one's during a change.
const MOST: usize = 2;

/// The secrets of one receiver, the newest first.
pub struct Secret(Vec<String>);

impl Secret {
    /// Returns the secret of one receiver: from its own variable, else from the one for every receiver.
    pub fn of(name: &str, environment: Environment<'_>) -> Result<Self, String> {
        let own = variable_of(name);
        match environment(&own) {
            Some(found) => Self::new(&own, Some(found)),
            None => Self::new(SECRET_VARIABLE, environment(SECRET_VARIABLE)),
        }
    }

    /// `found` is the value of the variable: one secret, or `new,old`.
    fn new(variable: &str, found: Option<String>) -> Result<Self, String> {
        let texts: Vec<String> = found
            .iter()
            .flat_map(|text| text.split(','))
            .map(|one| one.trim().to_owned())
            .collect();
        let problem = match texts.as_slice() {
            [] => "is not set",
            texts if texts.len() > MOST => "holds more than two secrets",
            texts if texts.iter().any(|text| text.len() < SHORTEST) => "is too short",
            _ => return Ok(Self(texts)),
        };
        Err(format!(
            "requests are signed, but {variable} {problem}; set it to {SHORTEST} bytes or more, such \
             as the output of: openssl rand -hex 32 (two secrets, new,old, while one is replaced)"
        ))
    }

    /// Returns the header's value: for each secret `v2=` and the HMAC-SHA256 of `timestamp.url.body` in
    /// hex, separated by commas.
    pub fn sign(&self, timestamp: i64, url: &str, body: &[u8]) -> String {
        let signatures: Vec<String> =
            self.0.iter().map(|secret| signature(secret, timestamp, url, body)).collect();
        signatures.join(",")
    }

    /// Removes the secrets and these signatures from a text: a receiver may echo the request.
    pub fn cut_from(&self, text: &str, signatures: &str) -> String {
        let codes = signatures.split(',').map(|signature| signature.trim_start_matches("v2="));
        let without = codes.fold(text.to_owned(), |text, code| text.replace(code, "[signature]"));
        self.0.iter().fold(without, |text, secret| text.replace(secret, "[secret]"))
    }
}

fn signature(secret: &str, timestamp: i64, url: &str, body: &[u8]) -> String {
    // HMAC takes a key of any length; the error exists for other constructions.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return String::new();
    };
    mac.update(format!("{timestamp}.{url}.").as_bytes());
    mac.update(body);
    let mut signature = String::from("v2=");
    for byte in mac.finalize().into_bytes() {
        signature.push_str(&format!("{byte:02x}"));
    }
    signature
}

/// Returns the variable of a name: `email.send` has its secret in `LEASEHOLD_HTTP_SECRET_EMAIL_SEND`.
fn variable_of(name: &str) -> String {
    let word: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("{SECRET_VARIABLE}_{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://example.com/jobs";

    fn secret(text: &str) -> Secret {
        Secret::new(SECRET_VARIABLE, Some(text.to_owned())).expect("long enough")
    }

    #[test]
    fn signature_equals_that_of_openssl() {
        // printf '1700000000.https://example.com/jobs.{"v":1}' |
        //     openssl dgst -sha256 -hmac 'correct horse battery staple'
        let expected = "23f04d5157bcdde9fdc0a00bbb732de94f41760ec0bea4c23b6e5997c0009615";
        let signed = secret("correct horse battery staple").sign(1_700_000_000, URL, br#"{"v":1}"#);
        assert_eq!(signed, format!("v2={expected}"));
    }

    #[test]
    fn h24_signature_depends_on_secret_time_url_and_body() {
        let (one, two) = (secret(&"a".repeat(16)), secret(&"b".repeat(16)));
        let all = [
            one.sign(1, URL, b"x"),
            one.sign(2, URL, b"x"),
            one.sign(1, URL, b"y"),
            one.sign(1, "https://example.org/jobs", b"x"),
            two.sign(1, URL, b"x"),
        ];
        for (n, signature) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(signature));
        }
    }

    #[test]
    fn h24_each_receiver_can_have_its_own_secret() {
        let environment = |name: &str| match name {
            "LEASEHOLD_HTTP_SECRET" => Some("the secret of all".to_owned()),
            "LEASEHOLD_HTTP_SECRET_EMAIL_SEND" => Some("the secret of one".to_owned()),
            _ => None,
        };
        let signed = |name: &str| Secret::of(name, &environment).expect("set").sign(1, URL, b"");
        assert_eq!(signed("email.send"), secret("the secret of one").sign(1, URL, b""));
        assert_eq!(signed("hook.call"), secret("the secret of all").sign(1, URL, b""));
    }

    #[test]
    fn h24_request_carries_both_signatures_while_a_secret_changes() {
        let signed = secret("the newer secret, the older secret").sign(1, URL, b"x");
        let newer = secret("the newer secret").sign(1, URL, b"x");
        let older = secret("the older secret").sign(1, URL, b"x");
        assert_eq!(signed, format!("{newer},{older}"));
    }

    #[test]
    fn missing_or_short_secret_is_rejected_without_showing_it() {
        let long = "hunter2hunter2!!";
        let three = format!("{long},{long},{long}");
        for bad in [None, Some(String::new()), Some("hunter2hunter2!".to_owned()), Some(three)] {
            let text = Secret::new(SECRET_VARIABLE, bad).err().expect("rejected");
            assert!(text.contains("openssl rand") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn h12_secrets_are_cut_from_texts() {
        let secret = secret("sixteen or more bytes,another of sixteen");
        let signed = secret.sign(1, URL, b"x");
        let echo = format!("got {signed} made with sixteen or more bytes, another of sixteen");
        assert_eq!(
            secret.cut_from(&echo, &signed),
            "got v2=[signature],v2=[signature] made with [secret], [secret]"
        );
    }
}
