//! Wake-ups: what NOTIFY says of a queue makes its loop look at once. Everything works without them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::database::Database;
use crate::link::Patience;
use crate::measure::process::Process;

/// Passes wake-ups on. When the connection breaks, polling goes on and this tries again.
pub(super) async fn listen(
    database: Database,
    wakes: Arc<HashMap<String, Arc<Notify>>>,
    process: Arc<Process>,
    mut stop: watch::Receiver<bool>,
) {
    let mut patience = Patience::default();
    loop {
        let told = Arc::clone(&wakes);
        let listening = database.listen(move |queue| {
            if let Some(wake) = told.get(queue) {
                wake.notify_one();
            }
        });
        match listening.await {
            Ok((_session, ended)) => {
                patience.reset();
                process.listens(true);
                // What was enqueued before we listened would wait for a poll.
                wakes.values().for_each(|wake| wake.notify_one());
                tokio::select! {
                    _ = ended => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
                process.listens(false);
            }
            Err(error) => tracing::debug!(%error, "cannot listen for wake-ups; polling"),
        }
        tokio::select! {
            () = tokio::time::sleep(patience.next_wait()) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
