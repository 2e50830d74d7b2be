use super::fixture::{Fixture, ids};

#[tokio::test]
async fn jobs_list_filters_by_state_name_and_id() {
    let fixture = Fixture::new().await;
    let waiting = fixture.job("mail", "email.send").await;
    let (running, _) = fixture.running("mail", "email.read").await;
    let dead = fixture.dead("hooks", "hook.call", "rejected").await;
    let done = fixture.completed("hooks", "hook.check").await;
    let list = async |args: &[&str]| {
        let args = [&["jobs", "list", "--json"], args].concat();
        ids(&fixture.run(&args).await.expect(0).json())
    };
    let texts = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>();
    assert_eq!(list(&[]).await, texts(&[done, dead, running, waiting]), "the newest first");
    assert_eq!(list(&["--state", "ready"]).await, texts(&[waiting]));
    assert_eq!(list(&["--state", "waiting"]).await, texts(&[waiting]));
    assert_eq!(list(&["--state", "running,dead"]).await, texts(&[dead, running]));
    assert_eq!(list(&["--state", "completed"]).await, texts(&[done]));
    assert_eq!(list(&["--filter", "state:dead error:HURTS"]).await, texts(&[dead]));
    assert_eq!(list(&["--since", "1h", "--filter", "older:1h"]).await, texts(&[]));
    fixture.run(&["jobs", "list", "--state", "done"]).await.expect(2).says("is not a state");
    fixture.run(&["jobs", "list", "--filter", "colour:red"]).await.expect(2).says("is not a key");
    let twice = ["jobs", "list", "--queue", "mail", "--filter", "queue:hooks"];
    fixture.run(&twice).await.expect(2).says("queue is given twice");
    assert_eq!(list(&["--queue", "mail"]).await, texts(&[running, waiting]));
    assert_eq!(list(&["--name", "email.*"]).await, texts(&[running, waiting]));
    assert_eq!(
        list(&["--name", "email_send"]).await,
        texts(&[]),
        "an underscore stands for itself"
    );
    assert_eq!(list(&["--id", &format!("{dead},{done}")]).await, texts(&[done, dead]));
    assert_eq!(list(&["--limit", "2"]).await, texts(&[done, dead]));
    let page = fixture.run(&["jobs", "list", "--json", "--limit", "2"]).await.expect(0).json();
    let next = page["next"].as_str().expect("a cursor").to_owned();
    assert_eq!(list(&["--limit", "2", "--after", &next]).await, texts(&[running, waiting]));
    fixture.run(&["jobs", "list", "--limit", "2"]).await.expect(0).says(&format!("--after {next}"));
    fixture.run(&["jobs", "list", "--after", "81230"]).await.expect(2).says("is not a cursor");
    fixture.run(&["jobs", "list", "--tag", "unused"]).await.expect(0).says("no jobs match");
}

