use super::support::{Place, ids};

#[tokio::test]
async fn lists_every_state_and_filters_them() {
    let place = Place::new().await;
    let waiting = place.job("mail", "email.send").await;
    let (running, _) = place.running("mail", "email.read").await;
    let dead = place.dead("hooks", "hook.call", "rejected").await;
    let done = place.done("hooks", "hook.check").await;
    let list = async |args: &[&str]| {
        let args = [&["jobs", "list", "--json"], args].concat();
        ids(&place.run(&args).await.expect(0).json())
    };
    let texts = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>();
    assert_eq!(list(&[]).await, texts(&[done, dead, running, waiting]), "the newest first");
    assert_eq!(list(&["--state", "ready"]).await, texts(&[waiting]));
    assert_eq!(list(&["--state", "waiting"]).await, texts(&[waiting]));
    assert_eq!(list(&["--state", "running,dead"]).await, texts(&[dead, running]));
    assert_eq!(list(&["--state", "completed"]).await, texts(&[done]));
    assert_eq!(list(&["--filter", "state:dead error:HURTS"]).await, texts(&[dead]));
    assert_eq!(list(&["--since", "1h", "--filter", "older:1h"]).await, texts(&[]));
    place.run(&["jobs", "list", "--state", "pending"]).await.expect(2).says("is not a state");
    place.run(&["jobs", "list", "--filter", "colour:red"]).await.expect(2).says("is not a key");
    let twice = ["jobs", "list", "--queue", "mail", "--filter", "queue:hooks"];
    place.run(&twice).await.expect(2).says("queue is given twice");
    assert_eq!(list(&["--queue", "mail"]).await, texts(&[running, waiting]));
    assert_eq!(list(&["--name", "email.*"]).await, texts(&[running, waiting]));
    assert_eq!(
        list(&["--name", "email_send"]).await,
        texts(&[]),
        "an underscore stands for itself"
    );
    assert_eq!(list(&["--id", &format!("{dead},{done}")]).await, texts(&[done, dead]));
    assert_eq!(list(&["--limit", "2"]).await, texts(&[done, dead]));
    let page = place.run(&["jobs", "list", "--json", "--limit", "2"]).await.expect(0).json();
    let next = page["next"].as_str().expect("a cursor").to_owned();
    assert_eq!(list(&["--limit", "2", "--after", &next]).await, texts(&[running, waiting]));
    place.run(&["jobs", "list", "--limit", "2"]).await.expect(0).says(&format!("--after {next}"));
    place.run(&["jobs", "list", "--after", "81230"]).await.expect(2).says("is not a cursor");
    place.run(&["jobs", "list", "--tag", "nobody"]).await.expect(0).says("no jobs match");
}

