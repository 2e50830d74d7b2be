//! The table under test: notes, each with an author whose name is part of the document.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::mirror::{CheckReport, Mirror};
use leasehold::worker::FinishedCounts;
use leasehold_testing::{ScriptedTarget, TestDatabase};
use tokio_postgres::Client;

use crate::fixture::{count, sql};
use crate::support;

pub const TABLES: &str = "
    create schema margin;
    create table margin.author (id int primary key, name text not null, hidden boolean not null default false);
    create table margin.note (
        id text primary key,
        author int not null default 1,
        body text not null default '');
    -- Where processes of their own say what they do.
    create table margin.said (what text not null);
    insert into margin.author values (1, 'ada'), (2, 'grace');
    -- Where the figures of each minute come from.
    create table if not exists leasehold_internal.tally (
        at timestamptz not null default statement_timestamp(), queue text, tag text, what text,
        n bigint, subject text);";

pub const DOCUMENT: &str = "
    select n.id, n.version, jsonb_build_object('body', n.body, 'author', a.name)
      from margin.note n join margin.author a on a.id = n.author and not a.hidden
     where n.id = any($1)";

/// Returns a mirror whose jobs and rechecks are due at once.
pub fn notes(target: &ScriptedTarget) -> Mirror {
    bare().target(Arc::new(target.clone()))
}

/// The same mirror without a store.
pub fn bare() -> Mirror {
    Mirror::new("notes", "margin.note")
        .document(DOCUMENT)
        .verify_after(Duration::ZERO)
        .recheck_after(Duration::ZERO)
        .limit(Duration::from_secs(60))
}

/// Waits for up to five minutes: thousands of rows take long on a slow machine, and a store that
/// fails is left alone for half a minute.
pub async fn in_the_end(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(300), looking).await;
    assert!(seen.is_ok(), "waited five minutes for: {what}");
}

pub struct Margin {
    // Before the database, so that its connections close first.
    pub engine: Leasehold,
    pub client: Client,
    pub target: ScriptedTarget,
    pub database: TestDatabase,
}

impl Margin {
    pub async fn new() -> Self {
        Self::with(&bare()).await
    }

    /// Like `new`, with another declaration.
    pub async fn with(mirror: &Mirror) -> Self {
        let database = TestDatabase::new().await;
        let mut client = database.connect_directly().await;
        sql(&client, TABLES).await;
        mirror.install(&mut client).await.expect("installed");
        // Long enough that a lease ends when a test expires it, and not because the machine is slow.
        sql(&client, "update leasehold_internal.queue set lease = '1 day'").await;
        let engine = support::engine(&database).await;
        Self { engine, client, target: ScriptedTarget::new(), database }
    }

    pub fn mirror(&self) -> Mirror {
        notes(&self.target)
    }

    pub async fn sql(&self, text: &str) {
        sql(&self.client, text).await;
    }

    pub async fn count(&self, text: &str) -> i64 {
        count(&self.client, text).await
    }

    /// Inserts notes with these ids, one statement each.
    pub async fn write(&self, keys: &[&str]) {
        for key in keys {
            self.sql(&format!("insert into margin.note (id, body) values ('{key}', 'first')"))
                .await;
        }
    }

    /// Inserts `notes` notes by one statement, numbered from `first`: `n00001` and so on.
    pub async fn write_many(&self, first: i64, notes: i64) {
        let last = first + notes - 1;
        self.sql(&format!(
            "insert into margin.note (id, body)
             select 'n' || lpad(n::text, 5, '0'), 'first' from generate_series({first}, {last}) n"
        ))
        .await;
    }

    /// Makes all waiting jobs due, however long they were snoozed or deferred.
    pub async fn due(&self) {
        self.sql("update leasehold.job set scheduled_at = now() where not held").await;
    }

    /// Makes snoozed and deferred jobs wait until the test makes them due: a pass that takes longer
    /// than their wait would claim them once more.
    pub async fn keep_deferred(&self) {
        self.sql(
            "create function margin.much_later() returns trigger language plpgsql as $$
             begin
                 new.scheduled_at := new.scheduled_at + interval '1 hour';
                 return new;
             end $$;
             create trigger much_later before update on leasehold.job for each row
             when (old.held and not new.held and new.scheduled_at > statement_timestamp())
             execute function margin.much_later()",
        )
        .await;
    }

    pub async fn jobs(&self) -> i64 {
        self.count("select count(*) from leasehold.job").await
    }

    pub async fn pass(&self) -> FinishedCounts {
        self.mirror().pass_once(&self.engine).await.expect("a pass")
    }

    pub async fn check(&self) -> CheckReport {
        self.mirror().check_once(&self.engine).await.expect("a check")
    }

    /// Asserts that the store holds every note as the table does, and nothing else.
    pub async fn assert_equal(&self) {
        self.assert_equals(&self.target).await;
    }

    pub async fn assert_equals(&self, target: &ScriptedTarget) {
        let rows =
            self.client.query("select array_agg(id) from margin.note", &[]).await.expect("ids");
        let ids: Vec<String> = rows[0].get::<_, Option<Vec<String>>>(0).unwrap_or_default();
        let documents = format!(
            "select key, version, document from ({DOCUMENT}) as d (key, version, document)
                                 order by key collate \"C\""
        );
        let rows = self.client.query(&documents, &[&ids]).await.expect("documents");
        let wanted: Vec<(String, i64, serde_json::Value)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        assert_eq!(target.documents(), wanted, "the store equals the table");
    }
}
