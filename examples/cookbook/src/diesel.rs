use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use leasehold::{Ctx, Enqueue, Job, JobResult, Outcome, State};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.close")]
pub struct CloseOrder {
    pub order: i64,
}

pub async fn place_order(conn: &mut AsyncPgConnection, order: i64) -> anyhow::Result<()> {
    conn.transaction(async |conn| {
        let insert = diesel::sql_query("insert into orders (id) values ($1)");
        insert.bind::<diesel::sql_types::BigInt, _>(order).execute(conn).await?;
        CloseOrder { order }.enqueue(&mut *conn).await?;
        Ok(())
    })
    .await
}

pub async fn close_order(job: CloseOrder, ctx: Ctx, State(url): State<String>) -> JobResult {
    let mut conn = AsyncPgConnection::establish(&url).await?;
    conn.transaction(async |conn| {
        let update = diesel::sql_query("update orders set state = 'closed' where id = $1");
        update.bind::<diesel::sql_types::BigInt, _>(job.order).execute(conn).await?;
        ctx.complete_in_diesel(conn).await?;
        anyhow::Ok(())
    })
    .await?;
    Ok(Outcome::Complete)
}
