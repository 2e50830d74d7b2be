//! `leasehold serve`, `leasehold paste`, `leasehold pastes`.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::fixture::{FREE_PORT, Fixture, LIMIT, Ran, command, ready, url_of};

/// A running `leasehold serve` with its database and its store.
struct Serve {
    fixture: Fixture,
    store: PathBuf,
    child: Child,
    url: String,
    /// What it printed before it was ready.
    said: String,
}

impl Serve {
    async fn start(more: &[&str]) -> Self {
        let fixture = Fixture::new().await;
        fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
        let store =
            std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
        let args =
            [&["serve", "--listen", FREE_PORT, "--store", store.to_str().unwrap()], more].concat();
        let mut child = fixture
            .command(&args)
            .env("LEASEHOLD_PASTES_SERVE_STAGED", "yes")
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let said = ready(&mut child).await;
        let url = url_of("pastes", &said);
        Self { fixture, store, child, url, said }
    }

    async fn paste(&self, input: &[u8], args: &[&str]) -> Ran {
        let mut command = command(&[&["paste"], args].concat());
        command.env("LEASEHOLD_URL", &self.url).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that refuses its arguments may end before it reads.
        let _ = child.stdin.take().unwrap().write_all(input).await;
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn end(mut self) -> Option<i32> {
        let pid = self.child.id().expect("it runs").to_string();
        let kill = std::process::Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(kill.unwrap().success());
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        ended.expect("an end in time").unwrap().code()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.store);
    }
}

#[tokio::test]
async fn paste_command_stores_a_paste_and_prints_its_link() {
    let serve = Serve::start(&[]).await;
    let ran = serve.paste(b"hello", &["--expires", "1h", "--lang", "text"]).await.expect(0);
    let link = ran.stdout.trim_end().to_owned();
    assert!(link.starts_with(&serve.url) && ran.stdout.ends_with('\n'), "{}", ran.stdout);
    let code = link.rsplit('/').next().unwrap();
    let raw = leasehold_testing::http::get(format!("{}/raw/{code}", serve.url)).await.unwrap();
    assert_eq!(raw.text().await.unwrap(), "hello");
    assert!(!ran.stderr.contains("--token"), "a command line is no fixture for a token");
    let token = ran.says("delete token: ").stderr.split("delete token: ").nth(1).unwrap();
    let token = token.lines().next().unwrap().to_owned();
    serve.paste(b"0123456789abcdef\n", &["delete", code]).await.expect(4);
    serve.paste(b"", &["delete", code]).await.expect(2).says("LEASEHOLD_PASTE_TOKEN");
    serve.paste(token.as_bytes(), &["delete", &link]).await.expect(0).prints("is deleted");
    let gone = leasehold_testing::http::get(format!("{}/raw/{code}", serve.url)).await.unwrap();
    assert_eq!(gone.status(), 404);
    assert_eq!(serve.end().await, Some(0));
}

#[tokio::test]
async fn paste_command_detects_the_language_of_a_file() {
    let serve = Serve::start(&["--no-worker"]).await;
    let file = serve.store.join("main.rs");
    std::fs::write(&file, "fn main() {}").unwrap();
    let file = file.to_str().unwrap();
    let answer = serve.paste(b"", &[file, "--alias", "my-main", "--json"]).await.expect(0).json();
    assert_eq!(answer["paste"]["code"], "my-main");
    assert_eq!(answer["paste"]["delete_token"].as_str().unwrap().len(), 64);
    let language = "select count(*) from pastes.pastes where language = 'rust'";
    assert_eq!(serve.fixture.count(language).await, 1);
    serve.paste(b"", &[file, "--alias", "my-main"]).await.expect(5).says("taken");
    serve.paste(b"", &["/nonexistent"]).await.expect(3).says("cannot read");
    serve.paste(b"", &[]).await.expect(2).says("the input is empty");
    serve.paste(b"x", &["--expires", "never"]).await.expect(2).says("is not a duration");
    serve.paste(b"x", &["--url", "example.org"]).await.expect(2).says("https://");
    serve
        .paste(b"x", &["--url", "http://127.0.0.1:1"])
        .await
        .expect(6)
        .says("check that a service runs at");
    serve.end().await;
}

