use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_local::PrivatePostgres;
use leasehold_local::postgres::PostgresError;
use tokio_postgres::{Client, Config, NoTls};

/// Set in the process in which `helper_holds_a_server_until_killed` holds a server.
const HELPER: &str = "LEASEHOLD_TEST_HELPER_DIR";

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// A directory below /tmp that any user can enter, removed when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        Self(PathBuf::from(format!("/tmp/leasehold-it-{:016x}", rand::random::<u64>())))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits for something that another process does. Only a failing test reaches the limit.
#[expect(clippy::disallowed_methods, reason = "the system has no event to wait for")]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_running(pid: u32) -> bool {
    // A zombie has ended; its parent has only not reaped it yet.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    match (Path::new("/proc/self").exists(), stat) {
        (true, Ok(stat)) => !stat.rsplit(')').next().unwrap_or("").trim().starts_with('Z'),
        (true, Err(_)) => false,
        (false, _) => {
            let pid = pid.to_string();
            Command::new("ps").args(["-p", &pid]).stdout(Stdio::null()).status().unwrap().success()
        }
    }
}

#[tokio::test]
async fn temporary_server_leaves_no_files() {
    let postgres = PrivatePostgres::throwaway().set("work_mem", "7MB").start().unwrap();
    let (dir, pid) = (postgres.dir().to_owned(), postgres.pid().unwrap());
    let client = connect(&postgres.config("postgres")).await;
    assert_eq!(number(&client, "select 41::int8 + 1").await, 42);
    assert_eq!(text(&client, "show work_mem").await, "7MB");
    assert_eq!(text(&client, "show listen_addresses").await, "");
    assert_eq!(text(&client, "show fsync").await, "off");
    assert_eq!(text(&client, "show synchronous_commit").await, "on");
    assert_eq!(text(&client, "show full_page_writes").await, "on");
    let by_url: Config = postgres.url("postgres").parse().unwrap();
    assert_eq!(number(&connect(&by_url).await, "select 1::int8").await, 1);
    drop(postgres);
    assert!(!is_running(pid));
    assert!(!dir.exists());
}

#[tokio::test]
async fn kept_cluster_is_durable() {
    let dir = Dir::new();
    let postgres = PrivatePostgres::kept_in(&dir.0).start().unwrap();
    let client = connect(&postgres.config("postgres")).await;
    assert_eq!(text(&client, "show fsync").await, "on");
    client.batch_execute("create table t (n int8); insert into t values (5)").await.unwrap();
    drop(postgres);

    let postgres = PrivatePostgres::kept_in(&dir.0).start().unwrap();
    let client = connect(&postgres.config("postgres")).await;
    assert_eq!(number(&client, "select n from t").await, 5);
    drop(postgres);
    assert!(dir.0.join("data").exists());
}

#[tokio::test]
async fn crash_loses_open_transactions_only() {
    let mut postgres = PrivatePostgres::throwaway().start().unwrap();
    let client = connect(&postgres.config("postgres")).await;
    client.batch_execute("create table t (n int8); insert into t values (1)").await.unwrap();
    client.batch_execute("begin; insert into t values (2)").await.unwrap();
    postgres.crash().unwrap();
    assert_eq!(postgres.pid(), None);
    postgres.start_again().unwrap();
    let client = connect(&postgres.config("postgres")).await;
    assert_eq!(number(&client, "select sum(n)::int8 from t").await, 1);
    let log = fs::read_to_string(postgres.log_path()).unwrap();
    assert!(log.contains("automatic recovery"), "an orderly stop is no crash:\n{log}");

    postgres.stop().unwrap();
    postgres.start_again().unwrap();
    let client = connect(&postgres.config("postgres")).await;
    assert_eq!(number(&client, "select sum(n)::int8 from t").await, 1);
}

#[tokio::test]
async fn server_restarts_after_sigkill_once_it_is_ready() {
    let mut postgres = PrivatePostgres::throwaway().start().unwrap();
    let pid = postgres.pid().unwrap();
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
    postgres.stop().unwrap();
    // The pid file of the dead server still says "ready".
    let left = fs::read_to_string(postgres.dir().join("data/postmaster.pid")).unwrap();
    assert!(left.contains("ready"), "{left}");
    wait_until("the old server's children are gone", || postgres.start_again().is_ok());
    assert_ne!(postgres.pid(), Some(pid));
    assert_eq!(number(&connect(&postgres.config("postgres")).await, "select 1::int8").await, 1);
}

