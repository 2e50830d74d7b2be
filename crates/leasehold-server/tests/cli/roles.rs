//! The commands of operators under the shipped roles.

use super::support::{Place, Ran};

/// Runs a command as a login role that is a member of one shipped role.
async fn run_as(place: &Place, role: &str, args: &[&str]) -> Ran {
    let login = format!("cli_{role}_{}", std::process::id());
    let make = format!(
        "do $$ begin create role {login} login; exception when duplicate_object then null; end $$; \
         grant leasehold_{role} to {login}"
    );
    place.client.batch_execute(&make).await.expect("a login role");
    let mut command = super::support::command(args);
    command.args(["--database-url", &as_user(&place.database.direct_url(), &login)]);
    Ran::of(command).await
}

/// Replaces the user of a URL: the last one that it names counts.
fn as_user(url: &str, user: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}user={user}")
}

#[tokio::test]
async fn f2_viewers_list_and_operators_act() {
    let place = Place::new().await;
    let dead = place.dead("mail", "a", "lost").await.to_string();
    let done = place.done("mail", "b").await.to_string();
    let waiting = place.job("mail", "c").await.to_string();
    let reads: [&[&str]; 6] = [
        &["jobs", "list"],
        &["jobs", "show", &done],
        &["dead", "list"],
        &["queues", "list"],
        &["schedules", "list"],
        &["workers", "list"],
    ];
    for role in ["viewer", "operator"] {
        for args in reads {
            run_as(&place, role, args).await.expect(0);
        }
    }
    let hidden = run_as(&place, "viewer", &["jobs", "show", &dead]).await.expect(0);
    hidden.prints("hidden: needs leasehold_operator");
    assert!(!hidden.stdout.contains("it hurts"), "{}", hidden.stdout);
    run_as(&place, "operator", &["jobs", "show", &dead]).await.expect(0).prints("it hurts");
    let acts: [&[&str]; 7] = [
        &["dead", "redrive", &dead],
        &["jobs", "cancel", &waiting],
        &["jobs", "delete", &dead],
        &["queues", "pause", "mail", "--why", "x"],
        &["queues", "resume", "mail"],
        &["queues", "set", "mail", "--max-lost", "4"],
        &["schedules", "add", "nightly", "0 3 * * *", "a", "--queue", "mail"],
    ];
    for args in acts {
        run_as(&place, "viewer", args).await.expect(1).says("leasehold_operator");
    }
    assert_eq!(place.number("select count(*) from leasehold.audit").await, 0);
    for args in acts {
        run_as(&place, "operator", args).await.expect(0);
    }
    run_as(&place, "producer", &["enqueue", "a", "--queue", "mail"]).await.expect(0);
}
