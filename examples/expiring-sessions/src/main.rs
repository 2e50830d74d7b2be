use leasehold::Leasehold;
use leasehold::sweep::{States, Sweep, When};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leasehold = Leasehold::connect_and_migrate(&std::env::var("DATABASE_URL")?).await?;
    let sweep = Sweep::new("sessions.expiry", "sessions")
        .key("token")
        .due("expires_at < statement_timestamp()")
        .order_by("expires_at")
        .status("state", States::new("live", "ending", "ended"))
        .columns(["login"])
        .when(When::nightly("00:00", "Europe/Madrid")?)
        // Runs in the statement that ends the sessions: once per session, however often a worker dies.
        .finishing(
            "update logins set open_sessions = open_sessions - f.n
               from (select login, count(*) as n from finished group by login order by login) f
              where logins.login = f.login",
        )
        // Runs before that, for work outside the database. After a crash it may run again.
        .handle(|batch| async move {
            for row in batch.rows() {
                println!("goodbye, {}", row.get::<_, &str>("login"));
            }
            Ok(())
        });
    // Adds the columns `claimed_at` and `claim` and two partial indexes, where they are missing.
    sweep.install(&mut *leasehold.pool().get().await?).await?;
    leasehold.worker().sweep(sweep).run_until_signal().await?;
    Ok(())
}
