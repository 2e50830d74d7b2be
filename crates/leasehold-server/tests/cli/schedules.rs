use super::support::{Place, Ran, command};

#[tokio::test]
async fn a_schedule_lives_from_add_to_remove() {
    let place = Place::new().await;
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
    place.run(&add).await.expect(0).prints("At 03:00");
    place.run(&add).await.expect(5).says("--replace");
    place
        .run(&["schedules", "add", "nightly", "30 4 * * *", "report.build", "--replace"])
        .await
        .expect(0);
    let listed = place.run(&["schedules", "list", "--json"]).await.expect(0).json();
    let entry = &listed["schedules"][0];
    assert_eq!(
        (&entry["cron"], &entry["zone"], &entry["job_name"]),
        (&"30 4 * * *".into(), &"UTC".into(), &"report.build".into())
    );
    assert!(entry["words"].as_str().unwrap().contains("04:30"));

    place.run(&["schedules", "pause", "nightly"]).await.expect(0);
    place.run(&["schedules", "list"]).await.expect(0).prints("paused by ann@");
    place.run(&["schedules", "pause", "nightly"]).await.expect(5);
    place.run(&["schedules", "resume", "nightly"]).await.expect(0);
    place.run(&["schedules", "resume", "nightly"]).await.expect(5);
    place
        .run(&["schedules", "remove", "nigthly"])
        .await
        .expect(3)
        .says("did you mean \"nightly\"?");
    place.run(&["schedules", "remove", "nightly"]).await.expect(0);
    assert_eq!(place.number("select count(*) from leasehold.schedule").await, 0);
    assert_eq!(
        place
            .number("select count(*) from leasehold.audit where subject = 'schedule nightly'")
            .await,
        5
    );
}

#[tokio::test]
async fn a_schedule_that_can_never_fire_is_not_stored() {
    let place = Place::new().await;
    for (cron, zone, kwargs) in [
        ("0 0 30 2 *", "UTC", "{}"),
        ("nonsense", "UTC", "{}"),
        ("* * * * *", "Mars/Olympus", "{}"),
        ("* * * * *", "UTC", "[1]"),
    ] {
        place.run(&["schedules", "add", "x", cron, "a", kwargs, "--zone", zone]).await.expect(2);
    }
    place.run(&["schedules", "add", "x", "* * * * *", "a", "--queue", "nowhere"]).await.expect(3);
    place.run(&["schedules", "add", "x", "* * * * *", "a", "--missed", "maybe"]).await.expect(2);
    assert_eq!(place.number("select count(*) from leasehold.schedule").await, 0);
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
    Ran::of(command(&["schedules", "next", "0 99 * * *"])).await.expect(2);
    let place = Place::new().await;
    place.run(&["schedules", "next", "absent"]).await.expect(3);
}