#[tokio::test]
async fn ndjson_is_a_document_a_line() {
    let place = Place::new().await;
    place.job("mail", "a").await;
    place.job("mail", "b").await;
    let ran = place.run(&["jobs", "list", "-o", "ndjson"]).await.expect(0);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["v"] == 1 && line["id"].is_string()));
    assert!(lines[0]["enqueued_at"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn show_tells_everything_about_a_job() {
    let place = Place::new().await;
    let (running, generation) = place.running("mail", "a").await;
    let shown = place.run(&["jobs", "show", &running.to_string()]).await.expect(0);
    for word in ["tester", &generation.to_string(), "lease until", "\"n\": 1"] {
        shown.prints(word);
    }
    let dead = place.dead("mail", "b", "rejected").await;
    let job =
        place.run(&["jobs", "show", &dead.to_string(), "--json"]).await.expect(0).json()["job"]
            .clone();
    assert_eq!(
        (&job["cause"], &job["last_error"], &job["kwargs"]["n"]),
        (&"rejected".into(), &"it hurts".into(), &1.into())
    );
    place.run(&["jobs", "show", "987654"]).await.expect(3).says("no job 987654");
}

#[tokio::test]
async fn a36_show_tells_of_every_failure_and_of_a_completed_job_too() {
    let place = Place::new().await;
    let (id, generation) = place.running("mail", "a").await;
    let fail = "select leasehold.fail($1, $2, 'smtp down', '0')";
    place.client.query(fail, &[&id, &generation]).await.unwrap();
    let shown = place.run(&["jobs", "show", &id.to_string()]).await.expect(0);
    shown.prints("attempt 1 ").prints("by tester, took ").prints(": smtp down");
    let complete = "select leasehold.complete(c.id, c.lease_generation) \
                      from leasehold.claim('second', 'mail') c";
    place.client.query(complete, &[]).await.unwrap();
    let job = place.run(&["jobs", "show", &id.to_string(), "--json"]).await.expect(0).json();
    let failure = &job["job"]["errors"][0];
    assert_eq!(
        (&job["job"]["state"], &failure["error"], &failure["attempt"], &failure["worker"]),
        (&"completed".into(), &"smtp down".into(), &1.into(), &"tester".into())
    );
    place
        .run(&["jobs", "show", &id.to_string()])
        .await
        .expect(0)
        .prints(", next after ")
        .prints("took ");
}

#[tokio::test]
async fn a_job_cannot_steer_the_terminal() {
    let place = Place::new().await;
    let id = place.job("mail", "evil\u{1b}]0;owned\u{7}").await;
    for args in [&["jobs", "list"][..], &["jobs", "show", &id.to_string()]] {
        let ran = place.run(args).await.expect(0);
        assert!(!ran.stdout.contains('\u{1b}') && ran.stdout.contains("evil"), "{ran:?}");
    }
}

#[tokio::test]
async fn retry_promotes_what_waits_and_redrives_what_is_dead() {
    let place = Place::new().await;
    let later = place.job("mail", "a").await;
    place
        .client
        .execute("update leasehold.job set scheduled_at = now() + interval '1 hour'", &[])
        .await
        .unwrap();
    let due = place.job("mail", "b").await;
    let dead = place.dead("mail", "c", "exhausted").await;
    let ran = place
        .run(&["jobs", "retry", &later.to_string(), &due.to_string(), &dead.to_string(), "--json"])
        .await
        .expect(0)
        .json();
    let results: Vec<&str> =
        ran["jobs"].as_array().unwrap().iter().map(|job| job["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["promoted", "already_due", "redriven"]);
    assert_eq!(
        place
            .number("select count(*) from leasehold.job where not held and scheduled_at <= now()")
            .await,
        3
    );
    assert_eq!(
        place.number("select count(*) from leasehold.audit where actor like 'ann@%'").await,
        2
    );
}

#[tokio::test]
async fn retrying_a_running_job_is_a_conflict_and_changes_nothing() {
    let place = Place::new().await;
    let (running, generation) = place.running("mail", "a").await;
    place.run(&["jobs", "retry", &running.to_string()]).await.expect(5).says("is running");
    let done = place.done("mail", "b").await;
    place.run(&["jobs", "retry", &done.to_string()]).await.expect(5).says("is finished");
    place.run(&["jobs", "retry", "987654"]).await.expect(3);
    let sql = format!(
        "select count(*) from leasehold.job where held and lease_generation = {generation}"
    );
    assert_eq!(place.number(&sql).await, 1, "still held by its owner");
}

#[tokio::test]
async fn cancel_ends_what_waits_and_asks_what_runs() {
    let place = Place::new().await;
    let (running, _) = place.running("mail", "b").await;
    let waiting = place.job("mail", "a").await;
    place
        .run(&["jobs", "cancel", &waiting.to_string(), &running.to_string(), "--why", "twice"])
        .await
        .expect(0);
    assert_eq!(place.state(waiting).await, "cancelled");
    assert_eq!(
        place.number("select count(*) from leasehold.job where held and cancel_requested").await,
        1
    );
    let dead = place.dead("hooks", "c", "rejected").await;
    place.run(&["jobs", "cancel", &dead.to_string()]).await.expect(5).says("is dead");
    place.run(&["jobs", "cancel", "987654"]).await.expect(3);
}

#[tokio::test]
async fn cancel_of_a_finished_job_names_its_state_and_gives_no_advice_for_retry() {
    let place = Place::new().await;
    let done = place.done("mail", "a").await.to_string();
    let ran = place.run(&["jobs", "cancel", &done]).await.expect(5);
    ran.says("is completed: there is nothing left to cancel");
    assert!(!ran.stderr.contains("enqueue a new job"), "{}", ran.stderr);
    let waiting = place.job("mail", "b").await.to_string();
    place.run(&["jobs", "cancel", &waiting]).await.expect(0);
    let ran = place.run(&["jobs", "cancel", &waiting, "--json"]).await.expect(5);
    ran.says("is already cancelled");
    assert_eq!(ran.json()["jobs"][0]["result"], "already_cancelled");
}

#[tokio::test]
async fn cancel_by_filter_takes_only_what_matches() {
    let place = Place::new().await;
    for name in ["a", "a", "b"] {
        place.job("mail", name).await;
    }
    place.run(&["jobs", "cancel"]).await.expect(4).says("--all");
    place.run(&["jobs", "cancel", "1", "--queue", "mail"]).await.expect(2);
    let dry =
        place.run(&["jobs", "cancel", "--name", "a", "--dry-run", "--json"]).await.expect(0).json();
    assert_eq!((&dry["count"], &dry["dry_run"]), (&2.into(), &true.into()));
    assert_eq!(
        place.number("select count(*) from leasehold.job").await,
        3,
        "a dry run changes nothing"
    );
    let ran = place.run(&["jobs", "cancel", "--name", "a", "--json"]).await.expect(0).json();
    assert_eq!(ran["results"]["cancelled"], 2);
    assert_eq!(place.number("select count(*) from leasehold.job where name = 'b'").await, 1);
}

#[tokio::test]
async fn h26_jobs_with_infinite_times_are_listed_and_cancelled() {
    let place = Place::new().await;
    let odd = "insert into leasehold.job (queue, name, scheduled_at) values \
               ('odd', 'past', '-infinity'), ('odd', 'future', '9000-01-01')";
    place.client.batch_execute(odd).await.unwrap();
    let never =
        "insert into leasehold.job (queue, name, expires_at) values ('odd', 'never', 'infinity')";
    place.client.batch_execute(never).await.unwrap();
    place.run(&["jobs", "list"]).await.expect(0).prints("past").prints("future").prints("never");
    place.run(&["queues", "list"]).await.expect(0).prints("odd");
    for name in ["past", "future", "never"] {
        let id = format!("select id from leasehold.job where name = '{name}'");
        let id = place.number(&id).await.to_string();
        place.run(&["jobs", "show", &id]).await.expect(0).prints(name);
    }
    place.run(&["jobs", "cancel", "--queue", "odd", "--yes"]).await.expect(0);
    assert_eq!(place.number("select count(*) from leasehold.job").await, 0);
}

#[tokio::test]
async fn h2_jobs_with_deep_kwargs_and_odd_times_of_enqueue_are_listed() {
    let place = Place::new().await;
    let odd = "select leasehold.enqueue('deep', \
                   ('{\"a\":' || repeat('[', 200) || repeat(']', 200) || '}')::jsonb, 'odd'); \
               insert into leasehold.job (queue, name, enqueued_at) values \
                   ('odd', 'endless', 'infinity'), ('odd', 'ancient', '-infinity'), ('odd', 'late', '12000-01-01')";
    place.client.batch_execute(odd).await.unwrap();
    place.run(&["jobs", "list"]).await.expect(0).prints("deep").prints("endless").prints("late");
    for name in ["deep", "endless", "ancient", "late"] {
        let id = place.number(&format!("select id from leasehold.job where name = '{name}'")).await;
        place.run(&["jobs", "show", &id.to_string()]).await.expect(0).prints(name);
    }
    let bury = "select leasehold.bury(id, lease_generation, 'x') from leasehold.claim('w', 'odd')";
    place.client.query(bury, &[]).await.unwrap();
    place.run(&["dead", "list"]).await.expect(0).prints("deep").prints("ancient");
}

#[tokio::test]
async fn delete_removes_what_waits_or_is_dead_and_refuses_the_rest() {
    let place = Place::new().await;
    let (running, _) = place.running("mail", "b").await;
    let done = place.done("mail", "d").await;
    let dead = place.dead("mail", "c", "lost").await;
    let waiting = place.job("mail", "a").await;
    let ran = place
        .run(&["jobs", "delete", &dead.to_string(), &waiting.to_string(), "--why", "a mistake"])
        .await;
    ran.expect(0).prints("deleted");
    let left = "select count(*) from leasehold.jobs";
    assert_eq!(place.number(left).await, 2);
    place.run(&["jobs", "delete", &running.to_string()]).await.expect(5).says("is running");
    place.run(&["jobs", "delete", &done.to_string()]).await.expect(5).says("is finished");
    place.run(&["jobs", "delete", "987654"]).await.expect(3);
    assert_eq!(place.number(left).await, 2);
    let noted =
        "select count(*) from leasehold.audit where action = 'delete' and detail like '%a mistake'";
    assert_eq!(place.number(noted).await, 1);
}

#[tokio::test]
async fn lists_are_in_order_of_time_whatever_the_ids() {
    let place = Place::new().await;
    let other = place.database.connect_directly().await;
    // Each session draws a block of ids, so the second one's are higher.
    let mut made = Vec::new();
    for n in 0..4 {
        let session = if n % 2 == 0 { &place.client } else { &other };
        let row =
            session.query_one("select job_id from leasehold.enqueue('a')", &[]).await.unwrap();
        made.push(row.get::<_, i64>(0).to_string());
    }
    assert!(!made.is_sorted(), "{made:?}");
    made.reverse();
    let listed = place.run(&["jobs", "list", "--json"]).await.expect(0).json();
    assert_eq!(ids(&listed), made);
}
