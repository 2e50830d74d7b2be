use leasehold::{Ctx, Job, JobResult, JobTx, Outcome};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.close")]
pub struct CloseOrder {
    pub order: i64,
}

/// The worker opens the transaction; `complete` commits the update and the end of the job together.
pub async fn close_order(job: CloseOrder, tx: JobTx) -> JobResult {
    tx.execute("update orders set state = 'closed' where id = $1", &[&job.order]).await?;
    Ok(tx.complete().await?)
}

/// The same in a transaction of your own, for example of another pool.
pub async fn close_order_in(job: CloseOrder, ctx: Ctx) -> JobResult {
    let mut client = ctx.engine().pool().get().await?;
    let tx = client.transaction().await?;
    tx.execute("update orders set state = 'closed' where id = $1", &[&job.order]).await?;
    ctx.complete_in(&tx).await?;
    tx.commit().await?;
    Ok(Outcome::Complete)
}
