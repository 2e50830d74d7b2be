//! Puts a server into backup mode, in which its files may be copied while it runs.

use std::time::Duration;

use tokio_postgres::{Config, NoTls};

/// For a checkpoint and a copy of a small cluster, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `copy` between `pg_backup_start` and `pg_backup_stop`, which belong to one session. Returns
/// the text of the copy's `backup_label`.
pub(super) fn run<E: Send>(
    server: &Config,
    copy: impl FnOnce() -> Result<(), E> + Send,
) -> Result<Result<String, E>, String> {
    // On a separate thread: the caller may be a task of a runtime, which must not block on another
    // one.
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
            runtime.block_on(async {
                let work = tokio::time::timeout(LIMIT, on_session(server, copy));
                work.await.map_err(|_| format!("no response after {} s", LIMIT.as_secs()))?
            })
        });
        work.join().unwrap_or_else(|_| Err("the copy panicked".to_owned()))
    })
}

async fn on_session<E>(
    server: &Config,
    copy: impl FnOnce() -> Result<(), E>,
) -> Result<Result<String, E>, String> {
    let (client, connection) = server.connect(NoTls).await.map_err(|error| error.to_string())?;
    let driving = tokio::spawn(connection);
    let step = |error: tokio_postgres::Error| format!("the server refused a backup: {error}");
    client
        .batch_execute("set statement_timeout = 0; select pg_backup_start('standby', true)")
        .await
        .map_err(step)?;
    let copied = copy();
    let stop = "select labelfile from pg_backup_stop(wait_for_archive => false)";
    let label = client.query_one(stop, &[]).await.map_err(step)?;
    let label = label.try_get(0).map_err(step)?;
    drop(client);
    let _ = driving.await;
    Ok(copied.map(|()| label))
}
