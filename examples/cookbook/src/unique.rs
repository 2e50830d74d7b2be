use std::time::Duration;

use leasehold::tokio_postgres::Transaction;
use leasehold::{Enqueue, EnqueueError, Enqueued, Job};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "invoice.send")]
pub struct SendInvoice {
    pub order: i64,
}

/// Enqueues one invoice per order, however often a caller repeats this.
pub async fn send_invoice(tx: &Transaction<'_>, order: i64) -> Result<Enqueued, EnqueueError> {
    SendInvoice { order }
        .draft()?
        .key(format!("invoice:{order}"))
        // The key stays taken until the job has ended, and at least for this time. Default: 24 h.
        .key_ttl(Duration::from_secs(7 * 24 * 60 * 60))
        .enqueue(tx)
        .await
}
