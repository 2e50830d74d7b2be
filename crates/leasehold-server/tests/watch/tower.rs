//! A database with a running `leasehold console`, and a clock that the tests advance.

use std::process::Stdio;

use leasehold::Leasehold;
use reqwest::{Response, StatusCode};
use tokio::process::Child;

use crate::clock::age;
use crate::minute;
use crate::receiver::Receiver;
use crate::support::{LIMIT, Place, ready};

pub const SECRET: &str = "the secret of these tests";

pub struct Tower {
    pub place: Place,
    pub engine: Leasehold,
    /// `http://127.0.0.1:1234`
    pub url: String,
    _child: Child,
}

impl Tower {
    pub async fn start() -> Self {
        Self::with(Place::new().await, &[], &[]).await
    }

    /// Like `start`, with housekeeping by the real clock.
    pub async fn keeping_house() -> Self {
        Self::start_console(Place::new().await, &[], &[]).await
    }

    /// Like `keeping_house`, under another role.
    pub async fn as_somebody(place: Place, url: &str) -> Self {
        Self::start_console(place, &[], &[("DATABASE_URL", url)]).await
    }

    /// With a receiver of notifications.
    pub async fn telling(receiver: &Receiver) -> Self {
        let args = ["--alarm-webhook", &receiver.url, "--alarm-private-network"];
        Self::with(Place::new().await, &args, &[("LEASEHOLD_HTTP_SECRET", SECRET)]).await
    }

    /// Without housekeeping: only the test takes samples.
    pub async fn with(place: Place, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_console(place, &[&["--no-housekeeping"], args].concat(), env).await
    }

    async fn start_console(place: Place, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = place.command(&[&["console", "--console", "127.0.0.1:0"], args].concat());
        let mut child = command.envs(env.iter().copied()).stderr(Stdio::inherit()).spawn().unwrap();
        let url = console_in(&ready(&mut child).await);
        let engine = Leasehold::connect(&place.database.url()).await.unwrap();
        Self { place, engine, url, _child: child }
    }

    pub async fn sql(&self, text: &str) {
        self.place.client.batch_execute(text).await.expect(text);
    }

    /// Lets a minute pass, then samples and evaluates it. Live workers stay alive.
    pub async fn a_minute_passes(&self) {
        minute::passes(&self.place.client).await;
    }

    /// Lets a minute pass for a console that samples by itself. A row lock keeps it from sampling
    /// while rows move. Returns when the sample has been evaluated.
    pub async fn a_minute_passes_by_itself(&self) {
        self.sql("begin; select from leasehold.duty where name = 'measure' for update").await;
        age(&self.place.client, "1 minute").await;
        self.sql("commit").await;
        let judged = "select count(*) from leasehold.duty where name = 'judge' \
                       and ran_at = date_trunc('minute', statement_timestamp())";
        until("a sample and its judgement", async || self.place.number(judged).await == 1).await;
    }

    /// Returns the alarms that are up, as `rule subject`.
    pub async fn up(&self) -> Vec<String> {
        self.texts("select rule || ' ' || subject from leasehold.alarm where cleared_at is null order by 1").await
    }

    /// Returns every alarm that was ever raised, once per raise.
    pub async fn ever(&self) -> Vec<String> {
        self.texts("select rule || ' ' || subject from leasehold.alarm order by 1").await
    }

    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.place.client.query(sql, &[]).await.expect(sql);
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the console's response, retried until the database answers in time.
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
    tokio::time::timeout(LIMIT, asking).await.expect("the database answers the console")
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
    tokio::time::timeout(LIMIT, asking).await.expect("the database answers a scrape")
}

/// Finds the console's URL in what a program printed before it was ready.
pub fn console_in(said: &str) -> String {
    let place = said.lines().find_map(|line| line.strip_prefix("console")).expect("a console");
    place.trim().trim_end_matches("/console").to_owned()
}

/// Waits for something that another process does.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !so().await {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, asking).await.is_ok(), "never: {what}");
}
