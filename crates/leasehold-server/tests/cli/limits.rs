use super::fixture::Fixture;

#[tokio::test]
async fn limit_commands_change_and_audit_a_limit() {
    let fixture = Fixture::new().await;
    let enqueue = ["enqueue", "note", "--queue", "sync", "--new-queue", "--limit-key", "tenant:7"];
    let id = fixture.run(&[&enqueue[..], &["--json"]].concat()).await.expect(0).json()["job"]["id"]
        .clone();
    let show = ["jobs", "show", id.as_str().unwrap()];
    fixture.run(&show).await.expect(0).prints("it waits for the turn of key tenant:7, 0 running");

    let set = ["limits", "set", "tenant", "--queue", "sync", "--max-running"];
    fixture.run(&[&set[..], &["0"]].concat()).await.expect(2).says("max_running is 0");
    fixture.run(&[&set[..], &["3"]].concat()).await.expect(0).prints("max running 3");
    let elsewhere = ["limits", "set", "tenant", "--queue", "snyc", "--max-running", "3"];
    fixture.run(&elsewhere).await.expect(3);
    let listed = fixture.run(&["limits", "list", "--json"]).await.expect(0).json();
    let entry = &listed["limits"][0];
    assert_eq!(
        (&entry["key"], &entry["max_running"], &entry["source"]),
        (&"tenant".into(), &3.into(), &"operator".into())
    );
    fixture
        .run(&["limits", "show", "tenant", "--queue", "sync"])
        .await
        .expect(0)
        .prints("operator ann@");
    fixture.run(&["limits", "show", "other", "--queue", "sync"]).await.expect(3);

    let ordered = ["limits", "set", "line", "--queue", "sync", "--ordered", "--on-death", "stop"];
    fixture.run(&ordered).await.expect(0).prints("ordered, on failure block, on death stop");
    let rated = ["limits", "set", "api", "--queue", "sync", "--rate", "100/1m", "--burst", "20"];
    fixture.run(&rated).await.expect(0).prints("rate 100/1m, burst 20");
    fixture.run(&["limits", "set", "api", "--queue", "sync", "--rate", "100"]).await.expect(2);
    let queue = ["limits", "set", "--queue", "sync", "--max-running", "40", "--max-waiting", "1"];
    fixture
        .run(&queue)
        .await
        .expect(0)
        .prints("limit of queue sync: max running 40, max waiting 1");
    fixture.run(&["enqueue", "note", "--queue", "sync"]).await.expect(5).says("1 waiting jobs");
    let name = ["limits", "set", "--name", "note", "--queue", "sync", "--debounce", "5s..1m"];
    fixture.run(&name).await.expect(0).prints("limit note of queue sync: debounce 5s..1m");
    fixture.run(&["limits", "remove", "--queue", "sync"]).await.expect(0);
    for key in ["line", "api", "note"] {
        fixture.run(&["limits", "remove", key, "--queue", "sync"]).await.expect(0);
    }

    let pause = ["limits", "pause", "tenant:7", "--queue", "sync", "--why", "wrong data"];
    fixture.run(&pause).await.expect(0);
    fixture.run(&pause).await.expect(5).says("paused already");
    fixture.run(&show).await.expect(0).prints("wrong data");
    let keys = ["limits", "keys", "--queue", "sync", "--blocked"];
    fixture.run(&keys).await.expect(0).prints("0 of 3");
    let resume = ["limits", "resume", "tenant:7", "--queue", "sync"];
    fixture.run(&resume).await.expect(0);
    fixture.run(&resume).await.expect(5);
    fixture.run(&keys).await.expect(0).says("no limit keys");

    let remove = ["limits", "remove", "tenant", "--queue", "sync"];
    fixture.run(&[&remove[..], &["--declared"]].concat()).await.expect(3);
    fixture.run(&remove).await.expect(0);
    fixture.run(&remove).await.expect(3).says("an operator set");
    fixture.run(&["limits", "list"]).await.expect(0).says("no limits");
    let audited = "select count(*) from leasehold.audit where subject like 'limit%'";
    assert_eq!(fixture.count(audited).await, 12);
}
