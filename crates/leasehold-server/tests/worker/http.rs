//! Receivers: what they get, what their responses mean, and what the worker does not do.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use leasehold_testing::TestDatabase;
use serde_json::Value;
use sha2::Sha256;

use crate::fixture::{Row, SECRET, Worker, enqueue, job_until};
use crate::receiver::Receiver;

fn tried(row: &Row) -> bool {
    !row.is("running") && (!row.is("waiting") || row.due_in > 0.1)
}

#[tokio::test]
async fn receiver_gets_the_job_with_a_valid_signature() {
    let (database, receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let id = enqueue(&client, "letter", r#"{"to": "ann"}"#).await;
    let url = receiver.at("letter", "/jobs?token=hush");
    // A proxy would see every job, so the environment must not choose one.
    let proxies =
        ["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:1"));
    let args = ["--allow-private-network", "--http-timeout", "100s", "--http", &url];
    let mut worker = Worker::start_with(&database, &args, &proxies).await;
    job_until(&client, id, |row| row.is("completed")).await;

    let requests = receiver.requests();
    let [request] = requests.as_slice() else { panic!("one request, not {requests:?}") };
    assert_eq!(request.line, "POST /jobs?token=hush HTTP/1.1\r\n");
    let header = |name: &str| request.headers.get(name).map(String::as_str).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"canary-secret-of-the-tests").expect("any key");
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&request.body);
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(header("webhook-signature"), format!("v1,{signature}"));
    let age = jiff::Timestamp::now().as_second()
        - header("webhook-timestamp").parse::<i64>().expect("seconds");
    assert!((0..600).contains(&age), "{age}");

    let job: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(job["kwargs"]["to"], "ann");
    assert_eq!(header("leasehold-job-id"), id.to_string());
    assert_eq!(header("leasehold-attempt"), "1");
    assert_eq!(header("leasehold-generation"), job["generation"].as_str().expect("a string"));
    assert_eq!(header("leasehold-fence"), job["fence"].as_str().expect("a string"));
    assert_eq!(header("webhook-id"), job["outside_key"].as_str().expect("a string"));
    assert_eq!(header("content-type"), "application/json");
    assert!(!request.headers.contains_key("cookie"));
    worker.says("warning: --allow-private-network").await;
    assert!(!worker.output().contains("hush"), "{}", worker.output());
}

