//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Requests to stop: Ctrl-C and SIGTERM, one after the other.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Catches both signals: from here on neither ends the process by itself.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Returns a future of the first signal and one of the second: the two arguments of
    /// [`run_with_shutdown`](crate::worker::WorkerBuilder::run_with_shutdown).
    pub fn stop_and_immediate(
        mut self,
    ) -> (impl Future<Output = ()> + Send, impl Future<Output = ()> + Send) {
        let (pass_on, passed_on) = tokio::sync::oneshot::channel::<Self>();
        let stop = async move {
            self.next().await;
            let _ = pass_on.send(self);
        };
        let immediate = async move {
            match passed_on.await {
                Ok(mut signals) => signals.next().await,
                // The first signal was not waited for, so there is no second one.
                Err(_) => std::future::pending().await,
            }
        };
        (stop, immediate)
    }
}
