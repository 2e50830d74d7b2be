//! `leasehold serve`, `leasehold paste`, `leasehold pastes`.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::support::{ANYWHERE, LIMIT, Place, Ran, command, ready, url_of};

/// A running `leasehold serve` with its database and its store.
struct Serve {
    place: Place,
    store: PathBuf,
    child: Child,
    url: String,
    /// What it printed before it was ready.
    said: String,
}

impl Serve {
    async fn start(more: &[&str]) -> Self {
        let place = Place::new().await;
        place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
        let store =
            std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
        let args =
            [&["serve", "--listen", ANYWHERE, "--store", store.to_str().unwrap()], more].concat();
        let mut child = place
            .command(&args)
            .env("LEASEHOLD_PASTES_SERVE_STAGED", "yes")
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let said = ready(&mut child).await;
        let url = url_of("pastes", &said);
        Self { place, store, child, url, said }
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
async fn a_paste_goes_in_by_the_terminal_and_comes_out_by_its_link() {
    let serve = Serve::start(&[]).await;
    let ran = serve.paste(b"hello", &["--expires", "1h", "--lang", "text"]).await.expect(0);
    let link = ran.stdout.trim_end().to_owned();
    assert!(link.starts_with(&serve.url) && ran.stdout.ends_with('\n'), "{}", ran.stdout);
    let code = link.rsplit('/').next().unwrap();
    let raw = leasehold_testing::http::get(format!("{}/raw/{code}", serve.url)).await.unwrap();
    assert_eq!(raw.text().await.unwrap(), "hello");
    assert!(!ran.stderr.contains("--token"), "a command line is no place for a token");
    let token = ran.says("delete token: ").stderr.split("delete token: ").nth(1).unwrap();
    let token = token.lines().next().unwrap().to_owned();
    serve.paste(b"0123456789abcdef\n", &["delete", code]).await.expect(4);
    serve.paste(b"", &["delete", code]).await.expect(2).says("LEASEHOLD_PASTE_TOKEN");
    serve.paste(token.as_bytes(), &["delete", &link]).await.expect(0).prints("is gone");
    let gone = leasehold_testing::http::get(format!("{}/raw/{code}", serve.url)).await.unwrap();
    assert_eq!(gone.status(), 404);
    assert_eq!(serve.end().await, Some(0));
}

#[tokio::test]
async fn a_file_is_pasted_with_its_language_and_as_json() {
    let serve = Serve::start(&["--no-worker"]).await;
    let file = serve.store.join("main.rs");
    std::fs::write(&file, "fn main() {}").unwrap();
    let file = file.to_str().unwrap();
    let answer = serve.paste(b"", &[file, "--alias", "my-main", "--json"]).await.expect(0).json();
    assert_eq!(answer["paste"]["code"], "my-main");
    assert_eq!(answer["paste"]["delete_token"].as_str().unwrap().len(), 64);
    let language = "select count(*) from pastes.pastes where language = 'rust'";
    assert_eq!(serve.place.number(language).await, 1);
    serve.paste(b"", &[file, "--alias", "my-main"]).await.expect(5).says("taken");
    serve.paste(b"", &["/nonexistent"]).await.expect(3).says("cannot read");
    serve.paste(b"", &[]).await.expect(2).says("nothing to paste");
    serve.paste(b"x", &["--expires", "never"]).await.expect(2).says("length of time");
    serve.paste(b"x", &["--url", "example.org"]).await.expect(2).says("https://");
    serve
        .paste(b"x", &["--url", "http://127.0.0.1:1"])
        .await
        .expect(6)
        .says("is the service there");
    serve.end().await;
}

#[tokio::test]
async fn the_operator_works_straight_on_the_database() {
    let serve = Serve::start(&[]).await;
    serve.paste(b"bad", &["--alias", "bad-one"]).await.expect(0);
    serve.paste(b"bad", &["--alias", "bad-two"]).await.expect(0);
    let reports = format!("{}/api/v1/pastes/bad-one/reports", serve.url);
    let report = serde_json::json!({ "reason": "it \u{1b}[31m hurts" });
    let noted = leasehold_testing::http::client().post(reports).json(&report).send().await.unwrap();
    assert_eq!(noted.status(), 202);
    let place = &serve.place;
    let shown = place.run(&["pastes", "reports"]).await.expect(0);
    shown.prints("bad-one").prints("hurts").prints("yes");
    assert!(!shown.stdout.contains('\u{1b}'), "what others wrote does not steer the terminal");
    place.run(&["pastes", "takedown", "bad-one"]).await.expect(2).says("say why");
    place.run(&["pastes", "takedown", "nothing", "--why", "x"]).await.expect(3);
    let done = place.run(&["pastes", "takedown", "bad-one", "--ban", "--why", "law"]).await;
    done.expect(0).prints("2 pastes ended");
    serve.paste(b"bad", &[]).await.expect(4).says("taken down");
    let bans = place.run(&["pastes", "bans", "--json"]).await.expect(0).json();
    let hash = bans["bans"][0]["content_hash"].as_str().unwrap().to_owned();
    place.run(&["pastes", "unban", &hash]).await.expect(2).says("say why");
    let unban = ["pastes", "unban", &hash, "--why", "appeal"];
    place.run(&unban).await.expect(0).prints("allowed again");
    place.run(&unban).await.expect(3);
    let log = place.run(&["pastes", "log"]).await.expect(0);
    log.prints("takedown").prints("law").prints("unban").prints("appeal").prints("ann@");
    let first = place.run(&["pastes", "log", "--limit", "1"]).await.expect(0);
    let before = first.says("more may follow: --before ").stderr.trim().rsplit(' ').next().unwrap();
    let rest = place.run(&["pastes", "log", "--before", before, "--json"]).await.expect(0).json();
    assert_eq!(rest["acts"].as_array().unwrap().len(), 1, "{rest}");
    serve.paste(b"bad", &[]).await.expect(0);
    place.run(&["pastes", "ban", &hash, "--why", "list"]).await.expect(0);
    serve.paste(b"bad", &[]).await.expect(4);
    place.run(&["pastes", "ban", "abc", "--why", "list"]).await.expect(2).says("64 hexadecimal");
    serve.end().await;
}

#[tokio::test]
async fn i11_serve_rejects_the_database_that_dev_left_and_names_the_one_it_uses() {
    let serve = Serve::start(&[]).await;
    let url = serve.place.database.url();
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
async fn e26_operator_who_means_an_earlier_paste_of_a_name_is_refused() {
    let serve = Serve::start(&[]).await;
    serve.paste(b"evil", &["--alias", "bad-one"]).await.expect(0);
    let reports = format!("{}/api/v1/pastes/bad-one/reports", serve.url);
    let report = serde_json::json!({ "reason": "phishing" });
    let noted = leasehold_testing::http::client().post(reports).json(&report).send().await.unwrap();
    assert_eq!(noted.status(), 202);
    let place = &serve.place;
    let end = "update pastes.pastes set expires_at = now() - interval '1 second'";
    place.client.batch_execute(end).await.unwrap();
    serve.paste(b"innocent", &["--alias", "bad-one"]).await.expect(0);
    place.run(&["pastes", "reports"]).await.expect(0).prints(" no ");
    let reports = place.run(&["pastes", "reports", "--json"]).await.expect(0).json();
    let id = reports["reports"][0]["id"].as_str().unwrap();
    let hash = reports["reports"][0]["content_hash"].as_str().unwrap();
    for order in [&["bad-one", "--ban"][..], &["bad-one", "--hash", hash], &["--report", id]] {
        let order = [&["pastes", "takedown", "--why", "law"], order].concat();
        place.run(&order).await.expect(5).says("another paste").says("--report ID");
    }
    let order = ["pastes", "takedown", "--report", id, "--ban", "--why", "law"];
    place.run(&order).await.expect(0).prints("is banned");
    serve.paste(b"evil", &[]).await.expect(4).says("taken down");
    let raw = leasehold_testing::http::get(format!("{}/raw/bad-one", serve.url)).await.unwrap();
    assert_eq!(raw.text().await.unwrap(), "innocent");
    serve.end().await;
}

#[tokio::test]
async fn e39_serve_refuses_the_store_of_another_database() {
    let (one, two) = (Serve::start(&[]).await, Serve::start(&[]).await);
    let args = ["serve", "--listen", ANYWHERE, "--store", two.store.to_str().unwrap()];
    let refused = one.place.run(&args).await.expect(5);
    refused.says("is not the store of this database").says("docs/pastes.md");
    one.end().await;
    two.end().await;
}

#[tokio::test]
async fn what_is_missing_is_said_before_anything_listens() {
    let place = Place::new().await;
    place.run(&["serve"]).await.expect(2).says("--store DIR");
    let store = "/tmp/lh-never-used";
    place
        .run(&["serve", "--store", store])
        .await
        .expect(5)
        .says("leasehold migrate up --service pastes");
    place.run(&["pastes", "bans"]).await.expect(5).says("leasehold migrate up --service pastes");
    let both = place.run(&["serve", "--store", store, "--s3-bucket", "b"]).await;
    both.expect(2).says("cannot be used with");
    let bad = place.run(&["serve", "--store", store, "--pastes-max-size", "huge"]).await;
    bad.expect(2).says("64KiB, 1MiB");
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = place.run(&["serve", "--store", store, "--listen", &address]).await;
    refused.expect(5).says("is in use").says(": --listen 127.0.0.1:0");
    place.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let refused = place.run(&["serve", "--annotations-listen", &address]).await;
    refused.expect(5).says("is in use").says(": --annotations-listen 127.0.0.1:0");
    let refused = place.run(&["serve", "--console", &address]).await.expect(5);
    assert!(!refused.says("is in use").stderr.contains("--listen"), "{}", refused.stderr);
    let _ = std::fs::remove_dir_all(store);
}

#[tokio::test]
async fn header_of_a_proxy_that_is_not_believed_is_warned_of_once() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
    for (proxies, warnings) in [("0", 1), ("1", 0)] {
        let args = ["serve", "--listen", ANYWHERE, "--store", store.to_str().unwrap()];
        let args = [&args[..], &["--pastes-trusted-proxies", proxies]].concat();
        let mut child = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
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
async fn private_service_takes_pastes_with_its_token() {
    let token = "0123456789-create-token";
    let serve = Serve::start(&["--no-worker", "--pastes-create-token", token]).await;
    serve.paste(b"x", &[]).await.expect(4).says("X-Create-Token");
    serve.paste(b"x", &["--create-token", "0123456789-other-token"]).await.expect(4);
    serve.paste(b"x", &["--create-token", token]).await.expect(0);
    serve.end().await;
}

#[tokio::test]
async fn links_name_the_free_port_that_was_taken() {
    let place = Place::new().await;
    for service in ["pastes", "annotations"] {
        place.run(&["migrate", "up", "--service", service]).await.expect(0);
    }
    let store = std::env::temp_dir().join(format!("lh-serve-{}", uuid::Uuid::new_v4().simple()));
    let first = ["serve", "--no-console", "--listen", ANYWHERE, "--annotations-listen", ANYWHERE];
    let args = [&first[..], &["--store", store.to_str().unwrap()]].concat();
    let mut child = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
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
async fn secrets_are_not_shown_in_help() {
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
