//! What an operator can set. Every option has a default that is safe on the open internet.

use std::time::Duration;

use crate::error::StartError;
use crate::id::Token;

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What links begin with, without a slash at the end.
    /// Default: `http://127.0.0.1:8081`.
    pub base_url: String,
    /// Users may create accounts for themselves. Default: off.
    pub sign_up: bool,
    /// Pages of these origins, such as `http://127.0.0.1:3000`, may read and write notes from a browser.
    /// A user's log-in counts there if page and service are of the same site. Default: none.
    pub origins: Vec<String>,
    pub limits: Limits,
    /// Allows its bearer to re-index and move groups. Default: none.
    pub operator_token: Option<Token>,
    /// The longest that a search waits for the index before Postgres serves searches alone. Longer: more responses
    /// from a slow index. Shorter: fewer users wait for one that is down. Default: 800 ms.
    pub index_limit: Duration,
    /// The least time that a search waits for the index before Postgres serves searches alone. A search waits
    /// four times as long as the index usually takes, if that is longer. Longer: users do not notice a
    /// slow moment of the index. Shorter: they do not notice an outage.
    ///
    /// Default: 25 ms.
    pub index_timeout: Duration,
    /// Writes to the index right after the commit, in the process that handled the save; the job is then
    /// the safety net. Default: on.
    pub direct: bool,
    /// How long after a save its job checks the index. Default: 60 s.
    pub verify_after: Duration,
    /// Jobs that one pass over the index claims. Default: 2500.
    pub claim_size: usize,
    /// Pause between two ranges when the check compares everything. Default: 10 s.
    pub check_every: Duration,
}

/// How much one client may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Saves per second from one address; 0: no limit. Default: 10.
    pub saves_per_second: u32,
    /// Default: 50.
    pub save_burst: u32,
    /// Searches and reads per second from one address; 0: no limit. Default: 60.
    pub reads_per_second: u32,
    /// Default: 200.
    pub read_burst: u32,
    /// The number of trusted proxies in front of the service. Each adds an address to X-Forwarded-For;
    /// with 0 the header is ignored, because any client can set it. Default: 0.
    pub trusted_proxies: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8081".to_owned(),
            sign_up: false,
            origins: Vec::new(),
            limits: Limits::default(),
            operator_token: None,
            index_limit: Duration::from_millis(800),
            index_timeout: Duration::from_millis(25),
            direct: true,
            verify_after: Duration::from_secs(60),
            claim_size: 2500,
            check_every: Duration::from_secs(10),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            saves_per_second: 10,
            save_burst: 50,
            reads_per_second: 60,
            read_burst: 200,
            trusted_proxies: 0,
        }
    }
}

impl Settings {
    /// Checks that the settings fit together, before anything starts.
    pub fn check(&self) -> Result<(), StartError> {
        let bad = |text: String| Err(StartError::Settings(text));
        if !is_origin(&self.base_url) {
            return bad(format!(
                "base URL is {:?}; it must be a URL such as https://notes.example.org",
                self.base_url
            ));
        }
        for origin in &self.origins {
            if !is_origin(origin) || origin.matches('/').count() != 2 {
                return bad(format!(
                    "origin is {origin:?}; it must be one such as http://127.0.0.1:3000, without a path"
                ));
            }
        }
        if self.index_limit.is_zero() || self.index_limit > Duration::from_secs(10) {
            let limit = self.index_limit;
            return bad(format!("index limit is {limit:?}; it must be between 1 ms and 10 s"));
        }
        if self.claim_size == 0 || self.claim_size > 10_000 {
            return bad(format!(
                "claim_size is {}; it must be between 1 and 10000 jobs",
                self.claim_size
            ));
        }
        Ok(())
    }
}

fn is_origin(text: &str) -> bool {
    url::Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_with_a_reason() {
        assert!(Settings::default().check().is_ok());
        let with = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(with(&|s| s.base_url = "example.org".into()).contains("https://"));
        assert!(with(&|s| s.origins = vec!["http://a/b".into()]).contains("without a path"));
        assert!(with(&|s| s.index_limit = Duration::ZERO).contains("between"));
        assert!(with(&|s| s.claim_size = 0).contains("10000"));
        assert!(with(&|s| s.origins = vec!["http://127.0.0.1:3000".into()]).is_empty());
    }
}
