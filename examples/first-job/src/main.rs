use leasehold::{Enqueue, Job, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send", max_attempts = 8)]
struct SendEmail {
    to: String,
}

async fn send_email(job: SendEmail) {
    println!("sent to {}", job.to);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leasehold = Leasehold::connect_and_migrate(&std::env::var("DATABASE_URL")?).await?;
    let mut client = leasehold.pool().get().await?;
    let tx = client.transaction().await?;
    // Your own inserts and updates go here: they and the job are committed together.
    let to = "ada@example.com".to_owned();
    SendEmail { to }.enqueue(&tx).await?;
    tx.commit().await?;
    leasehold.worker().handle(send_email).run_until_idle().await?;
    Ok(())
}
