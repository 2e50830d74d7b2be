//! The thread that writes a set, behind whoever answers people.
//!
//! # What is true
//! - What it starts, the threads that index and merge, stands behind too: Linux hands the priority
//!   down. Elsewhere they are like all others.
//! - One piece of work at a time. What panics, which damage can cause, is over, and the next piece
//!   is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use tokio::sync::oneshot;

/// How far behind. Against one thread that answers people it still gets a quarter of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

type Work = Box<dyn FnOnce() + Send>;

pub struct Behind(mpsc::SyncSender<Work>);

impl Behind {
    /// It ends when this is dropped.
    pub fn start() -> std::io::Result<Self> {
        // One runs and one waits: callers have a lock.
        let (sender, work) = mpsc::sync_channel::<Work>(1);
        std::thread::Builder::new().name("index-writer".to_owned()).spawn(move || {
            #[cfg(target_os = "linux")]
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::debug!(%error, "the index is written as fast as people are answered");
            }
            for work in work {
                // It has a sender of its own to say so: see `run`.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        })?;
        Ok(Self(sender))
    }

    /// `None`: it panicked, or another piece waits already.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            // Whoever gave up does not hear it.
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
    async fn it_goes_on_after_a_panic() {
        let behind = Behind::start().unwrap();
        let none: Option<()> = behind.run(|| panic!("damage")).await;
        assert_eq!(none, None);
        assert_eq!(behind.run(|| 7).await, Some(7));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn it_and_what_it_starts_stand_behind_others() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let own = nice();
        let behind = Behind::start().unwrap();
        let (there, below) =
            behind.run(move || (nice(), std::thread::spawn(nice).join().unwrap())).await.unwrap();
        assert_eq!((there, below), (NICE, NICE));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }
}
