//! `leasehold dev`: it starts, jobs flow, it stops, and it never leaves a server behind.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use leasehold_testing::until;
use tokio::process::Child;

use super::fixture::{LIMIT, Ran, command, ready};

/// A data directory that the server's user can enter, removed when dropped.
struct Data(PathBuf);

impl Data {
    fn new() -> Self {
        Self(PathBuf::from(format!("/tmp/lh-cli-{}-{:x}", std::process::id(), rand())))
    }

    fn arg(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn rand() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

/// A running `leasehold dev`.
struct Dev {
    child: Child,
    url: String,
    said: String,
}

impl Dev {
    /// Starts it and waits for `ready`.
    async fn start(data: &Data, more: &[&str]) -> Self {
        Self::start_with(data, more, None).await
    }

    async fn start_with(data: &Data, more: &[&str], url: Option<&str>) -> Self {
        let args = [&["dev", "--data", data.arg()], more].concat();
        let mut command = command(&args);
        if let Some(url) = url {
            command.env("DATABASE_URL", url);
        }
        // An empty variable counts as unset.
        command.env("LEASEHOLD_ANNOTATIONS_ORIGINS", "");
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let said = ready(&mut child).await;
        let export = said
            .lines()
            .find_map(|line| line.strip_prefix("export DATABASE_URL='"))
            .expect("an export line");
        let url = export.trim_end_matches('\'').to_owned();
        let dev = Self { child, url, said };
        dev.spare_the_disk().await;
        dev
    }

    /// Turns fsync off: no test here is about power failures. A stopping worker has only seconds to
    /// unregister, and a slow disk may take longer.
    async fn spare_the_disk(&self) {
        let connecting = tokio_postgres::connect(&self.url, tokio_postgres::NoTls);
        let (client, connection) = connecting.await.expect("a session");
        tokio::spawn(connection);
        for sql in ["alter system set fsync = off", "select pg_reload_conf()"] {
            client.batch_execute(sql).await.expect(sql);
        }
    }

    async fn run(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        command.env("DATABASE_URL", &self.url);
        Ran::of(command).await
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(
            std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success()
        );
    }

    async fn end(&mut self) -> Option<i32> {
        tokio::time::timeout(LIMIT, self.child.wait())
            .await
            .expect("an end in time")
            .unwrap()
            .code()
    }
}

fn server_pid(data: &Data) -> Option<u32> {
    let file = std::fs::read_to_string(data.0.join("data/postmaster.pid")).ok()?;
    file.lines().next()?.parse().ok()
}

/// Waits until a process is gone.
async fn gone(pid: u32) {
    until("the server is gone", async || !Path::new(&format!("/proc/{pid}")).exists()).await;
}

async fn listed(dev: &Dev, args: &[&str]) -> usize {
    dev.run(args).await.expect(0).json()["jobs"].as_array().unwrap().len()
}

/// Waits until some of the demo's jobs have completed.
async fn jobs_flow(dev: &Dev) {
    let list = ["jobs", "list", "--state", "completed", "--limit", "5", "--json"];
    until("five jobs have completed", async || listed(dev, &list).await == 5).await;
}

#[tokio::test]
async fn demo_runs_jobs_and_stops_in_order_on_sigterm() {
    let data = Data::new();
    let mut dev = Dev::start(&data, &["--demo"]).await;
    assert!(dev.said.contains("demo.mail") && dev.said.contains("kept in"), "{}", dev.said);
    jobs_flow(&dev).await;
    dev.run(&["workers", "list"]).await.expect(0).prints("demo");
    dev.run(&["schedules", "list"]).await.expect(0).prints("Every minute");
    let pastes = std::fs::read_to_string(data.0.join("pastes.url")).unwrap();
    let made =
        leasehold_testing::http::client().post(pastes.trim()).body("hello").send().await.unwrap();
    assert_eq!(made.status(), 201);
    let raw =
        made.text().await.unwrap().replacen(pastes.trim(), &format!("{}/raw", pastes.trim()), 1);
    let raw = leasehold_testing::http::get(raw.trim()).await.unwrap();
    assert_eq!(raw.text().await.unwrap(), "hello", "a paste can be read at once");
    assert!(
        dev.said.contains(&format!("curl --data-binary @- {}/", pastes.trim())),
        "{}",
        dev.said
    );
    let server = server_pid(&data).expect("a running server");

    let second = Ran::of(command(&["dev", "--data", data.arg()])).await.expect(5);
    second.says("already running").says("export DATABASE_URL=");

    dev.signal("TERM");
    assert_eq!(dev.end().await, Some(0));
    gone(server).await;
    assert_eq!(server_pid(&data), None, "the server was shut down, not killed");
    assert!(!data.0.join("dev.url").exists() && !data.0.join("pastes.url").exists());

    let mut again = Dev::start(&data, &[]).await;
    assert!(again.said.contains("runs no jobs"), "{}", again.said);
    assert!(
        listed(&again, &["jobs", "list", "--state", "completed", "--json"]).await >= 5,
        "the data is kept"
    );
    let held = listed(&again, &["jobs", "list", "--state", "running", "--json"]).await;
    assert_eq!(held, 0, "a worker that stops in order hands back what it holds");
    let left = again.run(&["workers", "list", "--json"]).await.expect(0).json();
    assert!(
        left["workers"].as_array().unwrap().iter().all(|worker| worker["name"] != "demo"),
        "{left}"
    );
    again.signal("INT");
    assert_eq!(again.end().await, Some(0));
}

#[tokio::test]
async fn killed_dev_leaves_no_server_and_keeps_its_data() {
    let data = Data::new();
    let mut dev = Dev::start(&data, &[]).await;
    dev.run(&["enqueue", "precious", r#"{"n":1}"#]).await.expect(0);
    let server = server_pid(&data).expect("a running server");
    dev.signal("KILL");
    assert_eq!(dev.end().await, None, "ended by a signal");
    gone(server).await;

    // In a terminal with the exported DATABASE_URL of the first run: `dev` must recognise its own
    // server and start it.
    let mut again = Dev::start_with(&data, &[], Some(&dev.url)).await;
    again.run(&["jobs", "list"]).await.expect(0).prints("precious");
    again.signal("TERM");
    assert_eq!(again.end().await, Some(0));
}

#[tokio::test]
async fn dev_with_a_named_database_starts_no_server() {
    let database = leasehold_testing::TestDatabase::new().await;
    let mut both = command(&["dev", "--data", "/tmp/never"]);
    both.env("DATABASE_URL", database.url());
    Ran::of(both).await.expect(2).says("--data is for a private server");
    let mut child = command(&["dev"]).env("DATABASE_URL", database.url()).spawn().unwrap();
    let said = ready(&mut child).await;
    assert!(said.lines().next().unwrap().contains("named by DATABASE_URL"), "{said}");
    assert!(!said.contains("export"), "it is known already: {said}");
    let pid = child.id().unwrap().to_string();
    assert!(
        std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success()
    );
    assert_eq!(tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap().code(), Some(0));
}
