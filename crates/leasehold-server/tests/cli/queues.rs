use super::fixture::Fixture;

#[tokio::test]
async fn queues_list_shows_jobs_and_workers() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    fixture.running("hooks", "b").await;
    fixture.dead("hooks", "c", "rejected").await;
    let ran = fixture.run(&["queues", "list"]).await.expect(0);
    ran.says("queue mail has ready jobs and no live worker");
    let listed = fixture.run(&["queues", "list", "--json"]).await.expect(0).json();
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
async fn pause_needs_a_reason_and_records_the_actor() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    fixture.run(&["queues", "pause", "mail"]).await.expect(2).says("--why");
    fixture.run(&["queues", "pause", "mail", "--why", "provider down"]).await.expect(0);
    let row = fixture
        .client
        .query_one("select paused_by, paused_why from leasehold_internal.queue", &[])
        .await
        .unwrap();
    assert!(row.get::<_, String>(0).starts_with("ann@"));
    assert_eq!(row.get::<_, String>(1), "provider down");
    fixture.run(&["queues", "list"]).await.expect(0).prints("provider down");
    fixture.run(&["queues", "pause", "mail", "--why", "again"]).await.expect(5);
    assert!(
        fixture
            .client
            .query("select from leasehold.claim('t', 'mail')", &[])
            .await
            .unwrap()
            .is_empty()
    );
    fixture.run(&["queues", "resume", "mail"]).await.expect(0);
    fixture.run(&["queues", "resume", "mail"]).await.expect(5);
    assert_eq!(
        fixture.client.query("select from leasehold.claim('t', 'mail')", &[]).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn set_changes_only_the_given_settings() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    fixture
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
    let ran = fixture
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
            number("backoff_base_seconds"),
            number("backoff_cap_seconds")
        ],
        [120.0, 8.0, 5.0, 3600.0]
    );
    assert_eq!([number("claim_size"), number("run_limit_seconds")], [10.0, 21600.0]);
    assert_eq!(queue["keep_history"], false);
    assert_eq!(
        fixture
            .count(
                "select count(*) from leasehold.audit where action = 'set' and actor like 'ann@%'"
            )
            .await,
        2
    );
    fixture.run(&["queues", "set", "mail", "--lease", "10ms"]).await.expect(2);
}

#[tokio::test]
async fn unknown_queue_is_not_found_and_not_created() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "a").await;
    for args in [
        &["queues", "pause", "mial", "--why", "x"][..],
        &["queues", "resume", "mial"],
        &["queues", "set", "mial", "--claim-size", "1"],
    ] {
        fixture.run(args).await.expect(3).says("did you mean \"mail\"?");
    }
    assert_eq!(fixture.count("select count(*) from leasehold_internal.queue").await, 0);
    fixture.run(&["queues", "set", "fresh", "--claim-size", "1", "--new-queue"]).await.expect(0);
    assert_eq!(
        fixture
            .count("select count(*) from leasehold_internal.queue where max_attempts = 25")
            .await,
        1
    );
}

#[tokio::test]
async fn b20_lists_show_several_databases_and_name_the_one_that_is_down() {
    let (eu, us) = (Fixture::new().await, Fixture::new().await);
    eu.job("mail", "a").await;
    us.job("mail", "a").await;
    us.job("hooks", "b").await;
    let named = |name: &str, fixture: &Fixture| format!("{name}={}", fixture.database.url());
    let (of_eu, of_us) = (named("eu", &eu), named("us", &us));
    let both = ["queues", "list", "--json", "--database", &of_eu, "--database", &of_us];
    let listed = eu.run(&both).await.expect(0).json();
    let rows = listed["queues"].as_array().unwrap().clone();
    let row = |row: &serde_json::Value| {
        (row["database"].as_str().unwrap().to_owned(), row["queue"].as_str().unwrap().to_owned())
    };
    let mut seen: Vec<_> = rows.iter().map(row).collect();
    seen.sort();
    let expected = [("eu", "mail"), ("us", "hooks"), ("us", "mail")];
    assert_eq!(seen, expected.map(|(database, queue)| (database.to_owned(), queue.to_owned())));
    let gone = "gone=postgres://me:s3cret@127.0.0.1:1/gone";
    for list in ["queues", "workers"] {
        let ran = eu.run(&[list, "list", "--database", &of_us, "--database", gone]).await.expect(6);
        ran.says("database gone: ");
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
    let ran = eu.run(&["queues", "list", "--database", &of_us, "--database", gone]).await;
    ran.expect(6).prints("DATABASE").prints("hooks");
    let same = ["queues", "list", "--database", &of_eu, "--database", &of_eu];
    eu.run(&same).await.expect(2).says("database name \"eu\" is used twice");
}
