//! The annotation service of `leasehold serve`, and what an operator can set for it.
//!
//! Every default is the service's own: a flag that is not given changes nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annotations::index::{OpenSearch, OpenSearchSettings, TantivyIndex, TantivySettings};
use annotations::{Annotations, Index, Settings, StartError, Token};
use clap::Args;
use clap::builder::BoolishValueParser;
use leasehold::Leasehold;
use tokio::net::TcpListener;

use crate::dev::services::{Service, Stopping};
use crate::exit::{Code, Failure};
use crate::text::parse_duration;

/// Where the service listens when nobody says.
pub const LISTEN: &str = "127.0.0.1:8081";

/// Options of the annotation service.
#[derive(Args, Debug)]
#[command(next_help_heading = "Annotations")]
pub struct AnnotationOptions {
    /// The address that annotations listen on
    #[arg(id = "annotations_listen", long = "annotations-listen", env = "LEASEHOLD_ANNOTATIONS_LISTEN", value_name = "ADDRESS:PORT", default_value = LISTEN)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub index: IndexOptions,
    /// What links begin with, such as https://notes.example.org. Default: http:// and the address
    /// that is listened on
    #[arg(
        id = "annotations_base_url",
        long = "annotations-base-url",
        env = "LEASEHOLD_ANNOTATIONS_BASE_URL",
        value_name = "URL"
    )]
    base_url: Option<String>,
    /// People may make accounts for themselves [default: false]
    #[arg(id = "annotations_sign_up", long = "annotations-sign-up", env = "LEASEHOLD_ANNOTATIONS_SIGN_UP", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    sign_up: Option<bool>,
    /// Pages of these origins may use the service from a browser, such as http://localhost:3000;
    /// with commas between them
    #[arg(
        id = "annotations_origins",
        long = "annotations-origins",
        env = "LEASEHOLD_ANNOTATIONS_ORIGINS",
        value_name = "ORIGINS",
        value_delimiter = ','
    )]
    origins: Vec<String>,
    /// Saves a second from one address; 0: no limit [default: 10]
    #[arg(
        id = "annotations_saves_per_second",
        long = "annotations-saves-per-second",
        env = "LEASEHOLD_ANNOTATIONS_SAVES_PER_SECOND",
        value_name = "NUMBER"
    )]
    saves_per_second: Option<u32>,
    /// Saves at once from one address [default: 50]
    #[arg(
        id = "annotations_save_burst",
        long = "annotations-save-burst",
        env = "LEASEHOLD_ANNOTATIONS_SAVE_BURST",
        value_name = "NUMBER"
    )]
    save_burst: Option<u32>,
    /// Searches and reads a second from one address; 0: no limit [default: 60]
    #[arg(
        id = "annotations_reads_per_second",
        long = "annotations-reads-per-second",
        env = "LEASEHOLD_ANNOTATIONS_READS_PER_SECOND",
        value_name = "NUMBER"
    )]
    reads_per_second: Option<u32>,
    /// Searches and reads at once from one address [default: 200]
    #[arg(
        id = "annotations_read_burst",
        long = "annotations-read-burst",
        env = "LEASEHOLD_ANNOTATIONS_READ_BURST",
        value_name = "NUMBER"
    )]
    read_burst: Option<u32>,
    /// How many proxies of yours stand in front and add to X-Forwarded-For; with 0 the header is
    /// ignored [default: 0]
    #[arg(
        id = "annotations_trusted_proxies",
        long = "annotations-trusted-proxies",
        env = "LEASEHOLD_ANNOTATIONS_TRUSTED_PROXIES",
        value_name = "NUMBER"
    )]
    trusted_proxies: Option<usize>,
    /// Who shows it may re-index; 16 to 128 characters. Put it into the environment: everyone on the
    /// machine can read a command line [default: nobody]
    #[arg(
        id = "annotations_operator_token",
        long = "annotations-operator-token",
        env = "LEASEHOLD_ANNOTATIONS_OPERATOR_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    operator_token: Option<String>,
    /// How long a search waits for the index before Postgres answers alone [default: 800ms]
    #[arg(id = "annotations_index_limit", long = "annotations-index-limit", env = "LEASEHOLD_ANNOTATIONS_INDEX_LIMIT", value_name = "TIME", value_parser = parse_duration)]
    index_limit: Option<Duration>,
    /// The least time that a search waits for the index; one that usually takes longer is waited for
    /// four times as long as usual [default: 25ms]
    #[arg(id = "annotations_index_patience", long = "annotations-index-patience", env = "LEASEHOLD_ANNOTATIONS_INDEX_PATIENCE", value_name = "TIME", value_parser = parse_duration)]
    index_patience: Option<Duration>,
    /// Writes to the index right after the commit, in the process that answered; the job is then the
    /// safety net [default: true]
    #[arg(id = "annotations_direct", long = "annotations-direct", env = "LEASEHOLD_ANNOTATIONS_DIRECT", value_name = "YES", num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    direct: Option<bool>,
    /// How long after a save its job looks into the index [default: 60s]
    #[arg(id = "annotations_verify_after", long = "annotations-verify-after", env = "LEASEHOLD_ANNOTATIONS_VERIFY_AFTER", value_name = "TIME", value_parser = parse_duration)]
    verify_after: Option<Duration>,
    /// Jobs that one pass over the index takes [default: 2500]
    #[arg(
        id = "annotations_batch",
        long = "annotations-batch",
        env = "LEASEHOLD_ANNOTATIONS_BATCH",
        value_name = "NUMBER"
    )]
    batch: Option<usize>,
    /// Pause between two ranges of the comparison of everything [default: 10s]
    #[arg(id = "annotations_check_every", long = "annotations-check-every", env = "LEASEHOLD_ANNOTATIONS_CHECK_EVERY", value_name = "TIME", value_parser = parse_duration)]
    check_every: Option<Duration>,
}

