//! Runs a worker until the process gets a signal.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::error::WorkerError;

/// Calls `run` with two futures: the first SIGTERM or Ctrl-C, and the second.
pub(super) async fn until_signal(
    run: impl AsyncFnOnce(Notified<'_>, Notified<'_>) -> Result<(), WorkerError>,
) -> Result<(), WorkerError> {
    let listen = |kind| {
        signal(kind)
            .map_err(|error| WorkerError::Config(format!("cannot listen for signals: {error}")))
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let (first, second) = (Notify::new(), Notify::new());
    let listening = async {
        for ready in [&first, &second] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            ready.notify_one();
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = run(first.notified(), second.notified()) => ended,
        never = listening => never,
    }
}
