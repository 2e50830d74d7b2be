//! The signature on a request, and the secret behind it: the format of Standard Webhooks, so that a receiver
//! checks it with a ready library.
//!
//! # Invariants
//! - The secret comes from the environment: a command line is visible to every user of the machine.
//! - It has no `Debug` and no `Display`, and is cut out of every text that is stored or logged.
//! - The signature covers the id and the time, so that a receiver can reject repeated and old requests.
//! - It does not cover the URL. Receivers on different servers have different secrets, so none of them can pass a
//!   request on to another one as if it were meant for it: see [`Secret::shares_with`].
//! - Each receiver can have its own secret, and two of them while one replaces the other.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::cli::address::Environment;

/// The variable with the secret for every receiver.
pub const SECRET_VARIABLE: &str = "LEASEHOLD_HTTP_SECRET";
/// What a secret begins with. Base64 follows.
const PREFIX: &str = "whsec_";
/// Bytes of a key, as Standard Webhooks allows them.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Signatures per request: the new secret's, and the old one's during a change.
const MOST: usize = 2;

/// The secrets of one receiver, the newest first.
pub struct Secret(Vec<Key>);

struct Key {
    /// As the variable has it, without the prefix.
    text: String,
    bytes: Vec<u8>,
}

impl Key {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix(PREFIX)?;
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        KEY_BYTES.contains(&bytes.len()).then(|| Self { text: text.to_owned(), bytes })
    }
}

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
        let texts: Vec<&str> =
            found.iter().flat_map(|text| text.split(',')).map(str::trim).collect();
        let keys: Option<Vec<Key>> = texts.iter().map(|text| Key::parse(text)).collect();
        let problem = match keys {
            _ if texts.is_empty() => "is not set",
            _ if texts.len() > MOST => "holds more than two secrets",
            None => "is not a secret of Standard Webhooks",
            Some(keys) => return Ok(Self(keys)),
        };
        Err(format!(
            "requests are signed, but {variable} {problem}; set it to {PREFIX} and {} to {} bytes in base64, such \
             as the output of: echo {PREFIX}$(openssl rand -base64 32) (two secrets, new,old, while one is replaced)",
            KEY_BYTES.start(),
            KEY_BYTES.end()
        ))
    }

    /// Returns true if a receiver of one could sign a request to a receiver of the other.
    pub fn shares_with(&self, other: &Self) -> bool {
        self.0.iter().any(|key| other.0.iter().any(|theirs| theirs.bytes == key.bytes))
    }

    /// Returns the header's value: for each secret `v1,` and the HMAC-SHA256 of `id.timestamp.body` in
    /// base64, separated by blanks.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signatures: Vec<String> =
            self.0.iter().map(|key| signature(key, id, timestamp, body)).collect();
        signatures.join(" ")
    }

    /// Removes the secrets and these signatures from a text: a receiver may echo the request.
    pub fn cut_from(&self, text: &str, signatures: &str) -> String {
        let codes = signatures.split(' ').map(|signature| signature.trim_start_matches("v1,"));
        let without = codes.fold(text.to_owned(), |text, code| text.replace(code, "[signature]"));
        self.0.iter().fold(without, |text, key| text.replace(&key.text, "[secret]"))
    }
}

fn signature(key: &Key, id: &str, timestamp: i64, body: &[u8]) -> String {
    // HMAC takes a key of any length; the error exists for other constructions.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key.bytes) else {
        return String::new();
    };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

/// Returns the variable of a name: `email.send` has its secret in `LEASEHOLD_HTTP_SECRET_EMAIL_SEND`.
pub fn variable_of(name: &str) -> String {
    let word: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("{SECRET_VARIABLE}_{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret of this text, which is repeated to 32 bytes.
    fn text_of(key: &str) -> String {
        let bytes: Vec<u8> = key.bytes().cycle().take(32).collect();
        format!("{PREFIX}{}", BASE64_STANDARD.encode(bytes))
    }

    fn secret(text: &str) -> Secret {
        Secret::new(SECRET_VARIABLE, Some(text.to_owned())).expect("a secret")
    }

    /// The example in the tests of the libraries of Standard Webhooks.
    #[test]
    fn signature_equals_that_of_standard_webhooks() {
        let signed = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn h24_signature_depends_on_secret_id_time_and_body() {
        let (one, two) = (secret(&text_of("a")), secret(&text_of("b")));
        let all = [
            one.sign("id", 1, b"x"),
            one.sign("id", 2, b"x"),
            one.sign("id", 1, b"y"),
            one.sign("other", 1, b"x"),
            two.sign("id", 1, b"x"),
        ];
        for (n, signature) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(signature));
        }
    }

    #[test]
    fn h24_each_receiver_can_have_its_own_secret() {
        let environment = |name: &str| match name {
            "LEASEHOLD_HTTP_SECRET" => Some(text_of("all")),
            "LEASEHOLD_HTTP_SECRET_EMAIL_SEND" => Some(text_of("one")),
            _ => None,
        };
        let of = |name: &str| Secret::of(name, &environment).expect("set");
        assert_eq!(of("email.send").sign("id", 1, b""), secret(&text_of("one")).sign("id", 1, b""));
        assert_eq!(of("hook.call").sign("id", 1, b""), secret(&text_of("all")).sign("id", 1, b""));
        assert!(!of("email.send").shares_with(&of("hook.call")));
        assert!(of("hook.called").shares_with(&of("hook.call")));
    }

    #[test]
    fn h24_request_carries_both_signatures_while_a_secret_changes() {
        let (new, old) = (text_of("new"), text_of("old"));
        let both = secret(&format!("{new}, {old}"));
        let signed = both.sign("id", 1, b"x");
        let (newer, older) = (secret(&new), secret(&old));
        assert_eq!(signed, format!("{} {}", newer.sign("id", 1, b"x"), older.sign("id", 1, b"x")));
        assert!(both.shares_with(&older) && newer.shares_with(&both));
    }

    #[test]
    fn missing_or_malformed_secret_is_rejected_without_showing_it() {
        let good = "whsec_hunter2hunter2hunter2hunter2hunt";
        assert!(Key::parse(good).is_some());
        for bad in [
            None,
            Some(String::new()),
            Some("hunter2hunter2hunter2hunter2hunt".to_owned()), // no prefix
            Some("whsec_hunter2hunter2hunter2hunter2".to_owned()), // too short
            Some(format!("{good}!")),
            Some(format!("{good}{good}")),
            Some(format!("{good},{good},{good}")),
            Some(format!("{good},")),
        ] {
            let text = Secret::new(SECRET_VARIABLE, bad).err().expect("rejected");
            assert!(text.contains("openssl rand") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn h12_secrets_are_cut_from_texts() {
        let (new, old) = (text_of("new"), text_of("old"));
        let both = secret(&format!("{new},{old}"));
        let signed = both.sign("id", 1, b"x");
        let bare = old.trim_start_matches(PREFIX);
        assert_eq!(
            both.cut_from(&format!("got {signed} made with {new}, {bare}"), &signed),
            "got v1,[signature] v1,[signature] made with whsec_[secret], [secret]"
        );
    }
}
