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
