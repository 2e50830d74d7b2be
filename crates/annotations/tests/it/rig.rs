//! A service of its own for each test: a migrated database, an index that can be told to fail, a
//! worker on demand.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use annotations::index::{Hits, Query, SearchIndex, TantivyIndex, TantivySettings};
use annotations::{Annotation, Annotations, Filter, Index, NewAnnotation, Settings, User};
use futures_util::future::BoxFuture;
use leasehold::Leasehold;
use leasehold::mirror::{
    Digest, Held, ItemError, Range, Target, TargetError, Targets, Tombstone, Write, Written,
};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

pub const PAGE: &str = "https://example.com/quixote";

pub struct Rig {
    pub notes: Annotations,
    pub engine: Leasehold,
    pub client: Client,
    /// Dropped with the rig.
    _database: TestDatabase,
    /// The index; `None`: the service has none.
    pub store: Option<Arc<Switch>>,
    folder: PathBuf,
}

/// Nothing goes to the index unless a test lets it, and nobody is slowed down.
pub fn settings() -> Settings {
    let mut settings = Settings { direct: false, ..Settings::default() };
    settings.limits.saves_per_second = 0;
    settings.limits.reads_per_second = 0;
    settings.sign_up = true;
    settings
}

impl Rig {
    /// With an index that can be told to fail.
    pub async fn new() -> Self {
        Self::with(settings(), true).await
    }

    /// Without an index.
    pub async fn alone() -> Self {
        Self::with(settings(), false).await
    }

    pub async fn with(settings: Settings, indexed: bool) -> Self {
        let database = TestDatabase::new().await;
        let mut client = database.connect_directly().await;
        annotations::migrate(&mut client).await.unwrap();
        let engine = Leasehold::connect(&database.url()).await.unwrap();
        let folder = std::env::temp_dir().join(format!("notes-{}", uuid::Uuid::new_v4().simple()));
        let store = if indexed { Some(Arc::new(Switch::open(&folder).await)) } else { None };
        let index = store.as_ref().map(|store| Index::new(Arc::clone(store)));
        let notes = Annotations::start(engine.clone(), index, settings).await.unwrap();
        Self { notes, engine, client, _database: database, store, folder }
    }

    pub async fn user(&self, name: &str) -> User {
        self.notes.sign_up(name, "").await.unwrap().0
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

    /// The texts that somebody finds, newest first.
    pub async fn texts(&self, viewer: Option<&User>, filter: &Filter) -> Vec<String> {
        let viewer = viewer.map(|user| user.id);
        let found = self.notes.search(viewer, filter, None, 200).await.unwrap();
        found.rows.into_iter().map(|row| row.text).collect()
    }

    /// A number from the database.
    pub async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Makes every job due, as if its time had come.
    pub async fn bring_forward(&self) {
        // Jobs that a worker has in its hands are left alone.
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

    /// The same with everything that is due later.
    pub async fn work_all(&self) {
        // The work in pieces makes jobs that are due later.
        for _ in 0..3 {
            self.bring_forward().await;
            self.work().await;
        }
    }

    /// Fails unless the index equals the table, down to the last version.
    pub async fn assert_equal(&self) {
        let store = self.store.as_ref().unwrap();
        let name = store.inner.current().await.unwrap();
        let target = store.inner.open(&name).await.unwrap();
        let held = target.digest(&Range::default()).await.unwrap();
        let rows = self.client.query("select id, version from annotations.annotation", &[]);
        let mut wanted = Digest::default();
        for row in rows.await.unwrap() {
            wanted.add(row.get(0), row.get(1));
        }
        assert_eq!(held, wanted, "the index differs from the table");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
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

/// An index that goes down and comes back as a test says, and that can be made to gossip: then it
/// answers every question with every note that it knows.
pub struct Switch {
    pub inner: TantivyIndex,
    down: Arc<AtomicBool>,
    gossip: AtomicBool,
    hanging: AtomicBool,
    asked: AtomicUsize,
}

impl Switch {
    async fn open(folder: &std::path::Path) -> Self {
        let inner = TantivyIndex::open(TantivySettings::new(folder)).await.unwrap();
        Self {
            inner,
            down: Arc::default(),
            gossip: AtomicBool::new(false),
            hanging: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        }
    }

    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub fn set_gossip(&self, gossip: bool) {
        self.gossip.store(gossip, Ordering::SeqCst);
    }

    /// Searches have no answer.
    pub fn set_hanging(&self, hanging: bool) {
        self.hanging.store(hanging, Ordering::SeqCst);
    }

    /// How many searches came.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How many notes the index has of somebody, up to a page.
    pub async fn inner_search(&self, user: &str) -> usize {
        let query = Query { user: Some(user.to_owned()), limit: 200, ..Query::default() };
        self.inner.search(&query).await.unwrap().hits.len()
    }

    fn up(&self) -> Result<(), TargetError> {
        up(&self.down)
    }
}

fn up(down: &AtomicBool) -> Result<(), TargetError> {
    match down.load(Ordering::SeqCst) {
        true => Err(TargetError::Down("switched off".to_owned())),
        false => Ok(()),
    }
}

impl SearchIndex for Switch {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.hanging.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.up()?;
            match self.gossip.load(Ordering::SeqCst) {
                true => {
                    let all = Query { limit: 200, ..Query::default() };
                    self.inner.search(&all).await
                }
                false => self.inner.search(query).await,
            }
        })
    }
}

impl Targets for Switch {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.current().await
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Box::pin(async move {
            self.up()?;
            let set = Targets::open(&self.inner, name).await?;
            Ok(Arc::new(SwitchedSet { set, down: Arc::clone(&self.down) }) as Arc<dyn Target>)
        })
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        self.inner.create()
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.inner.swap(to)
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.inner.remove(name)
    }
}

struct SwitchedSet {
    set: Arc<dyn Target>,
    down: Arc<AtomicBool>,
}

impl Target for SwitchedSet {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Held>>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.held(keys).await
        })
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.write(writes).await
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.digest(range).await
        })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, Held)>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.list(range, most).await
        })
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.forget(deletions).await
        })
    }
}

/// Waits until something holds.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("it holds within a minute");
}