#[tokio::test]
async fn moderation_commands_need_only_the_database() {
    let serve = Serve::start(&[]).await;
    serve.paste(b"bad", &["--alias", "bad-one"]).await.expect(0);
    serve.paste(b"bad", &["--alias", "bad-two"]).await.expect(0);
    let reports = format!("{}/api/v1/pastes/bad-one/reports", serve.url);
    let report = serde_json::json!({ "reason": "it \u{1b}[31m hurts" });
    let noted = leasehold_testing::http::client().post(reports).json(&report).send().await.unwrap();
    assert_eq!(noted.status(), 202);
    let fixture = &serve.fixture;
    let shown = fixture.run(&["pastes", "reports"]).await.expect(0);
    shown.prints("bad-one").prints("hurts").prints("yes");
    assert!(!shown.stdout.contains('\u{1b}'), "what others wrote does not steer the terminal");
    fixture.run(&["pastes", "takedown", "bad-one"]).await.expect(2).says("a reason is missing");
    fixture.run(&["pastes", "takedown", "nothing", "--why", "x"]).await.expect(3);
    let done = fixture.run(&["pastes", "takedown", "bad-one", "--ban", "--why", "law"]).await;
    done.expect(0).prints("2 pastes taken down");
    serve.paste(b"bad", &[]).await.expect(4).says("taken down");
    let bans = fixture.run(&["pastes", "bans", "--json"]).await.expect(0).json();
    let hash = bans["bans"][0]["content_hash"].as_str().unwrap().to_owned();
    fixture.run(&["pastes", "unban", &hash]).await.expect(2).says("a reason is missing");
    let unban = ["pastes", "unban", &hash, "--why", "appeal"];
    fixture.run(&unban).await.expect(0).prints("allowed again");
    fixture.run(&unban).await.expect(3);
    let log = fixture.run(&["pastes", "log"]).await.expect(0);
    log.prints("takedown").prints("law").prints("unban").prints("appeal").prints("ann@");
    let first = fixture.run(&["pastes", "log", "--limit", "1"]).await.expect(0);
    let before = first.says("more may follow: --before ").stderr.trim().rsplit(' ').next().unwrap();
    let rest = fixture.run(&["pastes", "log", "--before", before, "--json"]).await.expect(0).json();
    assert_eq!(rest["acts"].as_array().unwrap().len(), 1, "{rest}");
    serve.paste(b"bad", &[]).await.expect(0);
    fixture.run(&["pastes", "ban", &hash, "--why", "list"]).await.expect(0);
    serve.paste(b"bad", &[]).await.expect(4);
    fixture.run(&["pastes", "ban", "abc", "--why", "list"]).await.expect(2).says("64 hexadecimal");
    serve.end().await;
}

