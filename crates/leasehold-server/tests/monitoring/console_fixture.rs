//! A database with a running `leasehold console`, and a clock that the tests advance.

use std::process::Stdio;

use leasehold::Leasehold;
use leasehold_testing::minutes::{age, pass_minute};
use leasehold_testing::until;
use reqwest::{Response, StatusCode};
use tokio::process::Child;

use crate::fixture::{Fixture, LIMIT, ready};
use crate::receiver::Receiver;

/// `the secret of these tests` in base64.
pub const SECRET: &str = "whsec_dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw==";

pub struct ConsoleFixture {
    pub fixture: Fixture,
    pub engine: Leasehold,
    /// `http://127.0.0.1:1234`
    pub url: String,
    _child: Child,
}

impl ConsoleFixture {
    pub async fn start() -> Self {
        Self::with(Fixture::new().await, &[], &[]).await
    }

    /// Like `start`, with housekeeping by the real clock.
    pub async fn with_housekeeping() -> Self {
        Self::start_console(Fixture::new().await, &[], &[]).await
    }

    /// Like `with_housekeeping`, under another role.
    pub async fn with_role(fixture: Fixture, url: &str) -> Self {
        Self::start_console(fixture, &[], &[("DATABASE_URL", url)]).await
    }

    /// With a receiver of notifications.
    pub async fn with_receiver(receiver: &Receiver) -> Self {
        let args = ["--alarm-webhook", &receiver.url, "--alarm-private-network"];
        Self::with(Fixture::new().await, &args, &[("LEASEHOLD_HTTP_SECRET", SECRET)]).await
    }

    /// Without housekeeping: only the test takes samples.
    pub async fn with(fixture: Fixture, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_console(fixture, &[&["--no-housekeeping"], args].concat(), env).await
    }

    async fn start_console(fixture: Fixture, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command =
            fixture.command(&[&["console", "--listen", "127.0.0.1:0"], args].concat());
        let mut child = command.envs(env.iter().copied()).stderr(Stdio::inherit()).spawn().unwrap();
        let url = console_in(&ready(&mut child).await);
        let engine = Leasehold::connect(&fixture.database.url()).await.unwrap();
        Self { fixture, engine, url, _child: child }
    }

    pub async fn sql(&self, statements: &str) {
        self.fixture.sql(statements).await;
    }

    /// Lets a minute pass, then samples and evaluates it. Live workers stay alive.
    pub async fn a_minute_passes(&self) {
        pass_minute(&self.fixture.client).await;
    }

    /// Lets a minute pass for a console that samples by itself. A row lock keeps it from sampling
    /// while rows move. Returns when the sample has been evaluated.
    pub async fn a_minute_passes_by_itself(&self) {
        self.sql("begin; select from leasehold_internal.duty where name = 'measure' for update")
            .await;
        age(&self.fixture.client, "1 minute").await;
        self.sql("commit").await;
        let judged = "select count(*) from leasehold_internal.duty where name = 'judge' \
                       and ran_at = date_trunc('minute', statement_timestamp())";
        until("a sample and its judgement", async || self.fixture.count(judged).await == 1).await;
    }

    /// Returns the active alarms, as `rule subject`.
    pub async fn active(&self) -> Vec<String> {
        self.texts("select rule || ' ' || subject from leasehold_internal.alarm where cleared_at is null order by 1").await
    }

    /// Returns every alarm that was ever raised, once per raise.
    pub async fn all_raised(&self) -> Vec<String> {
        self.texts("select rule || ' ' || subject from leasehold_internal.alarm order by 1").await
    }

    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.fixture.client.query(sql, &[]).await.expect(sql);
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the console's response, retried until the database responds in time.
    pub async fn get(&self, path: &str) -> Response {
        in_time(async || self.get_once(path).await).await
    }

    /// Returns the console's response to a single request.
    pub async fn get_once(&self, path: &str) -> Response {
        leasehold_testing::http::get(format!("{}{path}", self.url)).await.unwrap()
    }

    pub async fn metrics(&self) -> String {
        metrics_in_time(async || self.get_once("/metrics").await.text().await.unwrap()).await
    }
}

/// Asks the console again while it reports that the database did not answer: it waits only a few
/// seconds, and a busy machine may need longer.
pub async fn in_time(mut ask: impl AsyncFnMut() -> Response) -> Response {
    let asking = async {
        loop {
            let answer = ask().await;
            if answer.status() != StatusCode::SERVICE_UNAVAILABLE {
                return answer;
            }
        }
    };
    tokio::time::timeout(LIMIT, asking).await.expect("the console gets its figures")
}

/// Like [`in_time`], for metrics, which lack the figures of the database then.
pub async fn metrics_in_time(mut ask: impl AsyncFnMut() -> String) -> String {
    let asking = async {
        loop {
            let text = ask().await;
            if text.contains("\nleasehold_database_up 1\n") {
                return text;
            }
        }
    };
    tokio::time::timeout(LIMIT, asking).await.expect("a scrape gets its figures")
}

/// Finds the console's URL in what a program printed before it was ready.
pub fn console_in(said: &str) -> String {
    let url = said.lines().find_map(|line| line.strip_prefix("console")).expect("a console");
    url.trim().trim_end_matches("/console").to_owned()
}
