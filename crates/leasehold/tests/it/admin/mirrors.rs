use leasehold::AdminError;
use leasehold::admin::{MirrorOrder, Reindex};

use super::Office;

const MIRROR: &str = "
    insert into leasehold_internal.mirror (name, table_name, key_column, key_kind, version_column, queue, job_name,
        job_field, verify_after, tombstones, check_every, range_rows)
    values ('notes.index', 'public.note', 'id', 'text', 'version', 'notes', 'mirror.notes.index', 'id', '1 s',
        '1 day', '1 minute', 100);
    insert into leasehold_internal.mirror_difference (mirror, key, kind, source_version, first_seen)
    values ('notes.index', 'b', 'missing', 3, now()),
           ('notes.index', 'a', 'stale', 2, now() - interval '1 hour')";

#[tokio::test]
async fn mirror_is_listed_with_its_differences() {
    let office = Office::new().await;
    let mirrors = office.engine.mirrors();
    assert!(
        mirrors.list().await.unwrap().is_empty() && mirrors.summaries().await.unwrap().is_empty()
    );
    office.sql.run(MIRROR).await;
    let listed = mirrors.list().await.unwrap();
    assert_eq!(
        (listed.len(), listed[0].table_name.as_str(), listed[0].differences),
        (1, "public.note", 2)
    );
    assert!(mirrors.get("absent").await.unwrap().is_none());
    let summary = &mirrors.summaries().await.unwrap()[0];
    assert_eq!((summary.name.as_str(), summary.differences), ("notes.index", 2));
    assert!(summary.oldest_difference_age_seconds.is_some_and(|age| age >= 3600.0));
    let rows = mirrors.differences("notes.index", 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((rows[1].kind.as_str(), rows[1].source_version), ("missing", Some(3)));
    assert_eq!(mirrors.differences("notes.index", 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn rows_are_reindexed_and_orders_enqueued_once_for_a_live_worker() {
    let office = Office::new().await;
    let (mirrors, by) = (office.engine.mirrors(), &office.by);
    assert_eq!(mirrors.order("notes.index", MirrorOrder::Check, by).await.unwrap(), None);
    let keys = ["a".to_owned(), "b".to_owned()];
    let error = mirrors.reindex("notes.index", &keys, &Reindex::new()).await.expect_err("refused");
    assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    office.sql.run(MIRROR).await;
    let how = Reindex::new().tag("by hand").priority(7).force(true);
    assert_eq!(mirrors.reindex("notes.index", &keys, &how).await.unwrap(), 2);
    let made = "select count(*) from leasehold.job \
                where tag = 'by hand' and priority = 7 and kwargs -> 'force' = 'true'";
    assert_eq!(office.sql.one::<i64>(made, &[]).await, 2);
    for order in
        [MirrorOrder::Check, MirrorOrder::Rebuild, MirrorOrder::Rollback, MirrorOrder::Drop]
    {
        let job = mirrors.order("notes.index", order, by).await.unwrap().expect("a job");
        assert_eq!(mirrors.order("notes.index", order, by).await.unwrap(), Some(job), "{order}");
        let job = office.engine.jobs().get(job).await.unwrap().expect("the job");
        assert_eq!(job.kwargs.expect("kwargs")["do"], order.as_str());
    }
    assert!(!mirrors.is_worked("notes.index").await.unwrap());
    let worker = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['notes'], \
                  array['mirror.notes.index'], 1, 0, false); \
                  update leasehold_internal.worker set last_seen_at = now() + interval '1 hour'";
    office.sql.run(worker).await;
    assert!(mirrors.is_worked("notes.index").await.unwrap());
}

#[tokio::test]
async fn mirror_is_forgotten_with_what_is_known_of_its_rows() {
    let office = Office::new().await;
    office.sql.run(MIRROR).await;
    office
        .sql
        .run("insert into leasehold_internal.mirror_gone (mirror, key, version) values ('notes.index', 'c', 4), ('other', 'c', 4)")
        .await;
    let (mirrors, by) = (office.engine.mirrors(), &office.by);
    assert!(!mirrors.forget("absent", by).await.unwrap());
    assert!(mirrors.forget("notes.index", by).await.unwrap());
    assert!(!mirrors.forget("notes.index", by).await.unwrap());
    assert_eq!(office.last_audit().await, "ann forget mirror notes.index a test");
    let left = "select (select count(*) from leasehold_internal.mirror) * 100 \
                + (select count(*) from leasehold_internal.mirror_difference) * 10 \
                + (select count(*) from leasehold_internal.mirror_gone)";
    assert_eq!(office.sql.one::<i64>(left, &[]).await, 1, "the deletion of the other mirror stays");
}

#[tokio::test]
async fn mirror_whose_store_was_replaced_does_not_count_as_equal() {
    let office = Office::new().await;
    office.sql.run(MIRROR).await;
    office.sql.run("update leasehold_internal.mirror set equal_as_of = now()").await;
    let (mirrors, by) = (office.engine.mirrors(), &office.by);
    assert!(!mirrors.reset_equality("absent", by).await.unwrap());
    assert!(mirrors.reset_equality("notes.index", by).await.unwrap());
    let unknown = "select count(*) from leasehold.mirrors where equal_as_of is null";
    assert_eq!(office.sql.one::<i64>(unknown, &[]).await, 1);
    assert_eq!(office.last_audit().await, "ann reset mirror notes.index a test");
}

#[tokio::test]
async fn mirror_calls_within_a_transaction_take_effect_with_its_commit() {
    let office = Office::new().await;
    office.sql.run(MIRROR).await;
    let mut client = office.sql.database.connect().await;
    for commits in [false, true] {
        let tx = client.transaction().await.unwrap();
        let mirrors = office.engine.mirrors().within(&tx);
        let job = mirrors.order("notes.index", MirrorOrder::Check, &office.by).await.unwrap();
        let job = job.expect("a job");
        assert_eq!(office.state(job).await, None, "not seen outside");
        super::end(tx, commits).await;
        assert_eq!(office.state(job).await.is_some(), commits);
    }
}
