//! A primary and a streaming standby, and a failover under load.

use std::time::Instant;

use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::task::block_in_place;
use tokio_postgres::{Client, NoTls};

use super::load::Load;
use crate::fixture::{completed, count, sql, until};

/// Two servers, of which the second follows the first, and a database on both.
struct Pair {
    first: PrivatePostgres,
    second: PrivatePostgres,
    database: TestDatabase,
}

impl Pair {
    async fn start() -> Self {
        let first = block_in_place(|| PrivatePostgres::throwaway().start()).expect("a primary");
        let database = TestDatabase::on(&first).await.expect("a database");
        let second = block_in_place(|| PrivatePostgres::standby_of(&first).start());
        let pair = Self { first, second: second.expect("a standby"), database };
        pair.caught_up(&pair.first, &pair.second).await;
        pair
    }

    /// Returns one URL that names both hosts.
    fn url(&self) -> String {
        format!(
            "postgresql:///{}?host={},{}&port={},{}&user=postgres",
            self.database.name(),
            self.first.socket_dir().display(),
            self.second.socket_dir().display(),
            self.first.port(),
            self.second.port(),
        )
    }

    async fn connect(&self, server: &PrivatePostgres) -> Client {
        let config = server.config(self.database.name());
        let (client, connection) = config.connect(NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }

    /// Makes commits on this server wait for its standby from now on.
    async fn synchronous(&self, server: &PrivatePostgres) {
        let client = self.connect(server).await;
        sql(&client, "alter system set synchronous_standby_names = '*'").await;
        sql(&client, "select pg_reload_conf()").await;
        until("the standby is synchronous", async || {
            let sql = "select count(*) from pg_stat_replication where sync_state = 'sync'";
            count(&client, sql).await == 1
        })
        .await;
    }

    /// Lets commits on this server wait for no standby: the other server is gone.
    async fn alone(&self, server: &PrivatePostgres) {
        let client = self.connect(server).await;
        sql(&client, "alter system reset synchronous_standby_names").await;
        sql(&client, "select pg_reload_conf()").await;
    }

    /// Waits until the standby shows everything that the primary has committed so far.
    async fn caught_up(&self, primary: &PrivatePostgres, standby: &PrivatePostgres) {
        let client = self.connect(primary).await;
        let row = client.query_one("select pg_current_wal_lsn()::text", &[]).await.unwrap();
        let reached: String = row.get(0);
        let follower = self.connect(standby).await;
        until("the standby caught up", async || {
            let sql = format!("select (pg_last_wal_replay_lsn() >= '{reached}')::int");
            count(&follower, &sql).await == 1
        })
        .await;
    }

    /// Promotes a server, and prints how long the worker took to finish jobs there.
    async fn promote(&self, server: &PrivatePostgres, load: &mut Load) {
        block_in_place(|| server.promote()).expect("promoted");
        self.alone(server).await;
        let promoted = Instant::now();
        load.progress().await;
        println!(
            "30 jobs stored and finished {:.1} s after the promotion",
            promoted.elapsed().as_secs_f64()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_b13_failover_to_a_synchronous_standby_loses_and_repeats_nothing() {
    let mut pair = Pair::start().await;
    pair.synchronous(&pair.first).await;
    let client = pair.connect(&pair.first).await;
    let mut load = Load::start(&client, &pair.url()).await;
    load.progress().await;
    block_in_place(|| pair.first.crash()).expect("the old primary is fenced off");
    pair.promote(&pair.second, &mut load).await;
    let client = pair.connect(&pair.second).await;
    load.settle(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_b14_failover_to_an_asynchronous_standby_loses_only_the_tail_and_generations_grow() {
    let mut pair = Pair::start().await;
    let client = pair.connect(&pair.first).await;
    let mut load = Load::start(&client, &pair.url()).await;
    load.progress().await;
    // The standby gets every note stored so far, and none that follows.
    let safe = load.stored();
    pair.caught_up(&pair.first, &pair.second).await;
    let standby = pair.connect(&pair.second).await;
    sql(&standby, "alter system set primary_conninfo = ''").await;
    sql(&standby, "select pg_reload_conf()").await;
    until("the standby follows no more", async || {
        count(&standby, "select count(*) from pg_stat_wal_receiver").await == 0
    })
    .await;
    load.progress().await;
    let (lost, before) = (load.stored(), load.outside.greatest());
    block_in_place(|| pair.first.crash()).expect("the old primary is fenced off");
    pair.promote(&pair.second, &mut load).await;
    let client = pair.connect(&pair.second).await;
    let least = "select min(generation) from ledger where generation > 0 and n >= ";
    let after = load.stored();
    until("a note of after the failover", async || {
        count(&client, &format!("select count(*) from ledger where n > {after}")).await > 0
    })
    .await;
    let first_after = count(&client, &format!("{least} {after}")).await;
    assert!(first_after > before, "a token went down: {before}, then {first_after}");
    let stored = load.stop(&client).await;
    println!(
        "{stored} stored, {safe} before the standby stopped following, {lost} before the crash"
    );
    let kept =
        count(&client, &format!("select count(distinct n) from ledger where n < {safe}")).await;
    assert_eq!(kept, safe, "only the tail is lost");
    let entries = count(&client, "select count(*) from ledger").await;
    assert_eq!(count(&client, "select count(distinct n) from ledger").await, entries);
    assert_eq!(completed(&client).await, entries);
    assert!(entries < stored, "the failover did lose something");
    assert_eq!(count(&client, "select count(*) from leasehold_internal.dead_job").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_worker_leaves_a_former_primary_that_returned_as_a_standby() {
    let mut pair = Pair::start().await;
    pair.synchronous(&pair.first).await;
    let client = pair.connect(&pair.first).await;
    let mut load = Load::start(&client, &pair.url()).await;
    load.progress().await;
    block_in_place(|| pair.first.crash()).expect("crashed");
    pair.promote(&pair.second, &mut load).await;
    block_in_place(|| pair.first.come_back_as_standby_of(&pair.second)).expect("a standby");
    pair.caught_up(&pair.second, &pair.first).await;
    // Terminate every session: on reconnect the first host responds but accepts no writes.
    let client = pair.connect(&pair.second).await;
    let all = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where application_name = 'leasehold'";
    count(&client, all).await;
    load.progress().await;
    let engine = leasehold::Leasehold::connect(&pair.url()).await.expect("the second host");
    drop(engine);
    // Fail over to the first server again.
    pair.synchronous(&pair.second).await;
    block_in_place(|| pair.second.crash()).expect("crashed");
    pair.promote(&pair.first, &mut load).await;
    let client = pair.connect(&pair.first).await;
    load.settle(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_commits_that_a_cancel_frees_from_their_standby_are_lost_whole_or_kept_whole() {
    let mut pair = Pair::start().await;
    pair.synchronous(&pair.first).await;
    let client = pair.connect(&pair.first).await;
    let mut load = Load::start(&client, &pair.url()).await;
    load.progress().await;
    let safe = load.stored();
    pair.caught_up(&pair.first, &pair.second).await;
    // Commits wait for a standby that does not respond, and an operator cancels the waits: the
    // server reports success for commits that only it has.
    let standby = pair.connect(&pair.second).await;
    sql(&standby, "alter system set primary_conninfo = ''").await;
    sql(&standby, "select pg_reload_conf()").await;
    let cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity \
                  where wait_event = 'SyncRep'";
    let (stored, mut cancelled) = (load.stored(), 0);
    until("commits were freed from their standby", async || {
        cancelled += count(&client, cancel).await;
        cancelled > 20 && load.stored() > stored + 5
    })
    .await;
    block_in_place(|| pair.first.crash()).expect("the old primary is fenced off");
    pair.promote(&pair.second, &mut load).await;
    let client = pair.connect(&pair.second).await;
    let stored = load.stop(&client).await;
    let entries = count(&client, "select count(*) from ledger").await;
    println!("{stored} stored, {entries} kept, {cancelled} commits freed");
    assert_eq!(count(&client, "select count(distinct n) from ledger").await, entries);
    assert_eq!(completed(&client).await, entries);
    let kept =
        count(&client, &format!("select count(distinct n) from ledger where n < {safe}")).await;
    assert_eq!(kept, safe, "what was acknowledged by both servers is there");
}
