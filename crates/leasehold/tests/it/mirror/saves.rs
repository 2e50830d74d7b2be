//! Saves beside a mirror's own bookkeeping, and columns that do not belong to the mirror.

use leasehold::mirror::{Mirror, MirrorError};

use super::fixture::{DOCUMENT, Margin, bare};

#[tokio::test]
async fn f16_save_above_read_committed_does_not_conflict_with_a_pass() {
    for level in ["repeatable read", "serializable"] {
        let margin = Margin::new().await;
        margin.write(&["a", "b"]).await;
        let saver = margin.database.connect_directly().await;
        let run = async |text: &str| saver.batch_execute(text).await.expect(text);
        // The snapshot comes first; then a worker claims and records a deletion.
        run(&format!("begin isolation level {level}; select count(*) from margin.note")).await;
        margin.sql("select leasehold.claim('w', 'notes')").await;
        margin.sql("select leasehold_internal.mirror_entomb('notes', 'c', 5)").await;
        run("update margin.note set body = 'x' where id = 'a'").await;
        run("delete from margin.note where id = 'b'").await;
        run("insert into margin.note (id) values ('c'), ('d')").await;
        run("delete from margin.note where id in ('c', 'd')").await;
        run("commit").await;
        margin
            .sql("update leasehold_internal.lease set lease_expires_at = now() - interval '1 day'")
            .await;
        margin.sql("select leasehold_internal.reclaim_leases()").await;
        margin.due().await;
        let gone = "select count(*) from leasehold_internal.mirror_gone where key in ('b', 'd')";
        assert_eq!(margin.count(gone).await, 2, "{level}: their deletions are remembered");
        let marks = "select count(*) from leasehold.job where kwargs ? 'changed' and idempotency_key is null";
        assert!(margin.count(marks).await >= 4, "{level}: plain jobs");
        margin.pass().await;
        margin.assert_equal().await;
    }
}

#[tokio::test]
async fn f17_row_whose_key_looks_like_an_order_gets_its_own_job() {
    let margin = Margin::new().await;
    margin.sql("select leasehold_internal.order_mirror('notes', 'check', 'ann')").await;
    margin.write(&["order:check"]).await;
    let jobs = "select count(*) from leasehold.job where kwargs ->> 'key' = 'order:check'";
    assert_eq!(margin.count(jobs).await, 1);
    // A key that looks like the hash of a long one is not taken for it.
    let long = "x".repeat(300);
    margin.write(&[&long]).await;
    let hash = "select 'sha256:' || encode(sha256(convert_to(repeat('x', 300), 'UTF8')), 'hex')";
    let hash: String = margin.client.query_one(hash, &[]).await.expect("a hash").get(0);
    margin.write(&[&hash]).await;
    let jobs = "select count(distinct idempotency_key) from leasehold.job where kwargs ? 'key'";
    assert_eq!(margin.count(jobs).await, 3, "each row has a mark of its own");
}

#[tokio::test]
async fn f18_existing_version_column_is_used_only_if_named() {
    let margin = Margin::new().await;
    margin
        .sql(
            "create table margin.page (id text primary key, version bigint not null default 1);
             insert into margin.page values ('a', 3)",
        )
        .await;
    let pages = || {
        Mirror::new("pages", "margin.page")
            .document("select id, version, '{}'::jsonb from margin.page where id = any($1)")
    };
    let mut client = margin.database.connect_directly().await;
    let error = pages().install(&mut client).await.expect_err("refused");
    let text = error.to_string();
    assert!(
        matches!(error, MirrorError::Table(_)) && text.contains(".version(\"version\")"),
        "{text}"
    );
    let script = pages().install_sql("text").expect("text");
    margin.client.batch_execute(&format!("begin; {script}; commit")).await.expect_err("refused");
    margin.sql("rollback; update margin.page set version = version + 1").await;
    assert_eq!(margin.count("select version from margin.page").await, 4, "it counts on");
    // If it is named, the mirror takes it over. Another mirror of the table then shares it without
    // naming it.
    pages().version("version").install(&mut client).await.expect("installed");
    margin.sql("update margin.page set version = version + 1").await;
    assert!(margin.count("select version from margin.page").await > 1_000_000);
    pages().install(&mut client).await.expect("again");
    let second = Mirror::new("notes.second", "margin.note").document(DOCUMENT);
    second.install(&mut client).await.expect("a second mirror");
    bare().install(&mut client).await.expect("the first again");
}
