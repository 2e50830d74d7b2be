//! Sessions of the console: what a log-in gives a browser instead of the token.
//!
//! # Invariants
//! - A session ends 12 hours after its log-in, or at the log-out. Its cookie is random and signed; it
//!   reveals nothing of the token, and no two log-ins have the same one.
//! - Another token ends every session: the token is the key of the signature.
//!
//! # What can go wrong
//! - A cookie that was copied before the log-out: the process that handled the log-out rejects it until
//!   it expires. Another process behind the same address does not know of the log-out.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// How long a session lasts.
pub const LENGTH_SECONDS: u32 = 12 * 3600;
/// The most log-outs to remember. Beyond them the one that expires first is forgotten.
const ENDED_KEPT: usize = 10_000;

/// Signs sessions and remembers log-outs.
pub struct Sessions {
    key: String,
    /// The second in which a session would have expired, and its random part.
    ended: Mutex<BTreeMap<(i64, String), ()>>,
}

impl Sessions {
    pub fn new(key: String) -> Self {
        Self { key, ended: Mutex::default() }
    }

    /// Returns the cookie value of a new session: `end.random.signature`.
    pub fn begin(&self, now: Timestamp) -> String {
        let end = now.as_second() + i64::from(LENGTH_SECONDS);
        let random = format!("{:032x}", rand::random::<u128>());
        let signature = self.signature(end, &random);
        format!("{end}.{random}.{signature}")
    }

    pub fn is_valid(&self, value: &str, now: Timestamp) -> bool {
        self.read(value).is_some_and(|(end, random)| {
            let ended = self.ended.lock();
            end > now.as_second() && !ended.contains_key(&(end, random))
        })
    }

    /// Ends a session before its time.
    pub fn end(&self, value: &str, now: Timestamp) {
        let Some(session) = self.read(value) else { return };
        let mut ended = self.ended.lock();
        ended.retain(|(end, _), ()| *end > now.as_second());
        ended.insert(session, ());
        if ended.len() > ENDED_KEPT {
            ended.pop_first();
        }
    }

    /// Returns the parts of a cookie if this key signed it.
    fn read(&self, value: &str) -> Option<(i64, String)> {
        let mut parts = value.splitn(3, '.');
        let (end, random, shown) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let genuine: bool = self.signature(end, random).as_bytes().ct_eq(shown.as_bytes()).into();
        genuine.then(|| (end, random.to_owned()))
    }

    fn signature(&self, end: i64, random: &str) -> String {
        // HMAC takes a key of any length; the error exists for other constructions.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.key.as_bytes()) else {
            return String::new();
        };
        mac.update(format!("leasehold console session {end} {random}").as_bytes());
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn h23_session_ends_after_its_time() {
        let sessions = Sessions::new("token".to_owned());
        let cookie = sessions.begin(at(1000));
        assert!(sessions.is_valid(&cookie, at(1000)));
        assert!(sessions.is_valid(&cookie, at(1000 + i64::from(LENGTH_SECONDS) - 1)));
        assert!(!sessions.is_valid(&cookie, at(1000 + i64::from(LENGTH_SECONDS))));
    }

    #[test]
    fn h23_log_out_ends_one_session_only() {
        let sessions = Sessions::new("token".to_owned());
        let (one, two) = (sessions.begin(at(0)), sessions.begin(at(0)));
        assert_ne!(one, two);
        sessions.end(&one, at(1));
        assert!(!sessions.is_valid(&one, at(2)) && sessions.is_valid(&two, at(2)));
    }

    #[test]
    fn h23_forged_session_is_rejected() {
        let sessions = Sessions::new("token".to_owned());
        let cookie = sessions.begin(at(0));
        let (rest, signature) = cookie.rsplit_once('.').expect("a signature");
        let (_, random) = rest.split_once('.').expect("an end");
        for forged in [
            String::new(),
            "1.2.3".to_owned(),
            format!("99999999.{random}.{signature}"),
            Sessions::new("another".to_owned()).begin(at(0)),
        ] {
            assert!(!sessions.is_valid(&forged, at(1)), "{forged}");
        }
    }
}
