//! The thread that writes a set, at a lower priority than the threads that handle requests.
//!
//! # Invariants
//! - The threads that it starts for indexing and merging have the lower priority, too: Linux passes it
//!   on. On other systems they have the normal one.
//! - It runs one task at a time. A panic, which damage can cause, ends that task only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use tokio::sync::oneshot;

/// How much lower. Against one thread that handles requests it still gets a quarter of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

type Work = Box<dyn FnOnce() + Send>;

pub struct BackgroundThread(mpsc::SyncSender<Work>);

impl BackgroundThread {
    /// Starts the thread, which ends when this is dropped.
    pub fn start() -> std::io::Result<Self> {
        // One runs and at most one waits: callers hold a lock.
        let (sender, work) = mpsc::sync_channel::<Work>(1);
        std::thread::Builder::new().name("index-writer".to_owned()).spawn(move || {
            #[cfg(target_os = "linux")]
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::debug!(%error, "the index writer runs at the normal priority");
            }
            for work in work {
                // `run` learns of a panic by its sender, which is dropped.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        })?;
        Ok(Self(sender))
    }

    /// Returns `None` if the task panicked, or if another one is waiting already.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            // The receiver is gone if the caller cancelled.
            let _ = done.send(work());
        });
        self.0.try_send(work).ok()?;
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn background_thread_continues_after_a_panic() {
        let background = BackgroundThread::start().unwrap();
        let none: Option<()> = background.run(|| panic!("damage")).await;
        assert_eq!(none, None);
        assert_eq!(background.run(|| 7).await, Some(7));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn background_thread_and_its_children_have_a_lower_priority() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let own = nice();
        let background = BackgroundThread::start().unwrap();
        let (there, below) = background
            .run(move || (nice(), std::thread::spawn(nice).join().unwrap()))
            .await
            .unwrap();
        assert_eq!((there, below), (NICE, NICE));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }
}
