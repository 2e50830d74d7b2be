use std::process::Stdio;

use leasehold_testing::until;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::fixture::{Fixture, LIMIT, Ran};

#[tokio::test]
async fn enqueue_prints_a_key_that_prevents_a_second_job() {
    let fixture = Fixture::new().await;
    let first =
        fixture.run(&["enqueue", "email.send", r#"{"to":"a"}"#, "--json"]).await.expect(0).json();
    let key = first["job"]["key"].as_str().unwrap();
    assert_eq!(first["job"]["new"], true);
    let again = fixture
        .run(&["enqueue", "email.send", r#"{"to":"a"}"#, "--key", key, "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!((&again["job"]["new"], &again["job"]["id"]), (&false.into(), &first["job"]["id"]));
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1);
    fixture
        .run(&["enqueue", "email.send", r#"{"to":"b"}"#, "--key", key])
        .await
        .expect(5)
        .says("another name or other kwargs");
}

#[tokio::test]
async fn enqueue_options_reach_the_job() {
    let fixture = Fixture::new().await;
    fixture
        .run(&[
            "enqueue",
            "a",
            r#"{"n":7}"#,
            "--queue",
            "mail",
            "--new-queue",
            "--priority",
            "-3",
            "--at",
            "+5m",
            "--tag",
            "t",
            "--key",
            "k",
            "--max-attempts",
            "4",
        ])
        .await
        .expect(0);
    let row = fixture
        .client
        .query_one("select queue, priority, tag, idempotency_key, max_attempts, kwargs->>'n', \
                    scheduled_at between now() + interval '4 minutes' and now() + interval '6 minutes' from leasehold.job", &[])
        .await
        .unwrap();
    let text = |at: usize| row.get::<_, String>(at);
    assert_eq!(
        (text(0), row.get::<_, i32>(1), text(2), text(3)),
        ("mail".into(), -3, "t".into(), "k".into())
    );
    assert_eq!((row.get::<_, i32>(4), text(5), row.get::<_, bool>(6)), (4, "7".into(), true));
    fixture.run(&["enqueue", "a", "--at", "2031-05-01T09:00:00+02:00"]).await.expect(0);
    assert_eq!(
        fixture
            .count("select count(*) from leasehold.job where scheduled_at = '2031-05-01 07:00Z'")
            .await,
        1
    );
}

#[tokio::test]
async fn enqueue_rejects_a_mistyped_queue_with_a_suggestion() {
    let fixture = Fixture::new().await;
    fixture.job("reports", "a").await;
    fixture
        .run(&["enqueue", "a", "--queue", "reprots"])
        .await
        .expect(3)
        .says("did you mean \"reports\"?")
        .says("--new-queue");
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1, "nothing was stored");
    fixture.run(&["enqueue", "a", "--queue", "reports"]).await.expect(0);
    fixture.run(&["enqueue", "a", "--queue", "reprots", "--new-queue"]).await.expect(0);
    fixture
        .run(&["enqueue", "a", "--queue", "Bad Name", "--new-queue"])
        .await
        .expect(2)
        .says("not allowed");
}

#[tokio::test]
async fn enqueue_accepts_a_queue_that_only_a_worker_has() {
    let fixture = Fixture::new().await;
    let register = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['video'], array['a'], 1, 0, false)";
    fixture.client.query(register, &[]).await.unwrap();
    fixture.keep_workers_alive().await;
    fixture.run(&["enqueue", "a", "--queue", "video"]).await.expect(0);
}

#[tokio::test]
async fn enqueue_warns_when_no_live_worker_can_run_the_job() {
    let fixture = Fixture::new().await;
    let alone = fixture.run(&["enqueue", "email.send"]).await.expect(0);
    alone.prints("enqueued in default");
    alone.says(
        "warning: no live worker works queue default: start one, or correct the queue or the name",
    );
    let register = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['mail'], \
                    array['email.send'], 1, 0, false)";
    fixture.sql(register).await;
    fixture.keep_workers_alive().await;
    let other = fixture.run(&["enqueue", "email.sned", "--queue", "mail"]).await.expect(0);
    other.says("warning: no live worker of queue mail handles email.sned");
    let known = fixture.run(&["enqueue", "email.send", "--queue", "mail"]).await.expect(0);
    assert!(!known.stderr.contains("warning"), "{}", known.stderr);
    let json = fixture.run(&["enqueue", "email.send", "--json"]).await.expect(0);
    assert_eq!(json.json()["job"]["queue"], "default", "a warning stays out of the document");
}

#[tokio::test]
async fn enqueue_reads_arguments_from_a_file_or_standard_input() {
    let fixture = Fixture::new().await;
    let file = std::env::temp_dir().join(format!("leasehold-cli-{}.json", std::process::id()));
    std::fs::write(&file, "{\"from\": \"file\"}\n").unwrap();
    fixture.run(&["enqueue", "a", &format!("@{}", file.display())]).await.expect(0);
    std::fs::remove_file(&file).unwrap();
    fixture.run(&["enqueue", "a", "@/nonexistent.json"]).await.expect(3);

    let mut piped = fixture.command(&["enqueue", "a", "-"]);
    let mut child = piped.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"from\": \"stdin\"}").await.unwrap();
    drop(stdin);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(fixture.count("select count(distinct kwargs->>'from') from leasehold.job").await, 2);
}

#[tokio::test]
async fn enqueue_rejects_invalid_arguments() {
    let fixture = Fixture::new().await;
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(70_000));
    for bad in ["{", "[1]", "null", "\"a\"", &long] {
        fixture.run(&["enqueue", "a", bad]).await.expect(2);
    }
    fixture.run(&["enqueue", "", "{}"]).await.expect(2);
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 0);
}

