use super::fixture::{Fixture, ids};

async fn many_dead(fixture: &Fixture, count: i32) {
    let sql = "insert into leasehold_internal.dead_job (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, \
               attempts, lost_count, cause, queue, name, tag, kwargs, last_error) \
               select n, now(), now(), now(), 1, 0, 3, 0, 'exhausted', 'mail', 'a', '', '{}', 'x' from generate_series(1, $1) n";
    fixture.client.execute(sql, &[&count]).await.unwrap();
}

#[tokio::test]
async fn dead_list_shows_causes() {
    let fixture = Fixture::new().await;
    let one = fixture.dead("mail", "a", "rejected").await;
    let two = fixture.dead("hooks", "b", "exhausted").await;
    fixture.job("mail", "alive").await;
    let listed = fixture.run(&["dead", "list", "--json"]).await.expect(0).json();
    assert_eq!(ids(&listed), [two.to_string(), one.to_string()]);
    let rejected =
        fixture.run(&["dead", "list", "--cause", "rejected", "--json"]).await.expect(0).json();
    assert_eq!(ids(&rejected), [one.to_string()]);
    fixture.run(&["dead", "list"]).await.expect(0).prints("it hurts");
    fixture.run(&["dead", "list", "--cause", "bored"]).await.expect(2);
}

#[tokio::test]
async fn redrive_by_id_makes_jobs_ready() {
    let fixture = Fixture::new().await;
    let dead = fixture.dead("mail", "a", "exhausted").await;
    fixture.run(&["dead", "redrive", &dead.to_string()]).await.expect(0).prints("redriven");
    assert_eq!(fixture.state(dead).await, "ready");
    fixture.run(&["dead", "redrive", &dead.to_string()]).await.expect(5).says("not dead");
    fixture.run(&["dead", "redrive", "987654"]).await.expect(3);
}

#[tokio::test]
async fn redrive_by_filter_changes_only_matching_jobs() {
    let fixture = Fixture::new().await;
    let mail = fixture.dead("mail", "a", "exhausted").await;
    let other = fixture.dead("mail", "a", "rejected").await;
    let hooks = fixture.dead("hooks", "b", "exhausted").await;
    fixture
        .run(&["dead", "redrive", "--cause", "exhausted", "--dry-run"])
        .await
        .expect(0)
        .says("would redrive 2 jobs");
    assert_eq!(fixture.count("select count(*) from leasehold_internal.dead_job").await, 3);
    fixture
        .run(&["dead", "redrive", "--queue", "mail", "--cause", "exhausted"])
        .await
        .expect(0)
        .prints("1 job: redriven");
    assert_eq!(fixture.state(mail).await, "ready");
    for id in [other, hooks] {
        assert_eq!(fixture.state(id).await, "dead");
    }
}

#[tokio::test]
async fn redrive_without_a_selection_is_refused() {
    let fixture = Fixture::new().await;
    many_dead(&fixture, 3).await;
    fixture.run(&["dead", "redrive"]).await.expect(4).says("--all");
    assert_eq!(fixture.count("select count(*) from leasehold_internal.dead_job").await, 3);
    fixture.run(&["dead", "redrive", "--all", "--queue", "mail"]).await.expect(2);
    fixture.run(&["dead", "redrive", "--all"]).await.expect(4).says("--yes");
    fixture.run(&["dead", "redrive", "--all", "--yes"]).await.expect(0);
    assert_eq!(fixture.count("select count(*) from leasehold_internal.dead_job").await, 0);
}

#[tokio::test]
async fn redrive_of_more_than_100_needs_yes_without_a_terminal() {
    let fixture = Fixture::new().await;
    many_dead(&fixture, 1201).await;
    fixture
        .run(&["dead", "redrive", "--queue", "mail"])
        .await
        .expect(4)
        .says("redrive 1201 jobs?")
        .says("--yes");
    assert_eq!(fixture.count("select count(*) from leasehold_internal.dead_job").await, 1201);
    let ran = fixture
        .run(&["dead", "redrive", "--queue", "mail", "--yes", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(ran["results"]["redriven"], 1201, "in several steps");
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1201);
}

#[tokio::test]
async fn redrive_keeps_a_job_whose_key_is_taken() {
    let fixture = Fixture::new().await;
    let sql = "select job_id from leasehold.enqueue('a', key => 'k', key_ttl => interval '0')";
    let old: i64 = fixture.client.query_one(sql, &[]).await.unwrap().get(0);
    let claimed = fixture
        .client
        .query_one("select lease_generation from leasehold.claim('tester')", &[])
        .await
        .unwrap();
    fixture
        .client
        .query("select leasehold.bury($1, $2, 'x')", &[&old, &claimed.get::<_, i64>(0)])
        .await
        .unwrap();
    fixture.client.query_one(sql, &[]).await.unwrap();
    fixture
        .run(&["dead", "redrive", &old.to_string()])
        .await
        .expect(5)
        .says("belongs to a newer job");
    fixture.run(&["dead", "redrive", "--all", "--yes"]).await.expect(0).prints("1 job: kept");
    assert_eq!(fixture.state(old).await, "dead");
}

#[tokio::test]
async fn dead_groups_join_equal_errors() {
    let fixture = Fixture::new().await;
    fixture.dead("mail", "a", "lost").await;
    fixture.dead("mail", "a", "rejected").await;
    fixture.dead("mail", "b", "lost").await;
    let groups =
        fixture.run(&["dead", "groups", "--json"]).await.expect(0).json()["groups"].clone();
    assert_eq!(
        (&groups[0]["name"], &groups[0]["jobs"], &groups[0]["fingerprint"]),
        (&"a".into(), &2.into(), &"it hurts".into())
    );
    fixture.run(&["dead", "groups", "--name", "b"]).await.expect(0).prints("it hurts");
}
