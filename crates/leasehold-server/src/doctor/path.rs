//! The connection to the server: is there a pooler, and do wake-ups arrive?

use std::time::Duration;

use leasehold::admin::diagnosis;
use leasehold::database::Database;
use tokio_postgres::types::Type;

use super::finding::{Finding, check};
use crate::cli::Db;
use crate::exit::Failure;

pub async fn examine(db: &Db, database: &Database) -> Vec<Finding> {
    if database.is_pooled() {
        return vec![Finding::warn(
            "pooler",
            "a pooler shares sessions between transactions; everything works except wake-ups",
            "idle workers find new jobs at their next poll (0.5 s by default); connect directly if that is too long",
        )];
    }
    vec![
        Finding::ok("pooler", "a direct connection, or a pooler in session mode"),
        check("wake-up", wake_up(db, database)).await,
    ]
}

/// Sends a wake-up for a queue that does not exist and waits for it on another session.
async fn wake_up(db: &Db, database: &Database) -> Result<Finding, Failure> {
    let rows = db.query(diagnosis::WAKE_UP, &[]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(Finding::warn(
            "wake-up",
            "the trigger job_wakes_idle of leasehold.job is disabled: idle workers find jobs at their next poll",
            "alter table leasehold.job enable trigger job_wakes_idle",
        ));
    }
    let word = format!("doctor-{}", uuid::Uuid::new_v4().simple());
    let (received, mut receiving) = tokio::sync::mpsc::channel::<()>(1);
    let expected = word.clone();
    let listening = database.listen(move |queue| {
        if queue == expected {
            // One notification is enough.
            let _ = received.try_send(());
        }
    });
    let (_session, _ended) = listening.await?;
    db.query("select pg_notify('leasehold_wake', $1)", &[(&word, Type::TEXT)]).await?;
    Ok(match tokio::time::timeout(Duration::from_secs(5), receiving.recv()).await {
        Ok(Some(())) => Finding::ok("wake-up", "NOTIFY arrives"),
        _ => Finding::warn(
            "wake-up",
            "a NOTIFY did not arrive within 5s",
            "workers still find jobs by polling; look for a pooler or a proxy in front of the server",
        ),
    })
}
