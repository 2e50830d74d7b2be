use leasehold_testing::TestDatabase;
use leasehold_testing::cancel::for_each_poll;

#[tokio::test]
async fn dropped_transaction_leaves_no_open_session() {
    let database = TestDatabase::new().await;
    let outside = database.connect_directly().await;
    outside.batch_execute("create table t (n int8)").await.unwrap();
    let last = for_each_poll(
        async |_| database.connect_directly().await,
        async |mut client| {
            let transaction = client.transaction().await?;
            transaction.execute("insert into t values (1)", &[]).await?;
            transaction.commit().await
        },
        async |n, ended| {
            // A lock on the table waits for every transaction that has not committed or rolled back.
            let sql = "set lock_timeout = '2min'; lock table t; truncate t";
            outside
                .batch_execute(sql)
                .await
                .unwrap_or_else(|error| panic!("open after {n} waits: {error}"));
            assert!(ended.is_none_or(|result| result.is_ok()));
        },
    )
    .await;
    assert!(last >= 4, "begin, prepare, insert and commit each wait, but it ended after {last}");
}

#[tokio::test]
async fn check_finds_a_session_left_in_a_transaction() {
    let database = TestDatabase::new().await;
    let (shared, outside) = (database.connect_directly().await, database.connect_directly().await);
    let pid: i32 = shared.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let is_open = async || {
        // Requests sent before the drop are answered before this one.
        shared.batch_execute("select 1").await.unwrap();
        let sql = "select state = 'idle in transaction' from pg_stat_activity where pid = $1";
        outside.query_one(sql, &[&pid]).await.unwrap().get::<_, bool>(0)
    };
    let found = std::cell::Cell::new(0);
    let last = for_each_poll(
        async |_| {},
        // What a driver must not do: BEGIN by hand on a connection that another user gets next.
        async |()| {
            shared.batch_execute("begin").await?;
            shared.batch_execute("select 1").await?;
            shared.batch_execute("commit").await
        },
        async |_, _| {
            if is_open().await {
                found.set(found.get() + 1);
            }
            shared.batch_execute("rollback").await.unwrap();
        },
    )
    .await;
    assert!(0 < found.get() && found.get() < last, "{} of {last}", found.get());
}
