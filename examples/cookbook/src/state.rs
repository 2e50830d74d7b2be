use leasehold::worker::WorkerBuilder;
use leasehold::{Job, Leasehold, State};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send")]
pub struct SendEmail {
    pub to: String,
}

/// Clients, pools and settings that handlers share. Each attempt gets a clone.
#[derive(Clone)]
pub struct Mailer {
    pub sender: String,
}

pub async fn send_email(job: SendEmail, State(mailer): State<Mailer>) -> anyhow::Result<()> {
    anyhow::ensure!(job.to.contains('@'), "{} is not an address", job.to);
    println!("from {} to {}", mailer.sender, job.to);
    Ok(())
}

pub fn worker(leasehold: &Leasehold, mailer: Mailer) -> WorkerBuilder<Mailer> {
    leasehold.worker_with(mailer).handle(send_email)
}