/// Where the index is.
#[derive(Args, Debug, Default)]
pub struct IndexOptions {
    /// Keeps the search index in this directory, made when missing. One process writes to it. Without
    /// any index searches are answered by Postgres alone
    #[arg(
        id = "annotations_index",
        long = "annotations-index",
        env = "LEASEHOLD_ANNOTATIONS_INDEX",
        value_name = "DIR",
        conflicts_with = "annotations_opensearch"
    )]
    pub dir: Option<PathBuf>,
    /// Keeps the search index in OpenSearch or Elasticsearch. Put a URL with a password into the
    /// environment
    #[arg(
        id = "annotations_opensearch",
        long = "annotations-opensearch",
        env = "LEASEHOLD_ANNOTATIONS_OPENSEARCH",
        hide_env_values = true,
        value_name = "URL"
    )]
    opensearch: Option<String>,
    /// What the names of our indexes there begin with
    #[arg(
        id = "annotations_opensearch_prefix",
        long = "annotations-opensearch-prefix",
        env = "LEASEHOLD_ANNOTATIONS_OPENSEARCH_PREFIX",
        value_name = "NAME",
        default_value = "annotations"
    )]
    prefix: String,
}

impl IndexOptions {
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir: Some(dir), ..Self::default() }
    }

    /// `works`: this process works index jobs. One that does not leaves the directory to others.
    pub async fn open(&self, works: bool) -> Result<Option<Index>, Failure> {
        let broken =
            |error: &dyn std::fmt::Display| Failure::from(StartError::Index(error.to_string()));
        if let Some(dir) = &self.dir {
            let settings = TantivySettings { may_write: works, ..TantivySettings::new(dir) };
            let index = TantivyIndex::open(settings).await.map_err(|error| broken(&error))?;
            if works && !index.is_writer() {
                tracing::info!(
                    "another process writes to the index; this one takes over when it is gone"
                );
            }
            let asked = index.clone();
            return Ok(Some(Index::new(Arc::new(index)).written_when(move || asked.is_writer())));
        }
        let Some(url) = &self.opensearch else { return Ok(None) };
        let index = OpenSearch::new(OpenSearchSettings::new(url, &self.prefix));
        Ok(Some(Index::new(Arc::new(index.map_err(|error| broken(&error))?))))
    }
}

fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

impl AnnotationOptions {
    /// The settings; `address` is where the service listens.
    pub fn settings(&self, address: &str) -> Result<Settings, Failure> {
        let mut settings =
            Settings { base_url: format!("http://{address}"), ..Settings::default() };
        set(&mut settings.base_url, self.base_url.clone());
        set(&mut settings.sign_up, self.sign_up);
        settings.origins =
            self.origins.iter().filter(|origin| !origin.is_empty()).cloned().collect();
        let limits = &mut settings.limits;
        set(&mut limits.saves_per_second, self.saves_per_second);
        set(&mut limits.save_burst, self.save_burst);
        set(&mut limits.reads_per_second, self.reads_per_second);
        set(&mut limits.read_burst, self.read_burst);
        set(&mut limits.trusted_proxies, self.trusted_proxies);
        if let Some(token) = self.operator_token.as_ref().filter(|token| !token.is_empty()) {
            settings.operator_token = Some(Token::parse(token).ok_or_else(|| {
                Failure::usage("the operator's token has 16 to 128 printable characters")
                    .hint("make one: openssl rand -hex 24")
            })?);
        }
        set(&mut settings.index_limit, self.index_limit);
        set(&mut settings.index_patience, self.index_patience);
        set(&mut settings.direct, self.direct);
        set(&mut settings.verify_after, self.verify_after);
        set(&mut settings.batch, self.batch);
        set(&mut settings.check_every, self.check_every);
        settings.check()?;
        Ok(settings)
    }
}

/// The service on a database whose schemas are there. `works`: [`working`] will be run, too.
pub async fn start(
    engine: Leasehold,
    index: &IndexOptions,
    settings: Settings,
    works: bool,
) -> Result<Annotations, Failure> {
    let notes = Annotations::start(engine, index.open(works).await?, settings).await?;
    super::watch(notes.engine(), annotations::QUEUE, &BULK).await?;
    Ok(notes)
}

