use leasehold::{Job, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send", max_attempts = 8)]
struct SendEmail {
    to: String,
}

async fn send_email(job: SendEmail) -> Result<(), std::io::Error> {
    println!("sent to {}", job.to);
    Ok(()) // an error: retried with backoff
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leasehold = Leasehold::connect_and_migrate(&std::env::var("DATABASE_URL")?).await?;
    leasehold.worker().queue("default", 20).handle(send_email).run_until_signal().await?;
    Ok(())
}
