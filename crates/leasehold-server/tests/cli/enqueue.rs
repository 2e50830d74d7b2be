use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::support::{LIMIT, Place, Ran};

#[tokio::test]
async fn an_enqueue_prints_its_id_and_a_key_that_makes_a_repeat_harmless() {
    let place = Place::new().await;
    let first =
        place.run(&["enqueue", "email.send", r#"{"to":"a"}"#, "--json"]).await.expect(0).json();
    let key = first["job"]["key"].as_str().unwrap();
    assert_eq!(first["job"]["new"], true);
    let again = place
        .run(&["enqueue", "email.send", r#"{"to":"a"}"#, "--key", key, "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!((&again["job"]["new"], &again["job"]["id"]), (&false.into(), &first["job"]["id"]));
    assert_eq!(place.number("select count(*) from leasehold.job").await, 1);
    place
        .run(&["enqueue", "email.send", r#"{"to":"b"}"#, "--key", key])
        .await
        .expect(5)
        .says("another payload");
}

#[tokio::test]
async fn every_option_reaches_the_job() {
    let place = Place::new().await;
    place
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
    let row = place
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
    place.run(&["enqueue", "a", "--at", "2031-05-01T09:00:00+02:00"]).await.expect(0);
    assert_eq!(
        place
            .number("select count(*) from leasehold.job where scheduled_at = '2031-05-01 07:00Z'")
            .await,
        1
    );
}

#[tokio::test]
async fn a_mistyped_queue_is_refused_with_the_one_that_was_meant() {
    let place = Place::new().await;
    place.job("reports", "a").await;
    place
        .run(&["enqueue", "a", "--queue", "reprots"])
        .await
        .expect(3)
        .says("did you mean \"reports\"?")
        .says("--new-queue");
    assert_eq!(place.number("select count(*) from leasehold.job").await, 1, "nothing was stored");
    place.run(&["enqueue", "a", "--queue", "reports"]).await.expect(0);
    place.run(&["enqueue", "a", "--queue", "reprots", "--new-queue"]).await.expect(0);
    place
        .run(&["enqueue", "a", "--queue", "Bad Name", "--new-queue"])
        .await
        .expect(2)
        .says("not allowed");
}

#[tokio::test]
async fn a_queue_that_only_a_worker_knows_is_known() {
    let place = Place::new().await;
    let register = "select leasehold.register_worker('w/1', 'w', 'h', 1, '0', array['video'], array['a'], 1, 0, false)";
    place.client.query(register, &[]).await.unwrap();
    place.workers_live().await;
    place.run(&["enqueue", "a", "--queue", "video"]).await.expect(0);
}

#[tokio::test]
async fn arguments_come_from_a_file_or_standard_input() {
    let place = Place::new().await;
    let file = std::env::temp_dir().join(format!("leasehold-cli-{}.json", std::process::id()));
    std::fs::write(&file, "{\"from\": \"file\"}\n").unwrap();
    place.run(&["enqueue", "a", &format!("@{}", file.display())]).await.expect(0);
    std::fs::remove_file(&file).unwrap();
    place.run(&["enqueue", "a", "@/nonexistent.json"]).await.expect(3);

    let mut piped = place.command(&["enqueue", "a", "-"]);
    let mut child = piped.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"from\": \"stdin\"}").await.unwrap();
    drop(stdin);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(place.number("select count(distinct kwargs->>'from') from leasehold.job").await, 2);
}

#[tokio::test]
async fn arguments_that_no_job_can_have_are_usage() {
    let place = Place::new().await;
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(70_000));
    for bad in ["{", "[1]", "null", "\"a\"", &long] {
        place.run(&["enqueue", "a", bad]).await.expect(2);
    }
    place.run(&["enqueue", "", "{}"]).await.expect(2);
    assert_eq!(place.number("select count(*) from leasehold.job").await, 0);
}

/// Ends the job that a waiting command enqueued, as a worker would.
async fn end(place: &Place, how: &str) {
    loop {
        let claimed = place
            .client
            .query("select id, lease_generation from leasehold.claim('tester')", &[])
            .await
            .unwrap();
        if let Some(row) = claimed.first() {
            let (id, generation): (i64, i64) = (row.get(0), row.get(1));
            place.client.query(how, &[&id, &generation]).await.unwrap();
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn waiting_exits_by_the_outcome() {
    let place = Place::new().await;
    for (how, code) in [
        ("select leasehold.complete($1::bigint, $2::bigint)", 0),
        ("select leasehold.bury($1, $2, 'no such mailbox')", 1),
        ("select leasehold.finish_cancelled($1, $2, 'not wanted')", 1),
    ] {
        let waiting = Ran::of(place.command(&["enqueue", "a", "--wait", "--timeout", "100s"]));
        let (ran, ()) = tokio::join!(waiting, end(&place, how));
        let ran = ran.expect(code);
        match code {
            0 => ran.says("is completed"),
            _ => ran.says(if how.contains("bury") { "no such mailbox" } else { "not wanted" }),
        };
    }
}

#[tokio::test]
async fn a_queue_without_history_still_says_that_the_job_is_done() {
    let place = Place::new().await;
    place
        .client
        .batch_execute("insert into leasehold.queue (name, keep_history) values ('default', false)")
        .await
        .unwrap();
    let waiting = Ran::of(place.command(&["enqueue", "a", "--wait", "--timeout", "100s"]));
    let (ran, ()) =
        tokio::join!(waiting, end(&place, "select leasehold.complete($1::bigint, $2::bigint)"));
    ran.expect(0).says("is completed");
}

#[tokio::test]
async fn waiting_too_long_is_a_timeout_and_the_job_stays() {
    let place = Place::new().await;
    place
        .run(&["enqueue", "a", "--wait", "--timeout", "200ms"])
        .await
        .expect(7)
        .says("it continues");
    assert_eq!(place.number("select count(*) from leasehold.job").await, 1);
}

#[tokio::test]
async fn ctrl_c_ends_the_waiting_with_130_and_the_job_stays() {
    let place = Place::new().await;
    let mut child = place.command(&["enqueue", "a", "--wait"]).spawn().unwrap();
    // The command prints its line once the job is stored; then it starts to wait.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("enqueued"), "{line}");
    let pid = child.id().unwrap().to_string();
    let kill = std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap();
    assert!(kill.success());
    let ended = tokio::time::timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(130));
    assert_eq!(place.number("select count(*) from leasehold.job").await, 1);
}

#[tokio::test]
async fn a36_waiting_for_a_job_that_fails_says_why_and_when_it_comes_back() {
    let place = Place::new().await;
    place.client.batch_execute("insert into leasehold.queue (name) values ('mail')").await.unwrap();
    let args = ["enqueue", "a", "--queue", "mail", "--max-attempts", "2", "--wait"];
    let mut waiting = place.command(&args).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let claim_and_fail = "select leasehold.fail(c.id, c.lease_generation, 'smtp down', '1 hour') \
                            from leasehold.claim('w', 'mail') c";
    let told = async {
        while place.client.query(claim_and_fail, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        loop {
            let line = lines.next_line().await.unwrap().expect("more to say");
            if line.contains("failed once (smtp down); next attempt in ") {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, told).await.expect("told in time");
    place.client.batch_execute("update leasehold.job set scheduled_at = now()").await.unwrap();
    place.client.query(claim_and_fail, &[]).await.unwrap();
    let ended = tokio::time::timeout(LIMIT, waiting.wait()).await.expect("an end").unwrap();
    assert_eq!(ended.code(), Some(1));
}