/// Work that is long on purpose.
const BULK: [&str; 5] = ["reindex_*", "rename_user", "delete_user", "move_group", "mirror.repair"];

/// The part that answers requests.
pub fn answering(notes: &Annotations, listener: TcpListener, stopping: &Stopping) -> Service {
    let router = annotations::router(notes.clone());
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    // As long as notes can be made here, their queue hears of it.
    let canary = notes.engine().canary([annotations::QUEUE]).run_until(stopping.clone().asked());
    Service::new("annotations", format!("{}/", notes.settings().base_url), async move {
        let serving = annotations::http::serve(listener, router, stop.asked());
        let serving = async { tokio::join!(serving, canary) };
        tokio::select! {
            _ = serving => {}
            () = hurry.hurried() => {}
        }
        Ok(())
    })
}

/// The part that keeps the index equal to the table. Where another process writes to the index, this one
/// does the rest of the work, and takes over when the other is gone.
pub fn working(notes: &Annotations, stopping: &Stopping) -> Result<Service, Failure> {
    let worker = annotations::worker(notes, notes.engine().worker().name("annotations"))?;
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    if notes.writes_index() {
        return Ok(Service::new(
            "indexing",
            "keeps the search index equal to the notes",
            async move { Ok(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?) },
        ));
    }
    let says = match notes.has_index() {
        true => "waits for its turn to write to the search index",
        false => "changes many notes at once, and tidies up; there is no search index",
    };
    let (notes, asked, hurried) = (notes.clone(), stopping.clone(), stopping.clone());
    Ok(Service::new("indexing", says, async move {
        let rest = async {
            Ok::<_, Failure>(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?)
        };
        let index = async {
            tokio::select! {
                () = asked.clone().asked() => return Ok(()),
                () = notes.becomes_writer() => {}
            }
            tracing::info!("the search index is written by this process now");
            let worker = notes.engine().worker().name("annotations-index").without_housekeeping();
            let worker = annotations::index_worker(&notes, worker);
            Ok::<_, Failure>(worker.run_until_or_hurry(asked.asked(), hurried.hurried()).await?)
        };
        tokio::try_join!(rest, index).map(|_| ())
    }))
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(text) => Self::usage(text),
            StartError::NotMigrated => Self::conflict(StartError::NotMigrated)
                .hint("run: leasehold migrate up --service annotations"),
            StartError::Index(_) => Self::failed(&error)
                .hint("name a directory that can be written, or check the address of OpenSearch"),
            StartError::Unavailable(why) => Self::new(Code::Unreachable, why),
        }
    }
}

impl From<annotations::Refused> for Failure {
    fn from(error: annotations::Refused) -> Self {
        use annotations::Refused;
        match error {
            Refused::NotFound => Self::not_found("there is no such person, page or piece of work"),
            Refused::NoSuchGroup => Self::not_found(error),
            Refused::Malformed(text) => Self::usage(text),
            Refused::Unavailable(why) => Self::new(Code::Unreachable, why),
            other => Self::conflict(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: AnnotationOptions,
    }

    fn settings(args: &[&str]) -> Result<Settings, String> {
        use clap::Parser;
        let line =
            Line::try_parse_from([&["x"], args].concat()).map_err(|error| error.to_string())?;
        line.options.settings("127.0.0.1:1").map_err(|failure| failure.to_string())
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
            "--annotations-base-url=https://n.example",
            "--annotations-sign-up",
            "--annotations-origins=http://localhost:3000,http://localhost:3001",
            "--annotations-saves-per-second=1",
            "--annotations-save-burst=2",
            "--annotations-reads-per-second=3",
            "--annotations-read-burst=4",
            "--annotations-trusted-proxies=1",
            "--annotations-operator-token=0123456789abcdef",
            "--annotations-index-limit=1s",
            "--annotations-index-patience=30ms",
            "--annotations-direct=no",
            "--annotations-verify-after=30s",
            "--annotations-batch=400",
            "--annotations-check-every=1m",
        ])
        .expect("settings");
        let (own, given) = (format!("{:#?}", Settings::default()), format!("{given:#?}"));
        for (own, given) in own.lines().zip(given.lines()) {
            let a_value = own.contains(": ") && !own.ends_with('{') && !own.ends_with('(');
            assert!(!a_value || own != given, "cannot be set: {own}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_with_words() {
        for (bad, words) in [
            ("--annotations-base-url=example.org", "https://notes.example.org"),
            ("--annotations-origins=http://a/b", "without a path"),
            ("--annotations-operator-token=short", "16 to 128"),
            ("--annotations-batch=0", "10000"),
        ] {
            let refused = settings(&[bad]).expect_err(bad);
            assert!(refused.contains(words), "{bad}: {refused}");
        }
    }
}
