//! The operator's settings of the paste service, by flag or by variable.
//!
//! Every default is the service's own: a flag that is not given changes nothing.

use clap::Args;
use clap::builder::BoolishValueParser;
use pastes::{Bearer, GateKind, Settings, When};

use crate::exit::Failure;
use crate::serve::given::{Size, Time, operator_token, set};
use crate::serve::web_options::{LimitsMut, web_options};

web_options! {
    WebOptions, "pastes", "PASTES",
    write: "create", "CREATE", limits: "pastes", "reads",
    host: "paste.example.org", operator: "see reports, take pastes down and ban content"
}

/// Options of the paste service.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Pastes")]
pub struct PasteOptions {
    #[command(flatten)]
    web: WebOptions,
    /// Expire pastes after this time if the author does not choose one [default: 30d]
    #[arg(long, env = "LEASEHOLD_PASTES_DEFAULT_EXPIRY", value_name = "TIME")]
    pastes_default_expiry: Option<Time>,
    /// Limit the expiry that an author may choose [default: 365d]
    #[arg(long, env = "LEASEHOLD_PASTES_MAX_EXPIRY", value_name = "TIME")]
    pastes_max_expiry: Option<Time>,
    /// Limit the size of a paste [default: 1MiB]
    #[arg(long, env = "LEASEHOLD_PASTES_MAX_SIZE", value_name = "SIZE")]
    pastes_max_size: Option<Size>,
    /// Set the length of codes, 6 to 32. A shorter code is easier to type and to guess [default: 22]
    #[arg(long, env = "LEASEHOLD_PASTES_CODE_LENGTH", value_name = "NUMBER")]
    pastes_code_length: Option<usize>,
    /// Serve a paste during its upload, instead of sending 503 [default: false]
    #[arg(long, env = "LEASEHOLD_PASTES_SERVE_STAGED", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pastes_serve_staged: Option<bool>,
    /// Upload right after the commit, in the process that stored the paste; its job uploads what that missed
    /// [default: true]
    #[arg(long, env = "LEASEHOLD_PASTES_DIRECT_UPLOAD", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pastes_direct_upload: Option<bool>,
    /// Send this Retry-After to readers of a paste during its upload [default: 30s]
    #[arg(long, env = "LEASEHOLD_PASTES_RETRY_AFTER", value_name = "TIME")]
    pastes_retry_after: Option<Time>,
    /// Limit the bytes that wait for upload; beyond it the service rejects pastes with 503
    /// [default: 1GiB]
    #[arg(long, env = "LEASEHOLD_PASTES_STAGING_QUOTA", value_name = "SIZE")]
    pastes_staging_quota: Option<Size>,
    /// Limit the bytes of all content; beyond it the service rejects pastes with 507. Counted twice per
    /// minute [default: no limit]
    #[arg(long, env = "LEASEHOLD_PASTES_QUOTA", value_name = "SIZE")]
    pastes_quota: Option<Size>,
    /// Cache recently read pastes in this much memory [default: 64MiB]
    #[arg(long, env = "LEASEHOLD_PASTES_CACHE", value_name = "SIZE")]
    pastes_cache: Option<Size>,
    /// Serve a cached response for this time without asking the database: a deleted paste stays visible
    /// that long. At most 1s [default: 500ms]
    #[arg(long, env = "LEASEHOLD_PASTES_RECHECK", value_name = "TIME")]
    pastes_recheck: Option<Time>,
    /// Keep the row of a deleted paste for this time, for audits; a random code is not reused
    /// meanwhile, a chosen name is [default: 7d]
    #[arg(long, env = "LEASEHOLD_PASTES_TOMBSTONES", value_name = "TIME")]
    pastes_tombstones: Option<Time>,
    /// Make the service private: only clients with this token create pastes, as X-Create-Token or on the
    /// page; reading needs none. 16 to 128 characters. Put it into the environment: every user of the
    /// machine can read a command line [default: every client creates pastes]
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_CREATE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pastes_create_token: Option<String>,
    /// Delete expired pastes every night at this time, such as 02:30 [default: 00:00]
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_EXPIRY_AT",
        value_name = "HH:MM",
        conflicts_with = "pastes_expiry_every"
    )]
    pastes_expiry_at: Option<String>,
    /// Read --pastes-expiry-at in this time zone, such as Europe/Madrid [default: UTC]
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_EXPIRY_ZONE",
        value_name = "ZONE",
        conflicts_with = "pastes_expiry_every"
    )]
    pastes_expiry_zone: Option<String>,
    /// Delete expired pastes all day instead, with this pause between runs
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_EVERY", value_name = "TIME")]
    pastes_expiry_every: Option<Time>,
    /// Keep workers from claiming the same rows at the same time by this gate: none, advisory, or
    /// redis://… [default: advisory]
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_GATE", hide_env_values = true, value_name = "GATE", value_parser = parse_gate)]
    pastes_expiry_gate: Option<GateKind>,
    /// Claim this many expired pastes at a time [default: 1000]
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_CLAIM_SIZE", value_name = "NUMBER")]
    pastes_expiry_claim_size: Option<usize>,
    /// Run this many expiry loops per worker [default: 1]
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_LOOPS", value_name = "NUMBER")]
    pastes_expiry_loops: Option<usize>,
    /// Reset a paste whose deletion has taken this long [default: 2h]
    #[arg(long, env = "LEASEHOLD_PASTES_WATCHDOG_AFTER", value_name = "TIME")]
    pastes_watchdog_after: Option<Time>,
}

