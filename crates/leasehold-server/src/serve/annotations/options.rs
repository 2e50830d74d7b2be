//! The operator's settings of the annotation service, by flag or by variable.
//!
//! Every default is the service's own: a flag that is not given changes nothing.

use std::net::SocketAddr;

use annotations::{Settings, Token};
use clap::Args;
use clap::builder::BoolishValueParser;

use super::index::IndexOptions;
use crate::exit::Failure;
use crate::serve::given::{Time, operator_token, set};
use crate::serve::web_options::{LimitsMut, web_options};

web_options! {
    WebOptions, "annotations", "ANNOTATIONS",
    write: "save", "SAVE", limits: "saves", "searches and reads",
    host: "notes.example.org", operator: "re-index"
}

/// The default address.
pub const LISTEN: &str = "127.0.0.1:8081";

/// Options of the annotation service.
#[derive(Args, Debug)]
#[command(next_help_heading = "Annotations")]
pub struct AnnotationOptions {
    /// Serve annotations at this address
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_LISTEN", value_name = "ADDRESS:PORT", default_value = LISTEN)]
    pub annotations_listen: SocketAddr,
    #[command(flatten)]
    pub index: IndexOptions,
    #[command(flatten)]
    web: WebOptions,
    /// Let users create their own accounts [default: false]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_SIGN_UP", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    annotations_sign_up: Option<bool>,
    /// Let pages of these origins read and write notes from a browser, such as
    /// https://www.example.org for a service at https://notes.example.org, separated by commas. Both must
    /// be of the same site: otherwise the browser withholds the log-in
    #[arg(
        long,
        env = "LEASEHOLD_ANNOTATIONS_ORIGINS",
        value_name = "ORIGINS",
        value_delimiter = ','
    )]
    annotations_origins: Vec<String>,
    /// Wait this long for the index before Postgres alone serves a search [default: 800ms]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_INDEX_LIMIT", value_name = "TIME")]
    annotations_index_limit: Option<Time>,
    /// Wait at least this long for the index; if searches usually take longer, wait four times their
    /// usual time [default: 25ms]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_INDEX_TIMEOUT", value_name = "TIME")]
    annotations_index_timeout: Option<Time>,
    /// Write to the index right after the commit, in the process that stored the note; its job writes what that
    /// missed [default: true]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_DIRECT", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    annotations_direct: Option<bool>,
    /// Check the index this long after a save [default: 60s]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_VERIFY_AFTER", value_name = "TIME")]
    annotations_verify_after: Option<Time>,
    /// Claim at most this many jobs per pass over the index [default: 2500]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_CLAIM_SIZE", value_name = "NUMBER")]
    annotations_claim_size: Option<usize>,
    /// Pause this long between two ranges of the full comparison [default: 10s]
    #[arg(long, env = "LEASEHOLD_ANNOTATIONS_CHECK_EVERY", value_name = "TIME")]
    annotations_check_every: Option<Time>,
}

impl AnnotationOptions {
    /// Returns the settings; `address` is where the service listens.
    pub fn settings(&self, address: &str) -> Result<Settings, Failure> {
        let mut settings =
            Settings { base_url: format!("http://{address}"), ..Settings::default() };
        set(&mut settings.sign_up, self.annotations_sign_up);
        settings.origins = origins(&self.annotations_origins);
        let limits = &mut settings.limits;
        let limits = LimitsMut {
            writes_per_second: &mut limits.saves_per_second,
            write_burst: &mut limits.save_burst,
            reads_per_second: &mut limits.reads_per_second,
            read_burst: &mut limits.read_burst,
            trusted_proxies: &mut limits.trusted_proxies,
        };
        self.web.apply(&mut settings.base_url, limits);
        settings.operator_token = operator_token(self.web.operator_token.as_deref(), Token::parse)?;
        set(&mut settings.index_limit, self.annotations_index_limit);
        set(&mut settings.index_timeout, self.annotations_index_timeout);
        set(&mut settings.direct, self.annotations_direct);
        set(&mut settings.verify_after, self.annotations_verify_after);
        set(&mut settings.claim_size, self.annotations_claim_size);
        set(&mut settings.check_every, self.annotations_check_every);
        settings.check()?;
        Ok(settings)
    }
}

/// Returns the given origins. An empty variable names none.
pub fn origins(given: &[String]) -> Vec<String> {
    given.iter().filter(|origin| !origin.is_empty()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::given::tests::{options, the_same};

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let options: AnnotationOptions = options(args)?;
        options.settings("127.0.0.1:1").map_err(|failure| failure.to_string())
    }

    #[test]
    fn settings_without_flags_are_the_defaults() {
        let given = settings(&[]).expect("settings");
        let own = Settings { base_url: "http://127.0.0.1:1".to_owned(), ..Settings::default() };
        assert_eq!(format!("{given:?}"), format!("{own:?}"));
    }

    #[test]
    fn flags_set_every_setting() {
        let given = settings(&[
            "--annotations-base-url=https://n.example",
            "--annotations-sign-up",
            "--annotations-origins=http://127.0.0.1:3000,http://127.0.0.1:3001",
            "--annotations-saves-per-second=1",
            "--annotations-save-burst=2",
            "--annotations-reads-per-second=3",
            "--annotations-read-burst=4",
            "--annotations-trusted-proxies=1",
            "--annotations-operator-token=0123456789abcdef",
            "--annotations-index-limit=1s",
            "--annotations-index-timeout=30ms",
            "--annotations-direct=no",
            "--annotations-verify-after=30s",
            "--annotations-claim-size=400",
            "--annotations-check-every=1m",
        ])
        .expect("settings");
        assert_eq!(the_same(&Settings::default(), &given), [""; 0], "cannot be set");
    }

    #[test]
    fn invalid_settings_are_rejected_with_a_reason() {
        for (bad, words) in [
            ("--annotations-base-url=example.org", "https://notes.example.org"),
            ("--annotations-origins=http://a/b", "without a path"),
            ("--annotations-operator-token=short", "16 to 128"),
            ("--annotations-claim-size=0", "10000"),
        ] {
            let refused = settings(&[bad]).expect_err(bad);
            assert!(refused.contains(words), "{bad}: {refused}");
        }
    }
}
