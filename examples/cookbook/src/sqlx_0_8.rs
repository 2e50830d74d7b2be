use leasehold::sqlx08::{self as sqlx, PgPool};
use leasehold::{Ctx, Enqueue, Job, JobResult, Outcome, State};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.close")]
pub struct CloseOrder {
    pub order: i64,
}

pub async fn place_order(pool: &PgPool) -> anyhow::Result<i64> {
    let mut tx = pool.begin().await?;
    let order = sqlx::query_scalar("insert into orders default values returning id")
        .fetch_one(&mut *tx)
        .await?;
    CloseOrder { order }.enqueue(&mut *tx).await?;
    tx.commit().await?;
    Ok(order)
}

pub async fn close_order(job: CloseOrder, ctx: Ctx, State(pool): State<PgPool>) -> JobResult {
    let mut tx = pool.begin().await?;
    sqlx::query("update orders set state = 'closed' where id = $1")
        .bind(job.order)
        .execute(&mut *tx)
        .await?;
    ctx.complete_in_sqlx_0_8(&mut tx).await?;
    tx.commit().await?;
    Ok(Outcome::Complete)
}
