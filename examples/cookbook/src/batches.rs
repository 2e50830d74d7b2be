use leasehold::{BatchDraft, BatchId, Ctx, Enqueue, Job, JobResult, Leasehold, Outcome};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "page.render")]
pub struct RenderPage {
    pub page: i64,
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "book.bind")]
pub struct BindBook {
    pub book: i64,
}

/// Renders all pages of a book; then one job binds them.
pub async fn render_book(leasehold: &Leasehold, book: i64, pages: i64) -> anyhow::Result<BatchId> {
    let mut client = leasehold.pool().get().await?;
    let tx = client.transaction().await?;
    let bind = BindBook { book }.draft()?;
    let batch = BatchDraft::new().description(format!("book {book}")).then(bind).open(&tx).await?;
    batch.add_many(&tx, (1..=pages).map(|page| RenderPage { page })).await?;
    batch.seal(&tx).await?;
    tx.commit().await?;
    Ok(batch.id())
}

/// Keeps a result for the job that follows. The first page has an appendix: one more job of the same batch.
pub async fn render_page(job: RenderPage, ctx: Ctx) -> JobResult {
    ctx.keep_result(&format!("page {}", job.page))?;
    if job.page == 1 {
        let mut client = ctx.engine().pool().get().await?;
        let tx = client.transaction().await?;
        let batch = ctx.extend_batch(&tx).await?;
        batch.add(&tx, RenderPage { page: 1000 }.draft()?).await?;
        ctx.complete_in(&tx).await?;
        tx.commit().await?;
    }
    Ok(Outcome::Complete)
}

/// Reads the results of the batch that it follows, 100 at a time.
pub async fn bind_book(_: BindBook, ctx: Ctx) -> JobResult {
    let (mut texts, mut after) = (Vec::new(), None);
    loop {
        let page = ctx.batch_results(after, 100).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.job_id);
        texts.extend(page.into_iter().map(|kept| kept.result));
    }
    ctx.keep_result(&texts.len())?;
    Ok(Outcome::Complete)
}
