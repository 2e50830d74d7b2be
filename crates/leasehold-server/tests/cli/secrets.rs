//! Secrets given to a service stay out of its logs, its pages and its tables.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use leasehold_testing::until;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::fixture::{FREE_PORT, Fixture, Ran, url_of};

/// A part of every secret of these tests.
const MARK: &str = "hunter2";
const OPERATOR: &str = "hunter2-operator-0123456789";
const CONSOLE: &str = "hunter2-console-0123456789";

/// Returns the URL of the database with a password in it. The server asks for none.
fn with_password(url: &str) -> String {
    match url.contains("://") {
        true if url.contains('?') => format!("{url}&password=hunter2-database"),
        true => format!("{url}?password=hunter2-database"),
        false => format!("{url} password=hunter2-database"),
    }
}

async fn collect(pipe: impl AsyncRead + Unpin, output: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut output = output.lock().unwrap();
        output.push_str(&line);
        output.push('\n');
    }
}

/// Returns the lines that contain a secret.
fn leaks(text: &str, token: &str) -> Vec<String> {
    let leaks = |line: &&str| line.contains(MARK) || line.contains(token);
    text.lines().filter(leaks).map(str::to_owned).collect()
}

#[tokio::test]
async fn h12_running_service_prints_no_secret_at_any_log_level() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let token = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    let token = token.trim();
    let store = std::env::temp_dir().join(format!("lh-secret-{}", uuid::Uuid::new_v4().simple()));
    let mut command =
        fixture.command(&["serve", "--annotations-listen", FREE_PORT, "--listen", FREE_PORT]);
    command
        .args(["--console", FREE_PORT, "--store", store.to_str().unwrap()])
        .env("DATABASE_URL", with_password(&fixture.database.url()))
        .env("LEASEHOLD_LOG", "trace")
        .env("LEASEHOLD_LOG_FORMAT", "json")
        // No server listens there: every call fails, and the failure is logged.
        .env("LEASEHOLD_ANNOTATIONS_OPENSEARCH", "http://elastic:hunter2-search@127.0.0.1:1/")
        .env("LEASEHOLD_ANNOTATIONS_OPERATOR_TOKEN", OPERATOR)
        .env("LEASEHOLD_PASTES_OPERATOR_TOKEN", "hunter2-pastes-0123456789")
        .env("LEASEHOLD_PASTES_CREATE_TOKEN", "hunter2-create-0123456789")
        .env("LEASEHOLD_CONSOLE_TOKEN", CONSOLE)
        .env("LEASEHOLD_HTTP_SECRET", "whsec_hunter2signature0123456789abcdef")
        .env("LEASEHOLD_ALARM_WEBHOOK", "http://127.0.0.1:1/hunter2-path?token=hunter2-query")
        .env("LEASEHOLD_ALARM_PRIVATE_NETWORK", "true")
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let output = Arc::new(Mutex::new(String::new()));
    tokio::spawn(collect(child.stdout.take().unwrap(), Arc::clone(&output)));
    tokio::spawn(collect(child.stderr.take().unwrap(), Arc::clone(&output)));
    let said = |words: &str| output.lock().unwrap().contains(words);
    until("ready", async || said("\nready\n")).await;
    let [notes, console] =
        ["annotations", "console"].map(|service| url_of(service, &output.lock().unwrap()));
    let console = console.trim_end_matches("/console");

    let http = leasehold_testing::http::client();
    let note =
        json!({ "target": { "source": "https://example.com/" }, "body": [{ "value": "hello" }] });
    let save = |bearer: &str| {
        http.post(format!("{notes}/api/annotations")).bearer_auth(bearer).json(&note).send()
    };
    assert_eq!(save(token).await.unwrap().status(), 201);
    assert_eq!(save("hunter2-of-a-stranger").await.unwrap().status(), 401);
    let search = format!("{notes}/api/search?q=hello");
    assert_eq!(http.get(&search).bearer_auth(token).send().await.unwrap().status(), 200);
    let reindex = http.post(format!("{notes}/api/v1/reindex"));
    let reindexed =
        reindex.bearer_auth(OPERATOR).json(&json!({ "all": true })).send().await.unwrap();
    assert!(reindexed.status().is_success() || reindexed.status() == 422, "{reindexed:?}");
    let login = http.post(format!("{console}/console/login"));
    let login = login
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("token={CONSOLE}"))
        .send()
        .await
        .unwrap();
    assert!(!login.status().is_server_error(), "{login:?}");
    fixture.run(&["alarms", "test"]).await.expect(0);
    // The webhook call fails, and so does the write to the index by the note's job.
    fixture.sql("update leasehold.job set scheduled_at = now() where queue = 'annotations'").await;
    until("a failed notification", async || said("failed, next in")).await;
    until("an index without calls", async || said("it gets no calls for a while")).await;

    for path in ["/metrics", "/console", "/console/api/overview"] {
        let page = http.get(format!("{console}{path}")).bearer_auth(CONSOLE);
        let text = page.send().await.unwrap().text().await.unwrap();
        assert_eq!(leaks(&text, token), Vec::<String>::new(), "{path}");
    }
    let text = output.lock().unwrap().clone();
    assert!(text.contains("\"level\":\"TRACE\""), "the log has every level");
    assert_eq!(leaks(&text, token), Vec::<String>::new());
    // What the tables keep of failures, for operators.
    let kept = "select coalesce(string_agg(concat_ws(' ', j.*), E'\\n'), '') from leasehold.jobs j";
    let kept: String = fixture.client.query_one(kept, &[]).await.unwrap().get(0);
    assert!(kept.contains("leasehold.alarm.webhook"), "{kept}");
    assert_eq!(leaks(&kept, token), Vec::<String>::new());

    // Each log line about a job identifies the job in fields.
    let failed = text.lines().filter(|line| line.contains("failed, next in"));
    let failed: Vec<Value> = failed.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!failed.is_empty());
    for line in failed {
        for field in ["job.id", "job.name", "job.queue", "job.attempt"] {
            assert!(!line["span"][field].is_null(), "no {field} in {line}");
        }
    }
    drop(child);
    let _ = std::fs::remove_dir_all(store);
}