#[tokio::test]
async fn status_of_the_response_decides_the_outcome() {
    let (database, receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let paths = [
        "status/204",
        "status/409",
        "status/410",
        "status/422",
        "status/500",
        "status/404",
        "after/429",
        "after/503",
        "redirect",
    ];
    let mut args: Vec<String> =
        ["--allow-private-network", "--http-timeout", "100s"].map(str::to_owned).into();
    for path in paths {
        args.extend(["--http".to_owned(), receiver.at(path, &format!("/{path}"))]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _worker = Worker::start(&database, &args).await;
    let run = async |name: &str| {
        let id = enqueue(&client, name, "{}").await;
        job_until(&client, id, tried).await
    };
    assert!(run("status/204").await.is("completed"));
    for buried in ["409", "422"] {
        let row = run(&format!("status/{buried}")).await;
        assert!(row.is("dead"), "{row:?}");
        assert_eq!(row.error, format!("the receiver answered {buried}: said the receiver"));
    }
    let row = run("status/410").await;
    assert!(row.is("cancelled") && row.error.contains("410"), "{row:?}");
    for failed in ["500", "404"] {
        let row = run(&format!("status/{failed}")).await;
        assert!(row.is("waiting") && row.attempts == 1 && row.error.contains(failed), "{row:?}");
    }
    let row = run("after/429").await;
    assert!(row.is("waiting") && row.attempts == 0 && row.due_in > 3000.0, "{row:?}");
    let row = run("after/503").await;
    assert!(row.is("waiting") && row.attempts == 1 && row.due_in > 3000.0, "{row:?}");
    let row = run("redirect").await;
    assert!(row.is("waiting") && row.error.contains("redirects are not followed"), "{row:?}");
    assert!(receiver.requests().iter().all(|request| !request.line.contains("target")), "followed");
}

#[tokio::test]
async fn slow_receiver_is_retried() {
    let (database, receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let (hang, drip) = (receiver.at("hang", "/hang"), receiver.at("drip", "/drip"));
    let args =
        ["--allow-private-network", "--http-timeout", "300ms", "--http", &hang, "--http", &drip];
    let _worker = Worker::start(&database, &args).await;
    for name in ["hang", "drip"] {
        let id = enqueue(&client, name, "{}").await;
        let row = job_until(&client, id, tried).await;
        assert!(row.is("waiting") && row.attempts == 1, "{name}: {row:?}");
        assert!(row.error.contains("did not respond completely within 0.3 s"), "{name}: {row:?}");
    }
}

#[tokio::test]
async fn endless_response_is_cut() {
    let (database, mut receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let url = receiver.at("endless", "/endless");
    let args = ["--allow-private-network", "--http-timeout", "100s", "--http", &url];
    let _worker = Worker::start(&database, &args).await;
    let id = enqueue(&client, "endless", "{}").await;
    let row = job_until(&client, id, tried).await;
    assert!(row.is("completed"), "{row:?}");
    // The rest above the limit is what the sockets' buffers hold.
    let taken = receiver.taken.recv().await.expect("the connection was closed");
    assert!(taken < 64 * 1024 * 1024, "{taken} bytes");
}

#[tokio::test]
async fn unreachable_receiver_is_retried() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let gone = "gone=http://127.0.0.1:1/?token=hush";
    let args = ["--allow-private-network", "--http-timeout", "100s", "--http", gone];
    let _worker = Worker::start(&database, &args).await;
    let id = enqueue(&client, "gone", "{}").await;
    let row = job_until(&client, id, tried).await;
    assert!(row.is("waiting") && row.error.contains("could not be reached"), "{row:?}");
    assert!(!row.error.contains("hush"), "{row:?}");
}

#[tokio::test]
async fn waiting_request_is_dropped_when_its_job_is_cancelled() {
    let (database, receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let url = receiver.at("hang", "/hang");
    let args = ["--allow-private-network", "--http-timeout", "1h", "--http", &url];
    let _worker = Worker::start(&database, &args).await;
    let id = enqueue(&client, "hang", "{}").await;
    job_until(&client, id, |row| row.is("running")).await;
    client.query_one("select leasehold.cancel($1, 'ann')", &[&id]).await.expect("asked");
    job_until(&client, id, |row| row.is("cancelled")).await;
}

#[tokio::test]
async fn h12_secret_is_in_no_log_and_no_table() {
    let (database, receiver) = (TestDatabase::new().await, Receiver::start().await);
    let client = database.connect().await;
    let url = receiver.at("echo", "/echo");
    let loud = [("LEASEHOLD_LOG", "trace")];
    let args = ["--allow-private-network", "--http-timeout", "100s", "--http", &url];
    let mut worker = Worker::start_with(&database, &args, &loud).await;
    let id = enqueue(&client, "echo", "{}").await;
    let row = job_until(&client, id, tried).await;
    assert!(row.error.contains("you sent v1,[signature] made with whsec_[secret]"), "{row:?}");
    worker.signal(rustix::process::Signal::TERM);
    assert!(worker.ended().await.success());

    let signature = receiver.requests()[0].headers["webhook-signature"].replace("v1,", "");
    let log = worker.output();
    assert!(log.contains("TRACE"), "the log is as loud as it can be");
    assert!(!log.contains('\u{1b}'), "the receiver wrote to the terminal");
    let mut everything = log;
    let tables = "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname in ('leasehold', 'leasehold_internal')";
    for table in client.query(tables, &[]).await.expect("tables") {
        let table: &str = table.get(0);
        let sql = format!("select coalesce(string_agg(t::text, ' '), '') from {table} t");
        everything.push_str(client.query_one(&sql, &[]).await.expect(table).get(0));
    }
    assert!(everything.contains("[secret]"), "the dump holds the error text");
    for canary in [SECRET.trim_start_matches("whsec_"), &signature] {
        assert!(!everything.contains(canary), "{canary} was written down");
    }
}
