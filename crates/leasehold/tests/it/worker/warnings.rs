//! Warnings about jobs that would wait for ever: the log line, and its remedy.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold::{Enqueue, Job};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::support::engine;

#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter", queue = "mail")]
struct Letter;

/// Collects the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no test panics with it")
    }

    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.lock().clone()).expect("UTF-8")
    }
}

#[tokio::test]
async fn producer_warns_of_a_queue_that_no_worker_works() {
    let database = TestDatabase::new().await;
    let (engine, log) = (engine(&database).await, Log::default());
    let _collecting = log.start();
    Letter.enqueue(&engine).await.expect("enqueued");
    engine.warn_if_unworked("mail").await;
    let text = log.text();
    assert!(text.contains("no live worker works") && text.contains("queue=\"mail\""), "{text}");
}
