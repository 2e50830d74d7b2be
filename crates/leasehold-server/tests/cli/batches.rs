use super::fixture::Fixture;

/// Opens a batch of two jobs of queue `mail` and returns its id.
async fn batch(fixture: &Fixture) -> String {
    let open = "select leasehold.open_batch('letters', on_end => '{\"name\": \"letters.sent\", \"queue\": \"ended\"}')";
    let id = fixture.count(open).await;
    for _ in 0..2 {
        fixture
            .sql(&format!("select leasehold.enqueue('letter', queue => 'mail', batch => {id})"))
            .await;
    }
    id.to_string()
}

#[tokio::test]
async fn batch_is_listed_and_shown_with_its_progress() {
    let fixture = Fixture::new().await;
    fixture.run(&["batches", "list"]).await.expect(0).says("no batches");
    let id = batch(&fixture).await;
    fixture.sql(&format!("select leasehold.seal_batch({id})")).await;
    fixture
        .sql(
            "select leasehold.complete(c.id, c.lease_generation, '{\"pages\": 2}') \
               from leasehold.claim('t', 'mail', claim_size => 1) c",
        )
        .await;
    fixture.run(&["batches", "list"]).await.expect(0).prints("1/2 (50 %)");
    let listed = fixture.run(&["batches", "list", "--json"]).await.expect(0).json();
    let entry = &listed["batches"][0];
    assert_eq!(
        (&entry["id"], &entry["state"], &entry["total"], &entry["completed"], &listed["next"]),
        (&id.as_str().into(), &"sealed".into(), &2.into(), &1.into(), &serde_json::Value::Null)
    );
    fixture.run(&["batches", "show", &id]).await.expect(0).prints("{\"pages\":2}");
    let shown = fixture.run(&["batches", "show", &id, "--json"]).await.expect(0).json();
    assert_eq!(
        (&shown["batch"]["on_end"], &shown["results"][0]["result"]["pages"]),
        (&"letters.sent".into(), &2.into())
    );
    assert!(shown["results"][0]["job_id"].is_string(), "{shown}");
    let kept = shown["results"][0]["job_id"].as_str().unwrap();
    fixture.run(&["jobs", "show", kept]).await.expect(0).prints("result  {\"pages\":2}");
    let job = fixture.run(&["jobs", "show", kept, "--json"]).await.expect(0).json();
    assert_eq!(job["job"]["result"]["pages"], 2, "{job}");
    fixture.run(&["batches", "show", "999"]).await.expect(3).says("no batch 999");
    fixture.run(&["batches", "list", "--state", "done"]).await.expect(2).says("sealed");
    let page = fixture.run(&["batches", "list", "--limit", "1", "--json"]).await.expect(0).json();
    assert_eq!(page["next"], id.as_str());
    let member = format!("batch:{id} state:waiting");
    let jobs = fixture.run(&["jobs", "list", "--filter", &member, "--json"]).await.expect(0).json();
    assert_eq!(jobs["jobs"][0]["batch_id"], id.as_str());
}

#[tokio::test]
async fn cancelled_batch_enqueues_the_follow_up_for_any_end() {
    let fixture = Fixture::new().await;
    let id = batch(&fixture).await;
    let cancel = ["batches", "cancel", &id, "--why", "wrong file"];
    fixture.run(&cancel).await.expect(0).prints("2 waiting jobs cancelled");
    fixture.run(&["batches", "show", &id]).await.expect(0).prints("wrong file");
    let waiting = "select count(*) from leasehold.jobs where queue = 'ended'";
    assert_eq!(fixture.count(waiting).await, 1);
    fixture.run(&cancel).await.expect(5).says("closed");
    fixture.run(&["batches", "cancel", "999"]).await.expect(3);
    let audited =
        "select count(*) from leasehold.audit where subject like 'batch%' and actor like 'ann@%'";
    assert_eq!(fixture.count(audited).await, 1);
}
