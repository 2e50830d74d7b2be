//! The operator's settings of the paste service, by flag or by variable.
//!
//! Every default is the service's own: a flag that is not given changes nothing.

use clap::Args;
use clap::builder::BoolishValueParser;
use pastes::{Bearer, GateKind, Settings, When};

use crate::exit::Failure;
use crate::serve::given::{Size, Time, operator_token, set};

/// Options of the paste service.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Pastes")]
pub struct PasteOptions {
    /// What links begin with, such as https://paste.example.org, without a path. Default: http:// and
    /// the address that is listened on
    #[arg(long, env = "LEASEHOLD_PASTES_BASE_URL", value_name = "URL")]
    pastes_base_url: Option<String>,
    /// How long a paste lives if its author does not choose [default: 30d]
    #[arg(long, env = "LEASEHOLD_PASTES_DEFAULT_EXPIRY", value_name = "TIME")]
    pastes_default_expiry: Option<Time>,
    /// The longest life that an author may choose [default: 365d]
    #[arg(long, env = "LEASEHOLD_PASTES_MAX_EXPIRY", value_name = "TIME")]
    pastes_max_expiry: Option<Time>,
    /// The largest paste [default: 1MiB]
    #[arg(long, env = "LEASEHOLD_PASTES_MAX_SIZE", value_name = "SIZE")]
    pastes_max_size: Option<Size>,
    /// Characters of a code, 6 to 32. A shorter one is easier to type and to guess [default: 22]
    #[arg(long, env = "LEASEHOLD_PASTES_CODE_LENGTH", value_name = "NUMBER")]
    pastes_code_length: Option<usize>,
    /// Serve a paste during its upload, instead of answering 503 [default: false]
    #[arg(long, env = "LEASEHOLD_PASTES_SERVE_STAGED", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pastes_serve_staged: Option<bool>,
    /// Upload right after the commit, in the process that answered; the job is then the safety net
    /// [default: true]
    #[arg(long, env = "LEASEHOLD_PASTES_DIRECT_UPLOAD", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pastes_direct_upload: Option<bool>,
    /// The Retry-After for readers of a paste during its upload [default: 30s]
    #[arg(long, env = "LEASEHOLD_PASTES_RETRY_AFTER", value_name = "TIME")]
    pastes_retry_after: Option<Time>,
    /// The most bytes that may wait for upload; beyond it creates are answered with 503
    /// [default: 1GiB]
    #[arg(long, env = "LEASEHOLD_PASTES_STAGING_QUOTA", value_name = "SIZE")]
    pastes_staging_quota: Option<Size>,
    /// The most bytes of all content; beyond it creates are answered with 507. Counted
    /// twice a minute [default: no limit]
    #[arg(long, env = "LEASEHOLD_PASTES_QUOTA", value_name = "SIZE")]
    pastes_quota: Option<Size>,
    /// Memory for recently read pastes [default: 64MiB]
    #[arg(long, env = "LEASEHOLD_PASTES_CACHE", value_name = "SIZE")]
    pastes_cache: Option<Size>,
    /// How long a cached response may be used without asking the database: a deleted paste can be seen
    /// that long. At most 1s [default: 500ms]
    #[arg(long, env = "LEASEHOLD_PASTES_RECHECK", value_name = "TIME")]
    pastes_recheck: Option<Time>,
    /// How long the row of a deleted paste is kept, for audits; a random code is not reused
    /// meanwhile, a chosen name is [default: 7d]
    #[arg(long, env = "LEASEHOLD_PASTES_TOMBSTONES", value_name = "TIME")]
    pastes_tombstones: Option<Time>,
    /// Pastes per second from one address; 0: no limit [default: 10]
    #[arg(long, env = "LEASEHOLD_PASTES_CREATES_PER_SECOND", value_name = "NUMBER")]
    pastes_creates_per_second: Option<u32>,
    /// Pastes at once from one address [default: 50]
    #[arg(long, env = "LEASEHOLD_PASTES_CREATE_BURST", value_name = "NUMBER")]
    pastes_create_burst: Option<u32>,
    /// Reads per second from one address; 0: no limit [default: 60]
    #[arg(long, env = "LEASEHOLD_PASTES_READS_PER_SECOND", value_name = "NUMBER")]
    pastes_reads_per_second: Option<u32>,
    /// Reads at once from one address [default: 200]
    #[arg(long, env = "LEASEHOLD_PASTES_READ_BURST", value_name = "NUMBER")]
    pastes_read_burst: Option<u32>,
    /// Number of trusted proxies in front that add to X-Forwarded-For. With 0 the header is
    /// ignored: behind a proxy all clients then share one address, its limits and its idempotency
    /// keys [default: 0]
    #[arg(long, env = "LEASEHOLD_PASTES_TRUSTED_PROXIES", value_name = "NUMBER")]
    pastes_trusted_proxies: Option<usize>,
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
    /// The token that allows a client to see reports, take pastes down and ban content; 16 to 128
    /// characters. Put it into the environment: every user of the machine can read a command line
    /// [default: none]
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_OPERATOR_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pastes_operator_token: Option<String>,
    /// When to delete expired pastes every night, such as 02:30 [default: 00:00]
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_EXPIRY_AT",
        value_name = "HH:MM",
        conflicts_with = "pastes_expiry_every"
    )]
    pastes_expiry_at: Option<String>,
    /// The time zone of --pastes-expiry-at, such as Europe/Madrid [default: UTC]
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
    /// What keeps workers from looking for the same rows at the same time: none, advisory, or
    /// redis://… [default: advisory]
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_GATE", hide_env_values = true, value_name = "GATE", value_parser = parse_gate)]
    pastes_expiry_gate: Option<GateKind>,
    /// Pastes that a worker claims at a time [default: 1000]
    #[arg(long, env = "LEASEHOLD_PASTES_EXPIRY_BATCH", value_name = "NUMBER")]
    pastes_expiry_batch: Option<usize>,
    /// Expiry loops per worker [default: 1]
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
        set(&mut settings.base_url, self.pastes_base_url.clone());
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
        set(&mut limits.creates_per_second, self.pastes_creates_per_second);
        set(&mut limits.create_burst, self.pastes_create_burst);
        set(&mut limits.reads_per_second, self.pastes_reads_per_second);
        set(&mut limits.read_burst, self.pastes_read_burst);
        set(&mut limits.trusted_proxies, self.pastes_trusted_proxies);
        settings.create_token = operator_token(self.pastes_create_token.as_deref(), Bearer::new)?;
        settings.operator_token =
            operator_token(self.pastes_operator_token.as_deref(), Bearer::new)?;
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
        set(&mut expiry.batch, self.pastes_expiry_batch);
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
    fn without_flags_every_setting_is_the_services_own() {
        let given = settings(&[]).expect("settings");
        let own = Settings { base_url: "http://127.0.0.1:1".to_owned(), ..Settings::default() };
        assert_eq!(format!("{given:?}"), format!("{own:?}"));
    }

    #[test]
    fn every_setting_can_be_given() {
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
            "--pastes-expiry-batch=10",
            "--pastes-expiry-loops=2",
            "--pastes-watchdog-after=1h",
        ])
        .expect("settings");
        assert_eq!(the_same(&Settings::default(), &given), [""; 0], "cannot be set");
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_with_words() {
        for (bad, words) in [
            ("--pastes-max-size=1GiB", "64 MiB"),
            ("--pastes-max-size=huge", "not a size"),
            ("--pastes-recheck=2s", "at most a second"),
            ("--pastes-base-url=example.org", "https://paste.example.org"),
            ("--pastes-base-url=https://example.org/paste", "has a path"),
            ("--pastes-base-url=https://example.org/?x=1", "has a query"),
            ("--pastes-base-url=https://me:secret@example.org", "a name or a password"),
            ("--pastes-operator-token=short", "16 to 128"),
            ("--pastes-create-token=short", "16 to 128"),
            ("--pastes-expiry-gate=zookeeper", "none, advisory"),
            ("--pastes-code-length=3", "between 6 and 32"),
        ] {
            let refused = settings(&[bad]).expect_err(bad);
            assert!(refused.contains(words), "{bad}: {refused}");
        }
    }
}
