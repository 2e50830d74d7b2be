use leasehold::worker::WorkerBuilder;
use leasehold::{Job, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send", queue = "mail")]
pub struct SendEmail {
    pub to: String,
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "video.encode", queue = "video")]
pub struct EncodeVideo {
    pub file: String,
}

pub async fn send_email(job: SendEmail) {
    println!("sent to {}", job.to);
}

pub async fn encode_video(job: EncodeVideo) {
    println!("encoded {}", job.file);
}

/// Runs 50 mails and 2 videos at a time. A slow queue takes no slot of another one.
pub fn worker(leasehold: &Leasehold) -> WorkerBuilder<()> {
    leasehold.worker().queue("mail", 50).queue("video", 2).handle(send_email).handle(encode_video)
}
