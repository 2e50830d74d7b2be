//! A separate service per test: a migrated database, an index that can be made to fail, and a worker on
//! demand.

use std::sync::Arc;
use std::time::Duration;

use annotations::http::ServerLimits;
use annotations::{
    Annotation, Annotations, Filter, Index, IndexState, NewAnnotation, Settings, User,
};
use leasehold::Leasehold;
use leasehold::mirror::Digest;
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::faulty_index::FaultyIndex;
use crate::index_kind::IndexKind;

pub const PAGE: &str = "https://example.com/quixote";

/// How long one statement may take: a slow machine is no outage.
const STATEMENT: Duration = Duration::from_secs(120);
/// How long to wait for a condition.
pub const TIMEOUT: Duration = Duration::from_secs(180);

pub struct Fixture {
    pub notes: Annotations,
    pub engine: Leasehold,
    pub client: Client,
    /// The index; `None`: the service has none.
    pub store: Option<Arc<FaultyIndex>>,
    /// Dropped with the fixture.
    _database: TestDatabase,
}

/// Runs a test on an empty service with each kind of index.
pub async fn each(story: impl AsyncFn(Fixture)) {
    each_with(settings(), story).await;
}

pub async fn each_with(settings: Settings, story: impl AsyncFn(Fixture)) {
    for kind in IndexKind::BOTH {
        // Shown only when the test fails.
        println!("on {kind:?}");
        story(Fixture::over(settings.clone(), Some(kind)).await).await;
    }
}

/// Writes to the index only when a test asks for it, and has no rate limits.
pub fn settings() -> Settings {
    let mut settings = Settings { direct: false, ..Settings::default() };
    settings.limits.saves_per_second = 0;
    settings.limits.reads_per_second = 0;
    settings.sign_up = true;
    // A slow machine is no outage.
    settings.index_limit = Duration::from_secs(10);
    settings.index_timeout = settings.index_limit;
    // The check of everything runs only when a test orders it: see `Fixture::over`.
    settings.check_every = Duration::from_secs(24 * 60 * 60);
    settings
}

/// For a server with slow but harmless clients: it does not disconnect idle ones.
pub fn patient() -> ServerLimits {
    let long = Duration::from_secs(600);
    ServerLimits { head: long, body: long, request: long, stall: long, ..ServerLimits::default() }
}

impl Fixture {
    /// With an index that can be made to fail.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    /// Without an index.
    pub async fn alone() -> Self {
        Self::over(settings(), None).await
    }

    pub async fn with(settings: Settings) -> Self {
        Self::over(settings, Some(IndexKind::Tantivy)).await
    }

    pub async fn over(settings: Settings, kind: Option<IndexKind>) -> Self {
        let database = TestDatabase::new().await;
        let mut client = database.connect_directly().await;
        annotations::migrate(&mut client).await.unwrap();
        let no_check = "update leasehold_internal.mirror \
                        set check_due_at = statement_timestamp() + interval '1 day'";
        client.execute(no_check, &[]).await.unwrap();
        let engine = Leasehold::connect(&database.url()).await.unwrap();
        let store = match kind {
            Some(kind) => Some(Arc::new(FaultyIndex::open(kind).await)),
            None => None,
        };
        let index = store.as_ref().map(|store| Index::new(Arc::clone(store)));
        let notes = Annotations::start_within(engine.clone(), index, settings, STATEMENT);
        let notes = notes.await.unwrap();
        Self { notes, engine, client, store, _database: database }
    }

    pub async fn user(&self, name: &str) -> User {
        self.notes.sign_up(name, "").await.unwrap().0
    }

    /// Invites a user into a group, and lets the user join it.
    pub async fn let_in(&self, owner: &User, group: &str, person: &User) {
        self.notes.invite(owner.id, group, &person.name).await.unwrap();
        self.notes.join_group(person.id, group).await.unwrap();
    }

    /// Saves a note about a passage.
    pub async fn note(&self, author: &User, text: &str) -> Annotation {
        self.note_in(author, None, text).await
    }

    pub async fn note_in(&self, author: &User, group: Option<&str>, text: &str) -> Annotation {
        let new = NewAnnotation { group: group.map(str::to_owned), ..passage(text) };
        self.notes.create(author, new).await.unwrap().annotation
    }

