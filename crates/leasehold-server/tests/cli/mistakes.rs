//! Mistakes of operators and of scripts: each ends with an error that says what to do, and changes nothing.

use leasehold_testing::until;

use super::fixture::Fixture;

/// `--filter "$F"` with a variable that is not set.
#[tokio::test]
async fn filter_without_terms_selects_no_job() {
    let fixture = Fixture::new().await;
    let (waiting, dead) = (fixture.job("mail", "a").await, fixture.dead("mail", "b", "lost").await);
    for command in [&["jobs", "delete"][..], &["jobs", "cancel"], &["dead", "redrive"]] {
        for filter in ["", "  "] {
            let args = [command, &["--filter", filter, "--yes"]].concat();
            fixture.run(&args).await.expect(4).says("no jobs are selected");
        }
        for flag in ["--queue", "--name", "--tag"] {
            let args = [command, &[flag, "", "--yes"]].concat();
            fixture.run(&args).await.expect(2).says("give a value");
        }
    }
    assert_eq!(fixture.state(waiting).await, "ready");
    assert_eq!(fixture.state(dead).await, "dead");
    let untagged = ["jobs", "delete", "--filter", "state:ready tag:\"\"", "--yes"];
    fixture.run(&untagged).await.expect(0).prints("1 job: deleted");
}

#[tokio::test]
async fn command_that_timed_out_takes_no_effect_later() {
    let fixture = Fixture::new().await;
    let id = fixture.job("mail", "a").await;
    let mut other = fixture.database.connect_directly().await;
    let lock = other.transaction().await.unwrap();
    lock.execute("select from leasehold.job where id = $1 for update", &[&id]).await.unwrap();
    let cancel = ["--timeout", "1s", "jobs", "cancel", &id.to_string()];
    fixture.run(&cancel).await.expect(7).says("changed nothing").says("--timeout");
    lock.rollback().await.unwrap();
    // A session whose client is gone runs its statement to the end.
    let sessions = "select count(*) from pg_stat_activity \
                     where datname = current_database() and application_name = 'leasehold'";
    until("the command's session has ended", async || fixture.count(sessions).await == 0).await;
    assert_eq!(fixture.state(id).await, "ready");
    fixture.run(&["jobs", "cancel", &id.to_string()]).await.expect(0);
    assert_eq!(fixture.state(id).await, "cancelled");
}

#[tokio::test]
async fn numbers_and_kwargs_are_refused_with_what_to_write() {
    let fixture = Fixture::new().await;
    for (args, words) in [
        (&["jobs", "update", "1", "--priority", "abc"][..], "from -2147483648 to 2147483647"),
        (&["jobs", "list", "--limit", "0"], "a whole number from 1 to 10000"),
        (&["jobs", "list", "--limit", "100000"], "a whole number from 1 to 10000"),
        (&["enqueue", "x", "nojson"], "\"nojson\", which is not JSON"),
        (&["enqueue", "x", "--expires", "2020-01-01T00:00:00Z", "--new-queue"], "has passed"),
        (&["jobs", "list", "--filter", "cause:lost state:ready"], "only dead jobs have a cause"),
    ] {
        fixture.run(args).await.expect(2).says(words);
    }
}

#[tokio::test]
async fn printed_cursor_can_be_pasted() {
    let fixture = Fixture::new().await;
    fixture.sql("insert into leasehold.job (name, enqueued_at) select 'a', '-infinity' from generate_series(1, 3)").await;
    let first = fixture.run(&["jobs", "list", "--limit", "2", "--json"]).await.expect(0).json();
    let cursor = first["next"].as_str().expect("a cursor").to_owned();
    let args = ["jobs", "list", "--json", "--after", &cursor];
    let rest = fixture.run(&args).await.expect(0).json();
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 1, "{cursor}");
}

