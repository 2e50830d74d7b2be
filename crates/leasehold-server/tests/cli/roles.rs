//! The commands of operators under the shipped roles.

use super::fixture::{Fixture, Ran};

/// Runs a command as a login role that is a member of one shipped role.
async fn run_as(fixture: &Fixture, role: &str, args: &[&str]) -> Ran {
    let login = format!("cli_{role}_{}", std::process::id());
    let make = format!(
        "do $$ begin create role {login} login; exception when duplicate_object then null; end $$; \
         grant leasehold_{role} to {login}"
    );
    fixture.sql(&make).await;
    let mut command = super::fixture::command(args);
    command.args(["--database-url", &as_user(&fixture.database.direct_url(), &login)]);
    Ran::of(command).await
}

/// Replaces the user of a URL: the last one that it names counts.
fn as_user(url: &str, user: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}user={user}")
}

#[tokio::test]
async fn viewers_list_and_operators_act() {
    let fixture = Fixture::new().await;
    let dead = fixture.dead("mail", "a", "lost").await.to_string();
    let done = fixture.completed("mail", "b").await.to_string();
    let waiting = fixture.job("mail", "c").await.to_string();
    let reads: [&[&str]; 9] = [
        &["jobs", "list"],
        &["jobs", "show", &done],
        &["dead", "list"],
        &["queues", "list"],
        &["limits", "list"],
        &["limits", "keys", "--queue", "mail"],
        &["batches", "list"],
        &["schedules", "list"],
        &["workers", "list"],
    ];
    for role in ["viewer", "operator"] {
        for args in reads {
            run_as(&fixture, role, args).await.expect(0);
        }
    }
    let hidden = run_as(&fixture, "viewer", &["jobs", "show", &dead]).await.expect(0);
    hidden.prints("hidden: needs leasehold_operator");
    assert!(!hidden.stdout.contains("it hurts"), "{}", hidden.stdout);
    run_as(&fixture, "operator", &["jobs", "show", &dead]).await.expect(0).prints("it hurts");
    let acts: [&[&str]; 10] = [
        &["dead", "redrive", &dead],
        &["jobs", "update", &waiting, "--priority", "1"],
        &["jobs", "cancel", &waiting],
        &["jobs", "delete", &dead],
        &["queues", "pause", "mail", "--why", "x"],
        &["queues", "resume", "mail"],
        &["queues", "set", "mail", "--max-lost", "4"],
        &["limits", "set", "tenant", "--queue", "mail", "--max-running", "1"],
        &["limits", "pause", "tenant:7", "--queue", "mail"],
        &["schedules", "add", "nightly", "0 3 * * *", "a", "--queue", "mail"],
    ];
    for args in acts {
        run_as(&fixture, "viewer", args).await.expect(1).says("leasehold_operator");
    }
    assert_eq!(fixture.count("select count(*) from leasehold.audit").await, 0);
    for args in acts {
        run_as(&fixture, "operator", args).await.expect(0);
    }
    let enqueued =
        run_as(&fixture, "producer", &["enqueue", "a", "--queue", "mail"]).await.expect(0);
    assert!(enqueued.stderr.is_empty(), "a producer may not see workers: {}", enqueued.stderr);
    // Without the right, nothing is stored and the error names the role.
    let jobs = "select count(*) from leasehold.job";
    let before = fixture.count(jobs).await;
    for role in ["operator", "viewer"] {
        let denied = run_as(&fixture, role, &["enqueue", "a", "--queue", "mail"]).await.expect(1);
        denied.says("leasehold_producer");
    }
    let waiting = ["enqueue", "a", "--queue", "mail", "--wait"];
    run_as(&fixture, "producer", &waiting).await.expect(1).says("leasehold_viewer");
    assert_eq!(fixture.count(jobs).await, before);
}

/// Each error about a missing right names the role to grant.
#[tokio::test]
async fn missing_rights_name_the_role_that_helps() {
    let fixture = Fixture::new().await;
    for args in [&["alarms", "list"][..], &["sweeps", "list"], &["mirrors", "list"]] {
        run_as(&fixture, "producer", args).await.expect(1).says("leasehold_viewer");
    }
    let pause = ["sweeps", "pause", "any", "--why", "x"];
    run_as(&fixture, "viewer", &pause).await.expect(1).says("leasehold_operator");
    let reserved = run_as(&fixture, "producer", &["enqueue", "leasehold.x"]).await.expect(1);
    reserved.says("Choose a name that does not begin with leasehold.");
    assert!(!reserved.stderr.contains("leasehold_producer: grant"), "{}", reserved.stderr);
    let login = format!("cli_nothing_{}", std::process::id());
    fixture.sql(&format!("create role {login} login")).await;
    let mut command = super::fixture::command(&["jobs", "list"]);
    command.args(["--database-url", &as_user(&fixture.database.direct_url(), &login)]);
    Ran::of(command).await.expect(1).says("leasehold_viewer reads");
}
