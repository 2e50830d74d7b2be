//! One service per test: a migrated database, a store in a folder, a worker on demand.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use pastes::{NewPaste, Pastes, Reading, Settings, ShortCode, Store};
use tokio_postgres::Client;

pub struct Fixture {
    pub pastes: Pastes,
    pub engine: Leasehold,
    pub client: Client,
    pub folder: PathBuf,
    pub database: TestDatabase,
}

/// Settings for tests: nothing uploads unless the test runs a worker.
pub fn settings() -> Settings {
    Settings { direct_upload: false, ..Settings::default() }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let folder = std::env::temp_dir().join(format!("pastes-{}", uuid::Uuid::new_v4().simple()));
        let store = Store::local(&folder).unwrap();
        Self::on(store, folder, settings).await
    }

    pub async fn on(store: Store, folder: PathBuf, settings: Settings) -> Self {
        let database = TestDatabase::new().await;
        let mut client = database.connect_directly().await;
        pastes::SCHEMA.up(&mut client).await.unwrap();
        let engine = Leasehold::connect(&database.url()).await.unwrap();
        let pastes = Pastes::start(engine.clone(), store, settings).await.unwrap();
        Self { pastes, engine, client, folder, database }
    }

    /// Creates a paste of a text.
    pub async fn paste(&self, text: &str) -> ShortCode {
        self.pastes.create(new(text)).await.unwrap().code
    }

    pub async fn status(&self, code: &ShortCode) -> String {
        self.text("select status::text from pastes.pastes where short_code = $1", code).await
    }

    async fn text(&self, sql: &str, code: &ShortCode) -> String {
        self.client.query_one(sql, &[&code.as_str()]).await.unwrap().get(0)
    }

    /// Returns the bytes that a reader gets.
    pub async fn bytes(&self, code: &ShortCode) -> Vec<u8> {
        match self.pastes.read(code).await.unwrap() {
            Reading::Ready(paste) => paste.content.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Moves a paste's expiry into the past.
    pub async fn expire(&self, code: &ShortCode) {
        let sql = "update pastes.pastes set expires_at = statement_timestamp() - interval '1 second' \
                   where short_code = $1";
        assert_eq!(self.client.execute(sql, &[&code.as_str()]).await.unwrap(), 1);
    }

    /// Runs the service's jobs until nothing is due.
    pub async fn work(&self) {
        let worker = pastes::worker(&self.pastes, self.engine.worker()).unwrap();
        worker.run_until_idle().await.unwrap();
    }

    /// Runs the expiry sweep until nothing is due, then the jobs that it enqueued.
    pub async fn sweep(&self) {
        self.pastes.expiry_sweep().unwrap().run_once(&self.engine).await.unwrap();
        self.work().await;
    }

    pub async fn deletion_status(&self, code: &ShortCode) -> String {
        self.text("select deletion_status::text from pastes.pastes where short_code = $1", code)
            .await
    }

    /// Returns a number from the database.
    pub async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Asserts that the reference count of every content matches its pastes.
    pub async fn assert_ref_counts(&self) {
        let wrong = "select count(*) from pastes.contents c where c.ref_count <> (\
                     select count(*) from pastes.pastes p where p.content_id = c.content_id \
                     and p.deletion_status <> 'DELETED')";
        assert_eq!(self.count(wrong).await, 0, "ref_count differs from the pastes");
    }

    /// Returns the number of objects in the folder.
    pub fn objects(&self) -> usize {
        fn count(folder: &std::path::Path) -> usize {
            let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
            entries
                .flatten()
                .map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 })
                .sum()
        }
        count(&self.folder.join("blobs"))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn new(text: &str) -> NewPaste {
    NewPaste { content: text.as_bytes().to_vec().into(), ..NewPaste::default() }
}

/// Waits until `holds` returns true.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking)
        .await
        .expect("the condition holds within a minute");
}
