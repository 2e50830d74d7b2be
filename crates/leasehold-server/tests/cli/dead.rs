use super::support::{Place, ids};

async fn many_dead(place: &Place, count: i32) {
    let sql = "insert into leasehold.dead_job (id, enqueued_at, scheduled_at, expires_at, lease_generation, priority, \
               attempts, lost_count, cause, queue, name, tag, kwargs, last_error) \
               select n, now(), now(), now(), 1, 0, 3, 0, 'exhausted', 'mail', 'a', '', '{}', 'x' from generate_series(1, $1) n";
    place.client.execute(sql, &[&count]).await.unwrap();
}

#[tokio::test]
async fn lists_dead_jobs_with_their_cause() {
    let place = Place::new().await;
    let one = place.dead("mail", "a", "rejected").await;
    let two = place.dead("hooks", "b", "exhausted").await;
    place.job("mail", "alive").await;
    let listed = place.run(&["dead", "list", "--json"]).await.expect(0).json();
    assert_eq!(ids(&listed), [two.to_string(), one.to_string()]);
    let rejected =
        place.run(&["dead", "list", "--cause", "rejected", "--json"]).await.expect(0).json();
    assert_eq!(ids(&rejected), [one.to_string()]);
    place.run(&["dead", "list"]).await.expect(0).prints("it hurts");
    place.run(&["dead", "list", "--cause", "bored"]).await.expect(2);
}

#[tokio::test]
async fn redrive_by_id_brings_jobs_back() {
    let place = Place::new().await;
    let dead = place.dead("mail", "a", "exhausted").await;
    place.run(&["dead", "redrive", &dead.to_string()]).await.expect(0).prints("redriven");
    assert_eq!(place.state(dead).await, "ready");
    place.run(&["dead", "redrive", &dead.to_string()]).await.expect(5).says("not dead");
    place.run(&["dead", "redrive", "987654"]).await.expect(3);
}

#[tokio::test]
async fn redrive_by_filter_takes_only_what_matches_and_a_dry_run_nothing() {
    let place = Place::new().await;
    let mail = place.dead("mail", "a", "exhausted").await;
    let other = place.dead("mail", "a", "rejected").await;
    let hooks = place.dead("hooks", "b", "exhausted").await;
    place
        .run(&["dead", "redrive", "--cause", "exhausted", "--dry-run"])
        .await
        .expect(0)
        .says("would redrive 2 jobs");
    assert_eq!(place.number("select count(*) from leasehold.dead_job").await, 3);
    place
        .run(&["dead", "redrive", "--queue", "mail", "--cause", "exhausted"])
        .await
        .expect(0)
        .prints("1 job: redriven");
    assert_eq!(place.state(mail).await, "ready");
    for id in [other, hooks] {
        assert_eq!(place.state(id).await, "dead");
    }
}

#[tokio::test]
async fn everything_must_be_said() {
    let place = Place::new().await;
    many_dead(&place, 3).await;
    place.run(&["dead", "redrive"]).await.expect(4).says("--all");
    assert_eq!(place.number("select count(*) from leasehold.dead_job").await, 3);
    place.run(&["dead", "redrive", "--all", "--queue", "mail"]).await.expect(2);
    place.run(&["dead", "redrive", "--all"]).await.expect(0);
    assert_eq!(place.number("select count(*) from leasehold.dead_job").await, 0);
}

#[tokio::test]
async fn more_than_a_hundred_need_a_yes_where_nobody_can_answer() {
    let place = Place::new().await;
    many_dead(&place, 1201).await;
    place
        .run(&["dead", "redrive", "--queue", "mail"])
        .await
        .expect(4)
        .says("redrive 1201 jobs?")
        .says("--yes");
    assert_eq!(place.number("select count(*) from leasehold.dead_job").await, 1201);
    let ran = place
        .run(&["dead", "redrive", "--queue", "mail", "--yes", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(ran["results"]["redriven"], 1201, "in several steps");
    assert_eq!(place.number("select count(*) from leasehold.job").await, 1201);
}

#[tokio::test]
async fn a_job_whose_key_belongs_to_a_newer_one_stays() {
    let place = Place::new().await;
    let sql = "select job_id from leasehold.enqueue('a', key => 'k', key_for => interval '0')";
    let old: i64 = place.client.query_one(sql, &[]).await.unwrap().get(0);
    let claimed = place
        .client
        .query_one("select lease_generation from leasehold.claim('tester')", &[])
        .await
        .unwrap();
    place
        .client
        .query("select leasehold.bury($1, $2, 'x')", &[&old, &claimed.get::<_, i64>(0)])
        .await
        .unwrap();
    place.client.query_one(sql, &[]).await.unwrap();
    place
        .run(&["dead", "redrive", &old.to_string()])
        .await
        .expect(5)
        .says("belongs to a newer job");
    place.run(&["dead", "redrive", "--all"]).await.expect(0).prints("1 job: kept");
    assert_eq!(place.state(old).await, "dead");
}

#[tokio::test]
async fn groups_join_equal_errors() {
    let place = Place::new().await;
    place.dead("mail", "a", "lost").await;
    place.dead("mail", "a", "rejected").await;
    place.dead("mail", "b", "lost").await;
    let groups = place.run(&["dead", "groups", "--json"]).await.expect(0).json()["groups"].clone();
    assert_eq!(
        (&groups[0]["name"], &groups[0]["jobs"], &groups[0]["fingerprint"]),
        (&"a".into(), &2.into(), &"it hurts".into())
    );
    place.run(&["dead", "groups", "--name", "b"]).await.expect(0).prints("it hurts");
}