#[tokio::test]
async fn ndjson_prints_one_document_per_line() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    fixture.job("mail", "b").await;
    let ran = fixture.run(&["jobs", "list", "-o", "ndjson"]).await.expect(0);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["v"] == 1 && line["id"].is_string()));
    assert!(lines[0]["enqueued_at"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn show_prints_every_field_of_a_job() {
    let fixture = Fixture::new().await;
    let (running, generation) = fixture.running("mail", "a").await;
    let shown = fixture.run(&["jobs", "show", &running.to_string()]).await.expect(0);
    for word in ["tester", &generation.to_string(), "lease until", "\"n\": 1"] {
        shown.prints(word);
    }
    let dead = fixture.dead("mail", "b", "rejected").await;
    let job =
        fixture.run(&["jobs", "show", &dead.to_string(), "--json"]).await.expect(0).json()["job"]
            .clone();
    assert_eq!(
        (&job["cause"], &job["last_error"], &job["kwargs"]["n"]),
        (&"rejected".into(), &"it hurts".into(), &1.into())
    );
    fixture.run(&["jobs", "show", "987654"]).await.expect(3).says("no job 987654");
}

#[tokio::test]
async fn a36_show_lists_failures_of_running_and_completed_jobs() {
    let fixture = Fixture::new().await;
    let (id, generation) = fixture.running("mail", "a").await;
    let fail = "select leasehold.fail($1, $2, 'smtp down', '0')";
    fixture.client.query(fail, &[&id, &generation]).await.unwrap();
    let shown = fixture.run(&["jobs", "show", &id.to_string()]).await.expect(0);
    shown.prints("attempt 1 ").prints("by tester, took ").prints(": smtp down");
    let complete = "select leasehold.complete(c.id, c.lease_generation) \
                      from leasehold.claim('second', 'mail') c";
    fixture.client.query(complete, &[]).await.unwrap();
    let job = fixture.run(&["jobs", "show", &id.to_string(), "--json"]).await.expect(0).json();
    let failure = &job["job"]["errors"][0];
    assert_eq!(
        (&job["job"]["state"], &failure["error"], &failure["attempt"], &failure["worker"]),
        (&"completed".into(), &"smtp down".into(), &1.into(), &"tester".into())
    );
    fixture
        .run(&["jobs", "show", &id.to_string()])
        .await
        .expect(0)
        .prints(", next after ")
        .prints("took ");
}

#[tokio::test]
async fn job_name_with_escape_codes_is_printed_without_them() {
    let fixture = Fixture::new().await;
    let id = fixture.job("mail", "evil\u{1b}]0;owned\u{7}").await;
    for args in [&["jobs", "list"][..], &["jobs", "show", &id.to_string()]] {
        let ran = fixture.run(args).await.expect(0);
        assert!(!ran.stdout.contains('\u{1b}') && ran.stdout.contains("evil"), "{ran:?}");
    }
}

#[tokio::test]
async fn promote_makes_waiting_jobs_due_and_refuses_dead_ones() {
    let fixture = Fixture::new().await;
    let later = fixture.job("mail", "a").await;
    fixture
        .client
        .execute("update leasehold.job set scheduled_at = now() + interval '1 hour'", &[])
        .await
        .unwrap();
    let due = fixture.job("mail", "b").await;
    let dead = fixture.dead("mail", "c", "exhausted").await;
    let ran = fixture
        .run(&["jobs", "promote", &later.to_string(), &due.to_string(), "--json"])
        .await
        .expect(0)
        .json();
    let results: Vec<&str> =
        ran["jobs"].as_array().unwrap().iter().map(|job| job["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["promoted", "already_due"]);
    assert_eq!(
        fixture
            .count("select count(*) from leasehold.job where not held and scheduled_at <= now()")
            .await,
        2
    );
    assert_eq!(
        fixture.count("select count(*) from leasehold.audit where actor like 'ann@%'").await,
        1
    );
    let refused = fixture.run(&["jobs", "promote", &dead.to_string()]).await.expect(5);
    refused.says(&format!("leasehold dead redrive {dead}"));
}

#[tokio::test]
async fn promote_rejects_running_and_finished_jobs() {
    let fixture = Fixture::new().await;
    let (running, generation) = fixture.running("mail", "a").await;
    fixture.run(&["jobs", "promote", &running.to_string()]).await.expect(5).says("is running");
    let done = fixture.completed("mail", "b").await;
    fixture.run(&["jobs", "promote", &done.to_string()]).await.expect(5).says("is finished");
    fixture.run(&["jobs", "promote", "987654"]).await.expect(3);
    let sql = format!(
        "select count(*) from leasehold.job where held and lease_generation = {generation}"
    );
    assert_eq!(fixture.count(&sql).await, 1, "still held by its owner");
}

#[tokio::test]
async fn cancel_ends_waiting_jobs_and_asks_running_ones() {
    let fixture = Fixture::new().await;
    let (running, _) = fixture.running("mail", "b").await;
    let waiting = fixture.job("mail", "a").await;
    fixture
        .run(&["jobs", "cancel", &waiting.to_string(), &running.to_string(), "--why", "twice"])
        .await
        .expect(0);
    assert_eq!(fixture.state(waiting).await, "cancelled");
    assert_eq!(
        fixture.count("select count(*) from leasehold.job where held and cancel_requested").await,
        1
    );
    let dead = fixture.dead("hooks", "c", "rejected").await;
    fixture.run(&["jobs", "cancel", &dead.to_string()]).await.expect(5).says("is dead");
    fixture.run(&["jobs", "cancel", "987654"]).await.expect(3);
}

#[tokio::test]
async fn cancel_rejects_finished_jobs_by_their_state() {
    let fixture = Fixture::new().await;
    let done = fixture.completed("mail", "a").await.to_string();
    let ran = fixture.run(&["jobs", "cancel", &done]).await.expect(5);
    ran.says("is completed: there is nothing left to cancel");
    assert!(!ran.stderr.contains("enqueue a new job"), "{}", ran.stderr);
    let waiting = fixture.job("mail", "b").await.to_string();
    fixture.run(&["jobs", "cancel", &waiting]).await.expect(0);
    let ran = fixture.run(&["jobs", "cancel", &waiting, "--json"]).await.expect(5);
    ran.says("is already cancelled");
    assert_eq!(ran.json()["jobs"][0]["result"], "already_cancelled");
}

#[tokio::test]
async fn cancel_by_filter_changes_only_matching_jobs() {
    let fixture = Fixture::new().await;
    for name in ["a", "a", "b"] {
        fixture.job("mail", name).await;
    }
    fixture.run(&["jobs", "cancel"]).await.expect(4).says("--all");
    fixture.run(&["jobs", "cancel", "1", "--queue", "mail"]).await.expect(2);
    let dry = fixture
        .run(&["jobs", "cancel", "--name", "a", "--dry-run", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!((&dry["count"], &dry["dry_run"]), (&2.into(), &true.into()));
    assert_eq!(
        fixture.count("select count(*) from leasehold.job").await,
        3,
        "a dry run changes nothing"
    );
    let ran = fixture.run(&["jobs", "cancel", "--name", "a", "--json"]).await.expect(0).json();
    assert_eq!(ran["results"]["cancelled"], 2);
    assert_eq!(fixture.count("select count(*) from leasehold.job where name = 'b'").await, 1);
}

#[tokio::test]
async fn h26_jobs_with_infinite_times_are_listed_and_cancelled() {
    let fixture = Fixture::new().await;
    let odd = "insert into leasehold.job (queue, name, scheduled_at) values \
               ('odd', 'past', '-infinity'), ('odd', 'future', '9000-01-01')";
    fixture.sql(odd).await;
    let never =
        "insert into leasehold.job (queue, name, expires_at) values ('odd', 'never', 'infinity')";
    fixture.sql(never).await;
    fixture.run(&["jobs", "list"]).await.expect(0).prints("past").prints("future").prints("never");
    fixture.run(&["queues", "list"]).await.expect(0).prints("odd");
    for name in ["past", "future", "never"] {
        let id = format!("select id from leasehold.job where name = '{name}'");
        let id = fixture.count(&id).await.to_string();
        fixture.run(&["jobs", "show", &id]).await.expect(0).prints(name);
    }
    fixture.run(&["jobs", "cancel", "--queue", "odd", "--yes"]).await.expect(0);
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 0);
}

#[tokio::test]
async fn h2_jobs_with_deep_kwargs_and_odd_times_of_enqueue_are_listed() {
    let fixture = Fixture::new().await;
    let odd = "select leasehold.enqueue('deep', \
                   ('{\"a\":' || repeat('[', 200) || repeat(']', 200) || '}')::jsonb, 'odd'); \
               insert into leasehold.job (queue, name, enqueued_at) values \
                   ('odd', 'endless', 'infinity'), ('odd', 'ancient', '-infinity'), ('odd', 'late', '12000-01-01')";
    fixture.sql(odd).await;
    fixture.run(&["jobs", "list"]).await.expect(0).prints("deep").prints("endless").prints("late");
    for name in ["deep", "endless", "ancient", "late"] {
        let id =
            fixture.count(&format!("select id from leasehold.job where name = '{name}'")).await;
        fixture.run(&["jobs", "show", &id.to_string()]).await.expect(0).prints(name);
    }
    let bury = "select leasehold.bury(id, lease_generation, 'x') from leasehold.claim('w', 'odd')";
    fixture.client.query(bury, &[]).await.unwrap();
    fixture.run(&["dead", "list"]).await.expect(0).prints("deep").prints("ancient");
}

#[tokio::test]
async fn delete_removes_waiting_and_dead_jobs_only() {
    let fixture = Fixture::new().await;
    let (running, _) = fixture.running("mail", "b").await;
    let done = fixture.completed("mail", "d").await;
    let dead = fixture.dead("mail", "c", "lost").await;
    let waiting = fixture.job("mail", "a").await;
    let ran = fixture
        .run(&["jobs", "delete", &dead.to_string(), &waiting.to_string(), "--why", "a mistake"])
        .await;
    ran.expect(0).prints("deleted");
    let left = "select count(*) from leasehold.jobs";
    assert_eq!(fixture.count(left).await, 2);
    fixture.run(&["jobs", "delete", &running.to_string()]).await.expect(5).says("is running");
    fixture.run(&["jobs", "delete", &done.to_string()]).await.expect(5).says("is finished");
    fixture.run(&["jobs", "delete", "987654"]).await.expect(3);
    assert_eq!(fixture.count(left).await, 2);
    // One dead job: a filter asks for confirmation even then.
    let dead = fixture.dead("mail", "c", "lost").await;
    fixture.run(&["jobs", "delete", "--queue", "mail"]).await.expect(4).says("--yes");
    fixture.run(&["jobs", "delete", "--all"]).await.expect(4).says("--yes");
    let still = format!("select count(*) from leasehold.jobs where id = {dead}");
    assert_eq!(fixture.count(&still).await, 1);
    fixture.run(&["jobs", "delete", "--queue", "mail", "--yes"]).await.expect(0).prints("deleted");
    assert_eq!(fixture.count(&still).await, 0);
    let noted =
        "select count(*) from leasehold.audit where action = 'delete' and detail like '%a mistake'";
    assert_eq!(fixture.count(noted).await, 1);
}

#[tokio::test]
async fn jobs_list_is_in_order_of_time() {
    let fixture = Fixture::new().await;
    let other = fixture.database.connect_directly().await;
    // Each session draws a block of ids, so the second one's are higher.
    let mut made = Vec::new();
    for n in 0..4 {
        let session = if n % 2 == 0 { &fixture.client } else { &other };
        let row =
            session.query_one("select job_id from leasehold.enqueue('a')", &[]).await.unwrap();
        made.push(row.get::<_, i64>(0).to_string());
    }
    assert!(!made.is_sorted(), "{made:?}");
    made.reverse();
    let listed = fixture.run(&["jobs", "list", "--json"]).await.expect(0).json();
    assert_eq!(ids(&listed), made);
}

#[tokio::test]
async fn update_changes_only_the_given_values_of_waiting_jobs() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.job("mail", "a").await, fixture.job("mail", "b").await);
    let (first, second) = (one.to_string(), two.to_string());
    let args = ["jobs", "update", &first, &second, "--priority", "-5", "--at", "+2h"];
    let ran = fixture.run(&[&args[..], &["--why", "after the move", "--json"]].concat()).await;
    let results = ran.expect(0).json();
    assert_eq!(results["jobs"][1]["result"], "updated", "{results}");
    let changed = "select count(*) from leasehold.job where priority = -5 and tag = '' \
                   and max_attempts is null and scheduled_at > now() + interval '1 hour' \
                   and expires_at > scheduled_at";
    assert_eq!(fixture.count(changed).await, 2);
    let more = ["--tag", "import", "--max-attempts", "3", "--expires", "+4h"];
    fixture.run(&[&["jobs", "update", &first][..], &more].concat()).await.expect(0);
    let changed = "select count(*) from leasehold.job where priority = -5 and tag = 'import' \
                   and max_attempts = 3 and expires_at < now() + interval '5 hours'";
    assert_eq!(fixture.count(changed).await, 1);
    let audited = "select count(*) from leasehold.audit where action = 'update' \
                   and detail like '%after the move'";
    assert_eq!(fixture.count(audited).await, 2);
}

#[tokio::test]
async fn update_rejects_jobs_that_do_not_wait_and_bad_values() {
    let fixture = Fixture::new().await;
    let (running, _) = fixture.running("mail", "a").await;
    let dead = fixture.dead("mail", "b", "lost").await.to_string();
    let done = fixture.completed("mail", "c").await.to_string();
    let update = async |id: &str, value: &[&str]| {
        fixture.run(&[&["jobs", "update", id][..], value].concat()).await
    };
    let priority = ["--priority", "1"];
    update(&running.to_string(), &priority).await.expect(5).says("is running");
    update(&dead, &priority).await.expect(5).says("leasehold dead redrive");
    update(&done, &priority).await.expect(5).says("is finished");
    update("987654", &priority).await.expect(3);
    let waiting = fixture.job("mail", "d").await.to_string();
    update(&waiting, &[]).await.expect(2).says("--priority");
    update(&waiting, &["--max-attempts", "0"]).await.expect(2);
    update(&waiting, &["--at", "+2h", "--expires", "+1h"]).await.expect(2);
    let kept = "select count(*) from leasehold.job where id = $1 and priority = 0";
    let kept = kept.replace("$1", &waiting);
    assert_eq!(fixture.count(&kept).await, 1);
}
