//! The job: sending the receipt of an order.

use leasehold::{Job, JobError, JobResult, JobTx, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Job, Serialize, Deserialize)]
#[job(name = "receipt.send", queue = "receipts", max_attempts = 10, run_limit = "30s")]
pub struct SendReceipt {
    pub order: i64,
}

/// The text at the head of each receipt.
#[derive(Clone, Debug)]
pub struct Letterhead(pub String);

/// Writes the receipt. `tx.complete()` commits it together with the completion of the job: however
/// often a worker dies half-way, there is one receipt.
pub async fn send_receipt(
    job: SendReceipt,
    State(head): State<Letterhead>,
    tx: JobTx,
) -> JobResult {
    let found =
        tx.query_opt("select item, quantity from orders where id = $1", &[&job.order]).await?;
    let Some(order) = found else {
        // A retry would not help: the order is gone.
        return Err(JobError::permanent(format!("there is no order {}", job.order)));
    };
    let (item, quantity): (String, i32) = (order.get(0), order.get(1));
    let text = format!("{}: {quantity} × {item}", head.0);
    tx.execute("insert into receipts (order_id, text) values ($1, $2)", &[&job.order, &text])
        .await?;
    Ok(tx.complete().await?)
}
