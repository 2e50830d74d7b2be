use anyhow::Context;
use leasehold::{Enqueue, Job, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "thumbnail.make", queue = "images", max_attempts = 5)]
struct MakeThumbnail {
    file: String,
}

async fn make_thumbnail(job: MakeThumbnail) -> anyhow::Result<()> {
    anyhow::ensure!(job.file.ends_with(".png"), "{} is not a PNG file", job.file);
    println!("made a thumbnail of {}", job.file);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("DATABASE_URL").context("set DATABASE_URL")?;
    let leasehold = Leasehold::connect_and_migrate(&url).await?;
    match std::env::args().nth(1).as_deref() {
        Some("work") => {
            let worker = leasehold.worker().queue("images", 4).handle(make_thumbnail);
            worker.run_until_signal().await?;
        }
        Some(file) => upload(&leasehold, file).await?,
        None => anyhow::bail!("usage: shop work, or shop FILE"),
    }
    Ok(())
}

/// Stores the upload and its job in one transaction: both, or neither.
async fn upload(leasehold: &Leasehold, file: &str) -> anyhow::Result<()> {
    let mut client = leasehold.pool().get().await?;
    client.batch_execute("create table if not exists upload (file text primary key)").await?;
    let tx = client.transaction().await?;
    tx.execute("insert into upload values ($1)", &[&file]).await?;
    let job = MakeThumbnail { file: file.to_owned() }.enqueue(&tx).await?;
    tx.commit().await?;
    println!("job {}", job.id());
    Ok(())
}

#[cfg(test)]
mod tests;
