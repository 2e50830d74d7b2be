//! Mistakes of operators and of scripts: each ends with an error that says what to do, and changes nothing.

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