/// Jobs stored by a plain INSERT may have any queue name.
#[tokio::test]
async fn queue_with_an_odd_name_is_printed_without_control_characters() {
    let fixture = Fixture::new().await;
    let name = "odd\u{1b}[31m\u{202e}name";
    let insert = "insert into leasehold.job (name, queue) values ('a', $1)";
    fixture.client.execute(insert, &[&name]).await.unwrap();
    let ran = fixture.run(&["queues", "list"]).await.expect(0);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(text.contains("name") && !text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[tokio::test]
async fn queue_with_an_odd_name_can_be_resumed() {
    let fixture = Fixture::new().await;
    let name = "odd\u{1b}[31m\u{202e}name";
    let insert = "insert into leasehold.job (name, queue) values ('a', $1)";
    fixture.client.execute(insert, &[&name]).await.unwrap();
    fixture.client.execute("select leasehold.pause($1, 'ann')", &[&name]).await.unwrap();
    fixture.run(&["queues", "resume", name]).await.expect(0);
    fixture.run(&["queues", "pause", "Bad Name", "--why", "x"]).await.expect(2).says("not allowed");
}

#[tokio::test]
async fn hint_about_an_unknown_queue_suits_the_command() {
    let fixture = Fixture::new().await;
    let pause = ["queues", "pause", "mail", "--why", "x"];
    fixture.run(&pause).await.expect(3).says("no queue of this database").says("--new-queue");
    let resume = fixture.run(&["queues", "resume", "nix"]).await.expect(3);
    resume.says("leasehold queues list");
    assert!(!resume.stderr.contains("--new-queue"), "{}", resume.stderr);
}

#[tokio::test]
async fn watch_without_a_threshold_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    let watches = "select count(*) from leasehold_internal.watch";
    fixture.run(&["alarms", "watch", "mail"]).await.expect(3).says("has no thresholds");
    let set = ["alarms", "watch", "mial", "--max-length", "9"];
    fixture.run(&set).await.expect(3).says("did you mean \"mail\"?");
    assert_eq!(fixture.count(watches).await, 0);
    fixture.run(&["alarms", "watch", "mail", "--max-length", "9"]).await.expect(0);
    fixture.run(&["alarms", "watch", "mail"]).await.expect(0).prints("<= 9");
    let quiet = "select count(*) from leasehold_internal.watch where min_completed = 0";
    assert_eq!(fixture.count(quiet).await, 1, "a quiet queue raises no alarm");
}

#[tokio::test]
async fn cancel_of_all_jobs_needs_a_confirmation() {
    let fixture = Fixture::new().await;
    let id = fixture.job("mail", "a").await;
    fixture.run(&["jobs", "cancel", "--all"]).await.expect(4).says("--yes");
    assert_eq!(fixture.state(id).await, "ready");
    fixture.run(&["jobs", "cancel", "--all", "--yes"]).await.expect(0);
}

#[tokio::test]
async fn reasons_of_redrives_and_schedules_are_recorded() {
    let fixture = Fixture::new().await;
    let dead = fixture.dead("mail", "a", "lost").await.to_string();
    fixture.run(&["dead", "redrive", &dead, "--why", "because-1"]).await.expect(0);
    let add = ["schedules", "add", "nightly", "@daily", "a", "--queue", "mail"];
    fixture.run(&add).await.expect(0);
    for verb in ["pause", "resume", "remove"] {
        fixture.run(&["schedules", verb, "nightly", "--why", "because-1"]).await.expect(0);
    }
    let recorded = "select count(*) from leasehold.audit where detail like '%because-1%'";
    assert_eq!(fixture.count(recorded).await, 4);
}

#[tokio::test]
async fn enqueue_takes_an_expiry_and_the_time_of_a_key() {
    let fixture = Fixture::new().await;
    let args = ["enqueue", "a", "--expires", "+2h", "--key", "k", "--key-ttl", "3h"];
    fixture.run(&args).await.expect(0);
    let stored = "select count(*) from leasehold.job j \
                    join leasehold_internal.idempotency_key k on k.job_id = j.id \
                   where j.expires_at between now() + interval '119 minutes' and now() + interval '2 hours' \
                     and k.holds_until between now() + interval '179 minutes' and now() + interval '3 hours'";
    assert_eq!(fixture.count(stored).await, 1);
    fixture.run(&["enqueue", "a", "--key-ttl", "3h"]).await.expect(2).says("--key");
}

#[tokio::test]
async fn update_names_its_options_in_errors() {
    let fixture = Fixture::new().await;
    let id = fixture.job("mail", "a").await.to_string();
    let ran =
        fixture.run(&["jobs", "update", &id, "--at", "+2h", "--expires", "+1h"]).await.expect(2);
    ran.says("--expires is").says("--at");
    assert!(!ran.stderr.contains("expires_at"), "{}", ran.stderr);
}

#[tokio::test]
async fn doctor_does_not_pass_checks_that_it_could_not_make() {
    let fixture = Fixture::new().await;
    fixture.run(&["doctor", "--no-self-test"]).await.prints("not checked: no live worker");
    fixture
        .sql("insert into leasehold.job (name, queue) select 'a', 'q' || n from generate_series(1, 30) n")
        .await;
    let found = fixture.run(&["doctor", "--no-self-test"]).await;
    found.prints("and 20 more");
    let listed = found.stdout.lines().filter(|line| line.contains("no live worker")).count();
    assert!(listed <= 11, "{}", found.stdout);
    let notes = fixture.run(&["queues", "list"]).await.expect(0);
    notes.says("and 20 more queues");
}
