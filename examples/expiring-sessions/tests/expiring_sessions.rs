//! The example of a sweep: its effect on an existing table, and its length.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

const SAMPLE: &str = include_str!("../src/main.rs");

const TABLES: &str = "
    create table logins (login text primary key, open_sessions int not null check (open_sessions >= 0));
    create table sessions (token uuid primary key default gen_random_uuid(), login text not null,
        expires_at timestamptz not null, state text not null default 'live');
    insert into logins values ('ada', 3), ('grace', 1);
    insert into sessions (login, expires_at) values
        ('ada', now() - interval '2 days'), ('ada', now() - interval '1 day'),
        ('ada', now() + interval '1 day'), ('grace', now() - interval '1 hour')";

/// Killed with the test, however the test ends.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(client: &Client, sql: &str) {
    let asking = async {
        // Before the program has created its tables the query fails.
        while !client.query_one(sql, &[]).await.is_ok_and(|row| row.get(0)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap_or_else(|_| panic!("{sql}"));
}

#[tokio::test]
async fn expired_sessions_end_once_and_others_stay() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client
        .batch_execute("drop schema leasehold, leasehold_internal cascade")
        .await
        .expect("an empty database");
    client.batch_execute(TABLES).await.expect("tables");
    let child = Command::new(env!("CARGO_BIN_EXE_expiring-sessions"))
        .env("DATABASE_URL", database.url())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut program = Ends(child);
    // Do not wait for midnight.
    until(&client, "select leasehold.run_sweep('sessions.expiry')").await;
    until(&client, "select count(*) = 3 from sessions where state = 'ended'").await;
    let interrupt = ["-INT", &program.0.id().to_string()];
    assert!(Command::new("kill").args(interrupt).status().expect("sent").success());
    let stdout = program.0.stdout.take().expect("its output");
    let ended = tokio::task::spawn_blocking(move || {
        let output = std::io::read_to_string(stdout).expect("text");
        (program.0.wait().expect("an end"), output)
    });
    let (status, output) = tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .expect("in time")
        .expect("ended");
    assert!(status.success(), "{status}");
    let mut names: Vec<&str> = output.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["goodbye, ada", "goodbye, ada", "goodbye, grace"]);
    until(&client, "select (select open_sessions from logins where login = 'ada') = 1").await;
    until(&client, "select (select open_sessions from logins where login = 'grace') = 0").await;
}

#[test]
fn example_has_fewer_than_40_lines() {
    assert!(SAMPLE.lines().count() < 40, "{} lines", SAMPLE.lines().count());
}