/// Starts a server on a port that was free a moment ago; tries again if another process took it
/// since.
fn listening() -> (PrivatePostgres, u16) {
    for _ in 0..20 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        match PrivatePostgres::throwaway().listen_tcp(free).start() {
            Ok(postgres) => return (postgres, free),
            Err(PostgresError::NotStarted { tail, .. }) if tail.contains("could not bind") => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no port was free")
}

#[tokio::test]
async fn tcp_requires_the_password_of_the_url() {
    let (postgres, port) = listening();
    let with: Config = postgres.tcp_url("postgres").unwrap().parse().unwrap();
    assert_eq!(number(&connect(&with).await, "select 1::int8").await, 1);
    let mut without = Config::new();
    without.host("127.0.0.1").port(port).user("postgres").dbname("postgres").password("guess");
    assert!(without.connect(NoTls).await.is_err());
}

#[test]
fn server_has_no_tcp_by_default() {
    let postgres = PrivatePostgres::throwaway().start().unwrap();
    assert_eq!(postgres.tcp_url("postgres"), None);
}

#[test]
fn failed_start_quotes_the_log_and_leaves_no_directory() {
    let error = PrivatePostgres::throwaway().set("max_connections", "many").start().err().unwrap();
    assert!(error.to_string().contains("max_connections"), "{error}");
    let PostgresError::NotStarted { log, .. } = error else { panic!("{error}") };
    assert!(!log.exists());
}

#[test]
fn directory_of_another_version_is_refused() {
    let dir = Dir::new();
    fs::create_dir_all(dir.0.join("data")).unwrap();
    fs::write(dir.0.join("data/PG_VERSION"), "9.6\n").unwrap();
    let error = PrivatePostgres::kept_in(&dir.0).start().err().unwrap();
    assert!(matches!(error, PostgresError::OtherVersion { .. }), "{error}");
}

#[test]
fn directory_in_use_is_refused() {
    let dir = Dir::new();
    let first = PrivatePostgres::kept_in(&dir.0).start().unwrap();
    let error = PrivatePostgres::kept_in(&dir.0).start().err().unwrap();
    let PostgresError::AlreadyRunning { pid, .. } = error else { panic!("{error}") };
    assert_eq!(Some(pid), first.pid());
}

#[tokio::test]
async fn directory_with_a_long_path_gets_a_socket_elsewhere() {
    let dir = Dir::new();
    let long = dir.0.join("x".repeat(100));
    fs::create_dir(&dir.0).unwrap();
    let postgres = PrivatePostgres::kept_in(&long).start().unwrap();
    let socket_dir = postgres.socket_dir().to_owned();
    assert_eq!(number(&connect(&postgres.config("postgres")).await, "select 1::int8").await, 1);
    drop(postgres);
    assert!(!socket_dir.exists());
}

/// Not a test by itself: the next tests run it in a separate process, and kill that process.
#[test]
#[expect(clippy::disallowed_methods, reason = "it waits to be killed")]
fn helper_holds_a_server_until_killed() {
    let Some(dir) = std::env::var_os(HELPER) else {
        return;
    };
    let options = match dir.is_empty() {
        true => PrivatePostgres::throwaway(),
        // It must shut down within its time limit, however busy the disk is.
        false => PrivatePostgres::kept_in(dir).set("fsync", "off"),
    };
    let postgres = options.start().unwrap();
    println!("\nheld {} {}", postgres.pid().unwrap(), postgres.dir().display());
    std::thread::sleep(Duration::from_secs(600));
}

fn start_helper(dir: &str) -> (Child, u32, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres::helper_holds_a_server_until_killed", "--nocapture"])
        .env(HELPER, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line =
        lines.map(Result::unwrap).find(|line| line.starts_with("held ")).expect("the helper");
    let mut words = line.split(' ').skip(1);
    (child, words.next().unwrap().parse().unwrap(), words.next().unwrap().into())
}

#[test]
fn server_of_a_killed_starter_stops_and_is_removed() {
    let (mut child, pid, dir) = start_helper("");
    assert!(is_running(pid) && dir.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the server ends", || !is_running(pid));
    wait_until("the directory is removed", || !dir.exists());
}

#[test]
fn start_after_a_kill_waits_for_the_old_server() {
    let dir = Dir::new();
    let (mut child, pid, _) = start_helper(dir.0.to_str().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let pidfile = dir.0.join("data/postmaster.pid");
    wait_until("the old server is stopping", || {
        !fs::read_to_string(&pidfile).is_ok_and(|file| file.contains("ready"))
    });
    let postgres = PrivatePostgres::kept_in(&dir.0).start().unwrap();
    assert_ne!(postgres.pid(), Some(pid));
    let log = fs::read_to_string(postgres.log_path()).unwrap();
    assert!(!log.contains("automatic recovery"), "the old server was stopped in order:\n{log}");
}
