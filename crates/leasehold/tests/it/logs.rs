//! What the library logs during one test.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

/// A second subscriber, which lives as long as the process. While there is only one, `tracing` lets the thread that
/// reaches a log line first decide for all threads whether it is enabled, and the thread of another test has no
/// subscriber.
static SECOND: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    subscriber.with_writer(io::sink).finish().into()
});

/// The log of the current thread, from DEBUG on. Use it in tests on a single thread: a worker of a
/// runtime with more threads logs on those.
pub struct Logs {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Logs {
    pub fn collect() -> Self {
        LazyLock::force(&SECOND);
        let text = Arc::new(Mutex::new(Vec::new()));
        let buffer = Buffer(Arc::clone(&text));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || buffer.clone())
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock()).into_owned()
    }

    /// Returns true if a line of this level contains these words.
    pub fn has(&self, level: &str, words: &str) -> bool {
        self.text().lines().any(|line| line.contains(level) && line.contains(words))
    }
}

#[derive(Clone)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
