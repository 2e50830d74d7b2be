use super::support::Place;

#[tokio::test]
async fn lists_what_waits_and_who_works() {
    let place = Place::new().await;
    place.job("mail", "a").await;
    place.running("hooks", "b").await;
    place.dead("hooks", "c", "rejected").await;
    let ran = place.run(&["queues", "list"]).await.expect(0);
    ran.says("queue mail has work and no live worker");
    let listed = place.run(&["queues", "list", "--json"]).await.expect(0).json();
    let queue = |name: &str| {
        listed["queues"]
            .as_array()
            .unwrap()
            .iter()
            .find(|queue| queue["queue"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(
        (queue("mail")["ready"].as_i64(), queue("mail")["workers"].as_i64()),
        (Some(1), Some(0))
    );
    let hooks = queue("hooks");
    assert_eq!(
        (hooks["running"].as_i64(), hooks["dead"].as_i64(), hooks["lease_seconds"].as_f64()),
        (Some(1), Some(1), Some(30.0))
    );
}

#[tokio::test]
async fn pause_asks_why_and_notes_who() {
    let place = Place::new().await;
    place.job("mail", "a").await;
    place.run(&["queues", "pause", "mail"]).await.expect(2).says("--why");
    place.run(&["queues", "pause", "mail", "--why", "provider down"]).await.expect(0);
    let row = place
        .client
        .query_one("select paused_by, paused_why from leasehold.queue", &[])
        .await
        .unwrap();
    assert!(row.get::<_, String>(0).starts_with("ann@"));
    assert_eq!(row.get::<_, String>(1), "provider down");
    place.run(&["queues", "list"]).await.expect(0).prints("provider down");
    place.run(&["queues", "pause", "mail", "--why", "again"]).await.expect(5);
    assert!(
        place
            .client
            .query("select from leasehold.claim('t', 'mail')", &[])
            .await
            .unwrap()
            .is_empty()
    );
    place.run(&["queues", "resume", "mail"]).await.expect(0);
    place.run(&["queues", "resume", "mail"]).await.expect(5);
    assert_eq!(
        place.client.query("select from leasehold.claim('t', 'mail')", &[]).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn set_changes_what_is_named_and_leaves_the_rest() {
    let place = Place::new().await;
    place.job("mail", "a").await;
    place
        .run(&[
            "queues",
            "set",
            "mail",
            "--lease",
            "2m",
            "--max-attempts",
            "8",
            "--backoff",
            "5s..1h",
        ])
        .await
        .expect(0);
    let ran = place
        .run(&[
            "queues",
            "set",
            "mail",
            "--claim-size",
            "10",
            "--run-limit",
            "6h",
            "--history",
            "off",
            "--json",
        ])
        .await
        .expect(0)
        .json();
    let queue = &ran["queue"];
    let number = |name: &str| queue[name].as_f64().unwrap();
    assert_eq!(
        [
            number("lease_seconds"),
            number("max_attempts"),
            number("backoff_first_seconds"),
            number("backoff_longest_seconds")
        ],
        [120.0, 8.0, 5.0, 3600.0]
    );
    assert_eq!([number("claim_size"), number("run_limit_seconds")], [10.0, 21600.0]);
    assert_eq!(queue["keep_history"], false);
    assert_eq!(
        place
            .number(
                "select count(*) from leasehold.audit where action = 'set' and actor like 'ann@%'"
            )
            .await,
        2
    );
    place.run(&["queues", "set", "mail", "--lease", "10ms"]).await.expect(2);
}

#[tokio::test]
async fn an_unknown_queue_is_not_found_and_not_made() {
    let place = Place::new().await;
    place.job("mail", "a").await;
    for args in [
        &["queues", "pause", "mial", "--why", "x"][..],
        &["queues", "resume", "mial"],
        &["queues", "set", "mial", "--claim-size", "1"],
    ] {
        place.run(args).await.expect(3).says("did you mean \"mail\"?");
    }
    assert_eq!(place.number("select count(*) from leasehold.queue").await, 0);
    place.run(&["queues", "set", "fresh", "--claim-size", "1", "--new-queue"]).await.expect(0);
    assert_eq!(
        place.number("select count(*) from leasehold.queue where max_attempts = 25").await,
        1
    );
}