/// Ends the job that a waiting command enqueued, as a worker would.
async fn end(fixture: &Fixture, how: &str) {
    loop {
        let claimed = fixture
            .client
            .query("select id, lease_generation from leasehold.claim('tester')", &[])
            .await
            .unwrap();
        if let Some(row) = claimed.first() {
            let (id, generation): (i64, i64) = (row.get(0), row.get(1));
            fixture.client.query(how, &[&id, &generation]).await.unwrap();
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn enqueue_wait_exits_by_the_outcome() {
    let fixture = Fixture::new().await;
    for (how, code) in [
        ("select leasehold.complete($1::bigint, $2::bigint)", 0),
        ("select leasehold.bury($1, $2, 'no such mailbox')", 1),
        ("select leasehold.finish_cancelled($1, $2, 'not wanted')", 1),
    ] {
        let waiting =
            Ran::of(fixture.command(&["enqueue", "a", "--wait", "--wait-timeout", "100s"]));
        let (ran, ()) = tokio::join!(waiting, end(&fixture, how));
        let ran = ran.expect(code);
        match code {
            0 => ran.says("is completed"),
            _ => ran.says(if how.contains("bury") { "no such mailbox" } else { "not wanted" }),
        };
    }
}

#[tokio::test]
async fn enqueue_wait_reports_completion_without_history() {
    let fixture = Fixture::new().await;
    fixture
        .sql("insert into leasehold_internal.queue (name, keep_history) values ('default', false)")
        .await;
    let waiting = Ran::of(fixture.command(&["enqueue", "a", "--wait", "--wait-timeout", "100s"]));
    let (ran, ()) =
        tokio::join!(waiting, end(&fixture, "select leasehold.complete($1::bigint, $2::bigint)"));
    ran.expect(0).says("is completed");
}

#[tokio::test]
async fn enqueue_wait_times_out_and_keeps_the_job() {
    let fixture = Fixture::new().await;
    fixture
        .run(&["enqueue", "a", "--wait", "--wait-timeout", "200ms"])
        .await
        .expect(7)
        .says("it continues");
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1);
}

#[tokio::test]
async fn ctrl_c_ends_enqueue_wait_with_130_and_keeps_the_job() {
    let fixture = Fixture::new().await;
    let mut child = fixture.command(&["enqueue", "a", "--wait"]).spawn().unwrap();
    // The command prints its line once the job is stored; then it starts to wait.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("enqueued"), "{line}");
    let pid = child.id().unwrap().to_string();
    let kill = std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap();
    assert!(kill.success());
    let ended = tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(130));
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1);
}

#[tokio::test]
async fn a36_enqueue_wait_reports_failures_and_the_next_attempt() {
    let fixture = Fixture::new().await;
    fixture.sql("insert into leasehold_internal.queue (name) values ('mail')").await;
    let args = ["enqueue", "a", "--queue", "mail", "--max-attempts", "2", "--wait"];
    let mut waiting = fixture.command(&args).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let claim_and_fail = "select leasehold.fail(c.id, c.lease_generation, 'smtp down', '1 hour') \
                            from leasehold.claim('w', 'mail') c";
    let reported = async {
        until("the job is claimed and fails", async || {
            !fixture.client.query(claim_and_fail, &[]).await.unwrap().is_empty()
        })
        .await;
        loop {
            let line = lines.next_line().await.unwrap().expect("more to say");
            if line.contains("failed once (smtp down); next attempt in ") {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, reported).await.expect("a report in time");
    fixture.sql("update leasehold.job set scheduled_at = now()").await;
    fixture.client.query(claim_and_fail, &[]).await.unwrap();
    let ended = tokio::time::timeout(LIMIT, waiting.wait()).await.expect("an end").unwrap();
    assert_eq!(ended.code(), Some(1));
}