#[tokio::test]
async fn h12_service_that_cannot_start_prints_no_secret() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let gone = "postgres://ann:hunter2-database@127.0.0.1:1/none?application_name=x";
    let here = with_password(&fixture.database.url());
    for (url, env) in [
        (gone, &[("LEASEHOLD_ANNOTATIONS_OPENSEARCH", "http://elastic:hunter2@127.0.0.1:1/")][..]),
        (here.as_str(), &[("LEASEHOLD_CONSOLE_TOKEN", "hunter2")]),
        (here.as_str(), &[("LEASEHOLD_ANNOTATIONS_OPERATOR_TOKEN", "hunter2")]),
        (here.as_str(), &[("LEASEHOLD_ALARM_WEBHOOK", "https://u:hunter2@10.0.0.1/hunter2")]),
        (here.as_str(), &[("LEASEHOLD_ANNOTATIONS_OPENSEARCH", "htp:/elastic:hunter2@[")]),
        (
            here.as_str(),
            &[
                ("LEASEHOLD_S3_BUCKET", "b"),
                ("LEASEHOLD_S3_ENDPOINT", "http://127.0.0.1:1"),
                ("LEASEHOLD_S3_ACCESS_KEY", "key"),
                ("LEASEHOLD_S3_SECRET_KEY", "hunter2-secret"),
            ],
        ),
    ] {
        let mut command =
            fixture.command(&["serve", "--no-console", "--services", "pastes,annotations"]);
        if env[0].0 == "LEASEHOLD_CONSOLE_TOKEN" {
            command = fixture.command(&["serve", "--console", "127.0.0.1:0"]);
        }
        command.env("DATABASE_URL", url).env("LEASEHOLD_LOG", "debug").envs(env.iter().copied());
        let ran = Ran::of(command).await;
        assert_ne!(ran.code, 0, "{env:?}: {}", ran.stderr);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("error:"), "{env:?}: {all}");
        assert_eq!(leaks(&all, MARK), Vec::<String>::new(), "{env:?}");
    }
}
