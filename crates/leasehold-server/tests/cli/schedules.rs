use super::fixture::{Fixture, Ran, command};

#[tokio::test]
async fn schedule_commands_change_and_audit_a_schedule() {
    let fixture = Fixture::new().await;
    let add = [
        "schedules",
        "add",
        "nightly",
        "0 3 * * *",
        "report.build",
        r#"{"kind":"daily"}"#,
        "--zone",
        "Europe/Berlin",
        "--missed",
        "skip",
    ];
    fixture.run(&add).await.expect(0).prints("At 03:00");
    fixture.run(&add).await.expect(5).says("--replace");
    fixture
        .run(&["schedules", "add", "nightly", "30 4 * * *", "report.build", "--replace"])
        .await
        .expect(0);
    let listed = fixture.run(&["schedules", "list", "--json"]).await.expect(0).json();
    let entry = &listed["schedules"][0];
    assert_eq!(
        (&entry["cron"], &entry["zone"], &entry["job_name"]),
        (&"30 4 * * *".into(), &"UTC".into(), &"report.build".into())
    );
    assert!(entry["words"].as_str().unwrap().contains("04:30"));

    fixture.run(&["schedules", "run", "nightly"]).await.expect(0).prints("enqueued");
    fixture.run(&["schedules", "run", "nigthly"]).await.expect(3).says("did you mean \"nightly\"?");
    fixture.run(&["schedules", "pause", "nightly"]).await.expect(0);
    fixture.run(&["schedules", "list"]).await.expect(0).prints("paused by ann@");
    fixture.run(&["schedules", "pause", "nightly"]).await.expect(5);
    fixture.run(&["schedules", "resume", "nightly"]).await.expect(0);
    fixture.run(&["schedules", "resume", "nightly"]).await.expect(5);
    fixture
        .run(&["schedules", "remove", "nigthly"])
        .await
        .expect(3)
        .says("did you mean \"nightly\"?");
    fixture.run(&["schedules", "remove", "nightly"]).await.expect(0);
    assert_eq!(fixture.count("select count(*) from leasehold_internal.schedule").await, 0);
    assert_eq!(
        fixture
            .count("select count(*) from leasehold.audit where subject = 'schedule nightly'")
            .await,
        6
    );
}

#[tokio::test]
async fn schedule_that_never_fires_is_rejected() {
    let fixture = Fixture::new().await;
    for (cron, zone, kwargs) in [
        ("0 0 30 2 *", "UTC", "{}"),
        ("nonsense", "UTC", "{}"),
        ("* * * * *", "Mars/Olympus", "{}"),
        ("* * * * *", "UTC", "[1]"),
    ] {
        fixture.run(&["schedules", "add", "x", cron, "a", kwargs, "--zone", zone]).await.expect(2);
    }
    fixture.run(&["schedules", "add", "x", "* * * * *", "a", "--queue", "nowhere"]).await.expect(3);
    fixture.run(&["schedules", "add", "x", "* * * * *", "a", "--missed", "maybe"]).await.expect(2);
    assert_eq!(fixture.count("select count(*) from leasehold_internal.schedule").await, 0);
}

#[tokio::test]
async fn next_shows_slots_of_a_pattern_without_a_database() {
    let ran = Ran::of(command(&[
        "schedules",
        "next",
        "0 3 * * *",
        "--zone",
        "Europe/Berlin",
        "--count",
        "3",
        "--json",
    ]))
    .await
    .expect(0)
    .json();
    assert_eq!(ran["schedule"]["slots"].as_array().unwrap().len(), 3);
    Ran::of(command(&["schedules", "next", "0 99 * * *"]))
        .await
        .expect(2)
        .says("cron \"0 99 * * *\" cannot be read: hour 99 is out of 0 to 23");
    Ran::of(command(&["schedules", "next", "0 0 31 2 *"]))
        .await
        .expect(2)
        .says("cron \"0 0 31 2 *\" never fires");
    let fixture = Fixture::new().await;
    fixture.run(&["schedules", "next", "absent"]).await.expect(3);
}

#[tokio::test]
async fn d17_undeclared_schedule_is_listed_with_the_command_that_removes_it() {
    let fixture = Fixture::new().await;
    fixture.run(&["schedules", "add", "by-hand", "0 3 * * *", "a", "--new-queue"]).await.expect(0);
    let declare = "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, declared_by, last_declared_at) values \
         ('kept', '0 3 * * *', 'a', now() + interval '1 day', 'mailer', now()), \
         ('dropped', '0 3 * * *', 'a', now() + interval '1 day', 'mailer', now() - interval '25 hours')";
    fixture.sql(declare).await;
    fixture
        .run(&["schedules", "list"])
        .await
        .expect(0)
        .prints("mailer, no longer")
        .says("to remove it: leasehold schedules remove dropped");
    let listed = fixture.run(&["schedules", "list", "--json"]).await.expect(0).json();
    let undeclared: Vec<&str> = listed["schedules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["undeclared"] == true)
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(undeclared, ["dropped"]);
    let found = super::doctor::check(&fixture, "schedules").await;
    super::doctor::is(&found, "warn", "dropped still fires");
    assert!(found["advice"].as_str().unwrap().contains("leasehold schedules remove"), "{found}");
    fixture.run(&["schedules", "remove", "dropped"]).await.expect(0);
    super::doctor::is(&super::doctor::check(&fixture, "schedules").await, "ok", "running worker");
    // A schedule that an operator replaces belongs to the operator.
    let replace = ["schedules", "add", "kept", "0 4 * * *", "a", "--new-queue", "--replace"];
    fixture.run(&replace).await.expect(0);
    let owned = "select count(*) from leasehold_internal.schedule where name = 'kept' and declared_by is null";
    assert_eq!(fixture.count(owned).await, 1);
}