fn parse_gate(text: &str) -> Result<GateKind, String> {
    match text {
        "none" => Ok(GateKind::None),
        "advisory" => Ok(GateKind::Advisory),
        url if url.starts_with("redis://") || url.starts_with("rediss://") => {
            Ok(GateKind::Redis(url.to_owned()))
        }
        _ => {
            Err("a gate is none, advisory, or the URL of a Redis server: redis://host:6379".into())
        }
    }
}

impl PasteOptions {
    /// Returns the settings; `address` is where the service listens.
    pub fn settings(&self, address: &str) -> Result<Settings, Failure> {
        let mut settings =
            Settings { base_url: format!("http://{address}"), ..Settings::default() };
        set(&mut settings.default_expiry, self.pastes_default_expiry);
        // A shorter maximum also shortens the default.
        set(&mut settings.max_expiry, self.pastes_max_expiry);
        if self.pastes_default_expiry.is_none() {
            settings.default_expiry = settings.default_expiry.min(settings.max_expiry);
        }
        set(&mut settings.max_size, self.pastes_max_size);
        set(&mut settings.code_length, self.pastes_code_length);
        set(&mut settings.serve_staged, self.pastes_serve_staged);
        set(&mut settings.direct_upload, self.pastes_direct_upload);
        set(&mut settings.retry_after, self.pastes_retry_after);
        set(&mut settings.staging_quota, self.pastes_staging_quota);
        settings.quota = self.pastes_quota.map(Into::into);
        set(&mut settings.cache_bytes, self.pastes_cache);
        set(&mut settings.recheck, self.pastes_recheck);
        set(&mut settings.tombstones, self.pastes_tombstones);
        let limits = &mut settings.limits;
        let limits = LimitsMut {
            writes_per_second: &mut limits.creates_per_second,
            write_burst: &mut limits.create_burst,
            reads_per_second: &mut limits.reads_per_second,
            read_burst: &mut limits.read_burst,
            trusted_proxies: &mut limits.trusted_proxies,
        };
        self.web.apply(&mut settings.base_url, limits);
        settings.create_token = operator_token(self.pastes_create_token.as_deref(), Bearer::new)?;
        settings.operator_token = operator_token(self.web.operator_token.as_deref(), Bearer::new)?;
        let expiry = &mut settings.expiry;
        expiry.when =
            match (self.pastes_expiry_every, &self.pastes_expiry_at, &self.pastes_expiry_zone) {
                (Some(every), _, _) => When::Continuous { every: every.into() },
                (None, at, zone) => When::Nightly {
                    at: at.as_deref().unwrap_or("00:00").to_owned(),
                    zone: zone.as_deref().unwrap_or("UTC").to_owned(),
                },
            };
        set(&mut expiry.gate, self.pastes_expiry_gate.clone());
        set(&mut expiry.claim_size, self.pastes_expiry_claim_size);
        set(&mut expiry.loops, self.pastes_expiry_loops);
        set(&mut expiry.watchdog_after, self.pastes_watchdog_after);
        settings.check()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::given::tests::{options, the_same};

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let options: PasteOptions = options(args)?;
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
            "--pastes-base-url=https://p.example",
            "--pastes-default-expiry=1d",
            "--pastes-max-expiry=2d",
            "--pastes-max-size=2MiB",
            "--pastes-code-length=10",
            "--pastes-serve-staged",
            "--pastes-direct-upload=no",
            "--pastes-retry-after=5s",
            "--pastes-staging-quota=10MiB",
            "--pastes-quota=10GiB",
            "--pastes-cache=1MiB",
            "--pastes-recheck=100ms",
            "--pastes-tombstones=1h",
            "--pastes-creates-per-second=1",
            "--pastes-create-burst=2",
            "--pastes-reads-per-second=3",
            "--pastes-read-burst=4",
            "--pastes-trusted-proxies=1",
            "--pastes-create-token=0123456789abcdef",
            "--pastes-operator-token=0123456789abcdef",
            "--pastes-expiry-every=1m",
            "--pastes-expiry-gate=redis://127.0.0.1",
            "--pastes-expiry-claim-size=10",
            "--pastes-expiry-loops=2",
            "--pastes-watchdog-after=1h",
        ])
        .expect("settings");
        assert_eq!(the_same(&Settings::default(), &given), [""; 0], "cannot be set");
    }

    #[test]
    fn invalid_settings_are_rejected_with_a_reason() {
        for (bad, words) in [
            ("--pastes-max-size=1GiB", "64 MiB"),
            ("--pastes-max-size=huge", "not a size"),
            ("--pastes-recheck=2s", "at most 1 second"),
            ("--pastes-base-url=example.org", "https://paste.example.org"),
            ("--pastes-base-url=https://example.org/paste", "has a path"),
            ("--pastes-base-url=https://example.org/?x=1", "has a query"),
            ("--pastes-base-url=https://me:secret@example.org", "a name or a password"),
            ("--pastes-operator-token=short", "16 to 128"),
            ("--pastes-create-token=short", "16 to 128"),
            ("--pastes-expiry-gate=zookeeper", "none, advisory"),
            ("--pastes-code-length=3", "must have 6 to 32"),
        ] {
            let refused = settings(&[bad]).expect_err(bad);
            assert!(refused.contains(words), "{bad}: {refused}");
        }
    }
}