    pub async fn reply(&self, author: &User, to: &Annotation, text: &str) -> Annotation {
        let new = NewAnnotation {
            reply_to: Some(to.id.clone()),
            text: text.to_owned(),
            ..NewAnnotation::default()
        };
        self.notes.create(author, new).await.unwrap().annotation
    }

    /// Returns the texts that a user finds, newest first.
    pub async fn texts(&self, viewer: Option<&User>, filter: &Filter) -> Vec<String> {
        let viewer = viewer.map(|user| user.id);
        let found = self.notes.search(viewer, filter, None, 200).await.unwrap();
        found.rows.into_iter().map(|row| row.text).collect()
    }

    /// Returns the texts that a user finds by the index, and how many queries that took. Repeats a
    /// search in which the index was late, because Postgres alone served it.
    pub async fn by_index(&self, viewer: Option<&User>, filter: &Filter) -> (Vec<String>, usize) {
        let viewer = viewer.map(|user| user.id);
        let (mut texts, mut questions) = (Vec::new(), 0);
        until(async || {
            let before = self.index().asked();
            let found = self.notes.search(viewer, filter, None, 200).await.unwrap();
            questions = self.index().asked() - before;
            texts = found.rows.into_iter().map(|row| row.text).collect();
            found.index != IndexState::Down
        })
        .await;
        (texts, questions)
    }

    /// Returns a number from the database.
    pub async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Returns whether a session waits for a lock that the fixture's own session holds.
    pub async fn is_waited_for(&self) -> bool {
        let sql = "select count(*) from pg_locks l where not l.granted \
                   and pg_backend_pid() = any (pg_blocking_pids(l.pid))";
        self.count(sql).await > 0
    }

    /// Makes every job due now.
    pub async fn bring_forward(&self) {
        // Skips jobs that a worker holds.
        let sql = "with waiting as (\
                       select id from leasehold.job \
                       where not held and scheduled_at > statement_timestamp() \
                       for update skip locked) \
                   update leasehold.job j set scheduled_at = statement_timestamp() \
                   from waiting w where j.id = w.id";
        self.client.execute(sql, &[]).await.unwrap();
    }

    /// Runs the service's jobs until nothing is due.
    pub async fn work(&self) {
        let worker = annotations::worker(&self.notes, self.engine.worker()).unwrap();
        worker.run_until_idle().await.unwrap();
    }

    /// Like `work`, also with jobs that are due later, until none is left. Jobs for an index that a test
    /// makes fail stay.
    pub async fn work_all(&self) {
        // Bulk operations make jobs that are due later.
        for _ in 0..3 {
            self.bring_forward().await;
            self.work().await;
        }
        // The mirror leaves an index alone for a while that was slow or down, so jobs may be left.
        let left = match &self.store {
            Some(store) if store.is_well() => "select count(*) from leasehold.job",
            _ => "select count(*) from leasehold.job where queue = 'annotations.bulk'",
        };
        let working = async {
            while self.count(left).await > 0 {
                self.bring_forward().await;
                self.work().await;
            }
        };
        tokio::time::timeout(TIMEOUT, working).await.expect("nothing is left in time");
        // Makes writes searchable now; otherwise that takes a moment.
        if let Some(store) = &self.store {
            let _ = store.digest().await;
        }
    }

    /// Returns the index. Panics if the service has none.
    pub fn index(&self) -> &FaultyIndex {
        self.store.as_ref().expect("an index")
    }

    /// Fails unless the index equals the table, down to the last version.
    pub async fn assert_equal(&self) {
        let held = self.index().digest().await.unwrap();
        let rows = self.client.query("select id, version from annotations.annotation", &[]);
        let mut wanted = Digest::default();
        for row in rows.await.unwrap() {
            wanted.add(row.get(0), row.get(1));
        }
        assert_eq!(held, wanted, "the index differs from the table");
    }
}

/// A note about a passage of the page.
pub fn passage(text: &str) -> NewAnnotation {
    NewAnnotation {
        url: PAGE.to_owned(),
        title: "Don Quixote".to_owned(),
        quote: "Don Quixote added it up".to_owned(),
        selectors: vec![serde_json::json!({
            "type": "TextQuoteSelector", "exact": "Don Quixote added it up", "prefix": "", "suffix": ""
        })],
        text: text.to_owned(),
        ..NewAnnotation::default()
    }
}

/// Everything on the page.
pub fn on_page() -> Filter {
    Filter { url: Some(PAGE.to_owned()), ..Filter::default() }
}

/// Waits for a condition.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.expect("it holds in time");
}
