//! Maps a receiver's response to an outcome. Pure: [`super::http`] passes the status and the body.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::{JobError, JobResult, Outcome};

/// For `--help`.
pub const TABLE: &str = "\
Meaning of a receiver's response:
  2xx              completed
  410              cancelled: the receiver does not want the job any more
  409, 422         dead: no attempt will help
  429 Retry-After  not now: snoozed until then, the attempt is not counted
  503 Retry-After  failed; retried then
  other            failed, redirects and timeouts included; retried after the backoff";

/// A longer `Retry-After` is cut to this: a receiver may not delay a job for longer at a time.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// `Retry-After: 0` must not cause a loop without a pause.
const SHORTEST: Duration = Duration::from_secs(1);

/// Maps a response to an outcome. `body` is the start of the response's body, safe to store.
pub fn judge(status: u16, retry_after: Option<&str>, body: &str, now: Timestamp) -> JobResult {
    let after = retry_after.and_then(|text| wait(text, now));
    match (status, after) {
        (200..=299, _) => Ok(Outcome::Complete),
        (410, _) => Ok(Outcome::Cancel(error_text(status, body))),
        (409 | 422, _) => Err(JobError::permanent(error_text(status, body))),
        (429, Some(after)) => Ok(Outcome::Snooze(after)),
        (503, Some(after)) => Ok(Outcome::Retry { after, why: error_text(status, body) }),
        _ => Err(JobError::retry(error_text(status, body))),
    }
}

fn error_text(status: u16, body: &str) -> String {
    let what = match status {
        300..=399 => "; redirects are not followed, name the final URL",
        _ => "",
    };
    match body.trim() {
        "" => format!("the receiver answered {status}{what}"),
        body => format!("the receiver answered {status}{what}: {body}"),
    }
}

/// Parses `Retry-After`: seconds, or an HTTP date.
fn wait(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            Duration::try_from(then.duration_since(now)).unwrap_or(SHORTEST)
        }
    };
    Some(wait.clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(status: u16, retry_after: Option<&str>) -> String {
        let now = "2015-10-21T07:28:00Z".parse().expect("a time");
        match judge(status, retry_after, " said so ", now) {
            Ok(outcome) => format!("{outcome:?}"),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn judge_maps_each_status() {
        for done in [200, 201, 202, 204, 299] {
            assert_eq!(at(done, None), "Complete");
        }
        assert_eq!(at(410, None), r#"Cancel("the receiver answered 410: said so")"#);
        for buried in [409, 422] {
            assert!(at(buried, None).contains("reason: Permanent"));
        }
        for again in [100, 301, 302, 307, 400, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
            let text = at(again, None);
            assert!(text.contains("reason: Failed") && text.contains(&again.to_string()), "{text}");
        }
    }

    #[test]
    fn retry_after_is_kept_within_bounds() {
        assert_eq!(at(429, Some("30")), "Snooze(30s)");
        assert_eq!(at(429, Some("0")), "Snooze(1s)");
        assert_eq!(at(429, Some("99999999999")), "Snooze(86400s)");
        assert_eq!(at(429, Some("Wed, 21 Oct 2015 07:30:00 GMT")), "Snooze(120s)");
        assert_eq!(at(429, Some("Sat, 21 Oct 1995 07:30:00 GMT")), "Snooze(1s)");
        assert!(at(429, Some("later")).contains("reason: Failed"));
        assert!(at(503, Some("7")).starts_with("Retry { after: 7s"));
        assert!(at(500, Some("7")).contains("reason: Failed"), "only 429 and 503 say when");
    }
}