#[tokio::test]
async fn i11_serve_rejects_the_database_that_dev_left_and_names_the_one_it_uses() {
    let serve = Serve::start(&[]).await;
    let url = serve.fixture.database.url();
    let data = std::env::temp_dir().join(format!("lh-data-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir_all(data.join("leasehold")).unwrap();
    std::fs::write(data.join("leasehold/dev.url"), url).unwrap();
    let mut unnamed = command(&["serve", "--store", "/tmp/lh-never-used"]);
    unnamed.env("XDG_DATA_HOME", &data);
    Ran::of(unnamed).await.expect(2).says("no database is named").says("DATABASE_URL");
    let mut listing = command(&["jobs", "list"]);
    listing.env("XDG_DATA_HOME", &data);
    Ran::of(listing).await.expect(0);
    std::fs::remove_dir_all(&data).unwrap();
    assert!(serve.said.contains("(named by DATABASE_URL)"), "{}", serve.said);
    serve.end().await;
}

#[tokio::test]
async fn e26_takedown_of_an_earlier_paste_of_a_name_is_refused() {
    let serve = Serve::start(&[]).await;
    serve.paste(b"evil", &["--alias", "bad-one"]).await.expect(0);
    let reports = format!("{}/api/v1/pastes/bad-one/reports", serve.url);
    let report = serde_json::json!({ "reason": "phishing" });
    let noted = leasehold_testing::http::client().post(reports).json(&report).send().await.unwrap();
    assert_eq!(noted.status(), 202);
    let fixture = &serve.fixture;
    let end = "update pastes.pastes set expires_at = now() - interval '1 second'";
    fixture.sql(end).await;
    serve.paste(b"innocent", &["--alias", "bad-one"]).await.expect(0);
    fixture.run(&["pastes", "reports"]).await.expect(0).prints(" no ");
    let reports = fixture.run(&["pastes", "reports", "--json"]).await.expect(0).json();
    let id = reports["reports"][0]["id"].as_str().unwrap();
    let hash = reports["reports"][0]["content_hash"].as_str().unwrap();
    for order in [&["bad-one", "--ban"][..], &["bad-one", "--hash", hash], &["--report", id]] {
        let order = [&["pastes", "takedown", "--why", "law"], order].concat();
        fixture.run(&order).await.expect(5).says("another paste").says("--report ID");
    }
    let order = ["pastes", "takedown", "--report", id, "--ban", "--why", "law"];
    fixture.run(&order).await.expect(0).prints("is banned");
    serve.paste(b"evil", &[]).await.expect(4).says("taken down");
    let raw = leasehold_testing::http::get(format!("{}/raw/bad-one", serve.url)).await.unwrap();
    assert_eq!(raw.text().await.unwrap(), "innocent");
    serve.end().await;
}

#[tokio::test]
async fn e39_serve_refuses_the_store_of_another_database() {
    let (one, two) = (Serve::start(&[]).await, Serve::start(&[]).await);
    let args = ["serve", "--listen", FREE_PORT, "--store", two.store.to_str().unwrap()];
    let refused = one.fixture.run(&args).await.expect(5);
    refused.says("is not the store of this database").says("docs/pastes.md");
    one.end().await;
    two.end().await;
}

#[tokio::test]
async fn serve_reports_missing_settings_before_it_listens() {
    let fixture = Fixture::new().await;
    fixture.run(&["serve"]).await.expect(2).says("--store DIR");
    let store = "/tmp/lh-never-used";
    fixture
        .run(&["serve", "--store", store])
        .await
        .expect(5)
        .says("leasehold migrate up --service pastes");
    fixture.run(&["pastes", "bans"]).await.expect(5).says("leasehold migrate up --service pastes");
    let both = fixture.run(&["serve", "--store", store, "--s3-bucket", "b"]).await;
    both.expect(2).says("cannot be used with");
    let bad = fixture.run(&["serve", "--store", store, "--pastes-max-size", "huge"]).await;
    bad.expect(2).says("64KiB, 1MiB");
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = fixture.run(&["serve", "--store", store, "--listen", &address]).await;
    refused.expect(5).says("is in use").says(": --listen 127.0.0.1:0");
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let refused = fixture.run(&["serve", "--annotations-listen", &address]).await;
    refused.expect(5).says("is in use").says(": --annotations-listen 127.0.0.1:0");
    let refused = fixture.run(&["serve", "--console", &address]).await.expect(5);
    assert!(!refused.says("is in use").stderr.contains("--listen"), "{}", refused.stderr);
    let _ = std::fs::remove_dir_all(store);
}

#[tokio::test]
async fn serve_warns_once_of_an_untrusted_proxy_header() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
    for (proxies, warnings) in [("0", 1), ("1", 0)] {
        let args = ["serve", "--listen", FREE_PORT, "--store", store.to_str().unwrap()];
        let args = [&args[..], &["--pastes-trusted-proxies", proxies]].concat();
        let mut child = fixture.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let url = url_of("pastes", &ready(&mut child).await);
        for _ in 0..3 {
            let request = leasehold_testing::http::client().get(format!("{url}/"));
            let answer = request.header("x-forwarded-for", "192.0.2.1").send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        let pid = child.id().expect("it runs").to_string();
        let kill = std::process::Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(kill.unwrap().success());
        let ended = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(said.matches("--pastes-trusted-proxies").count(), warnings, "{said}");
    }
    let _ = std::fs::remove_dir_all(store);
}

#[tokio::test]
async fn private_service_accepts_pastes_with_its_token_only() {
    let token = "0123456789-create-token";
    let serve = Serve::start(&["--no-worker", "--pastes-create-token", token]).await;
    serve.paste(b"x", &[]).await.expect(4).says("X-Create-Token");
    serve.paste(b"x", &["--create-token", "0123456789-other-token"]).await.expect(4);
    serve.paste(b"x", &["--create-token", token]).await.expect(0);
    serve.end().await;
}

#[tokio::test]
async fn serve_links_name_the_bound_port() {
    let fixture = Fixture::new().await;
    for service in ["pastes", "annotations"] {
        fixture.run(&["migrate", "up", "--service", service]).await.expect(0);
    }
    let store = std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
    let first = ["serve", "--no-console", "--listen", FREE_PORT, "--annotations-listen", FREE_PORT];
    let args = [&first[..], &["--store", store.to_str().unwrap()]].concat();
    let mut child = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    for service in ["pastes", "annotations"] {
        let url = url_of(service, &said);
        assert!(!url.ends_with(":0"), "{said}");
        let document =
            leasehold_testing::http::get(format!("{url}/openapi.json")).await.unwrap().text().await;
        let document: serde_json::Value = serde_json::from_str(&document.unwrap()).unwrap();
        assert_eq!(document["servers"][0]["url"], url, "{service}");
    }
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    let _ = std::fs::remove_dir_all(store);
}

#[tokio::test]
async fn help_shows_no_secrets() {
    let mut help = command(&["serve", "--help"]);
    help.env("LEASEHOLD_PASTES_OPERATOR_TOKEN", "c4nary-token-0123456789")
        .env("LEASEHOLD_PASTES_CREATE_TOKEN", "c4nary-create-0123456789")
        .env("LEASEHOLD_S3_SECRET_KEY", "c4nary-secret");
    let ran = Ran::of(help).await.expect(0);
    assert!(!ran.stdout.contains("c4nary"), "{}", ran.stdout);
    for name in ["--pastes-max-size", "LEASEHOLD_PASTES_MAX_SIZE", "--s3-bucket", "--no-worker"] {
        ran.prints(name);
    }
}
