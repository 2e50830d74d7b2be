//! The server: does it keep accepted writes, and does anything hold back its vacuum?

use std::time::Duration;

use jiff::Timestamp;
use leasehold::admin::diagnosis;
use leasehold::database::{Database, OLDEST_SERVER};

use super::finding::{Finding, check};
use crate::cli::Db;
use crate::exit::Failure;
use crate::text::{one_line, print_duration, seconds};

pub async fn examine(db: &Db, pooled: bool) -> Vec<Finding> {
    let mut findings = vec![
        check("version", version(db)).await,
        check("fsync", must_be_on(db, "fsync")).await,
        check("full_page_writes", must_be_on(db, "full_page_writes")).await,
        check("synchronous_commit", synchronous_commit(db, pooled)).await,
        check("isolation", isolation(db, pooled)).await,
        check("connections", connections(db)).await,
        check("clock", clock(db)).await,
        check("autovacuum", autovacuum(db)).await,
        check("old transactions", old_transactions(db)).await,
        check("prepared", prepared_transactions(db)).await,
    ];
    findings.insert(1, primary(db).await);
    findings
}

async fn version(db: &Db) -> Result<Finding, Failure> {
    let row = db
        .one(
            "select current_setting('server_version'), current_setting('server_version_num')::int",
            &[],
        )
        .await?;
    let (text, number): (String, i32) = (row.get(0), row.get(1));
    let found = format!("PostgreSQL {text}");
    Ok(match u32::try_from(number / 10_000).is_ok_and(|major| major >= OLDEST_SERVER) {
        true => Finding::ok("version", found),
        false => {
            Finding::fail("version", found, format!("use PostgreSQL {OLDEST_SERVER} or newer"))
        }
    })
}

async fn primary(db: &Db) -> Finding {
    match Database::check_server(db.client()).await {
        Err(leasehold::ConnectError::Replica) => Finding::fail(
            "primary",
            "this server accepts no writes: it is a standby, or default_transaction_read_only is on",
            "connect to the primary, or name every host: postgres://user@one:5432,two:5432/name",
        ),
        Err(error @ leasehold::ConnectError::Encoding(_)) => Finding::fail(
            "encoding",
            error.to_string(),
            "dump it, and restore it into a database that was created with ENCODING 'UTF8'",
        ),
        _ => Finding::ok("primary", "accepts writes"),
    }
}

async fn setting(db: &Db, name: &str) -> Result<String, Failure> {
    let sql = "select coalesce(reset_val, setting) from pg_settings where name = $1";
    Ok(db.one(sql, &[(&name, tokio_postgres::types::Type::TEXT)]).await?.get(0))
}

async fn must_be_on(db: &Db, name: &'static str) -> Result<Finding, Failure> {
    Ok(match setting(db, name).await?.as_str() {
        "on" => Finding::ok(name, "on"),
        other => Finding::fail(
            name,
            format!("{other}: a crash of the machine can destroy the whole database"),
            format!("set {name} = on in postgresql.conf and reload"),
        ),
    })
}

/// Checks the default of a new session. The engine raises it for its own sessions; jobs that an
/// application enqueues in its own transactions depend on that application's session.
async fn synchronous_commit(db: &Db, pooled: bool) -> Result<Finding, Failure> {
    let name = "synchronous_commit";
    let value = setting(db, name).await?;
    let lowered = db
        .query(
            "select coalesce('role ' || r.rolname, 'every role') || coalesce(' in database ' || d.datname, '') \
               from pg_db_role_setting s \
               left join pg_roles r on r.oid = s.setrole left join pg_database d on d.oid = s.setdatabase \
              where exists (select from unnest(s.setconfig) c \
                             where c in ('synchronous_commit=off', 'synchronous_commit=local')) \
                and (d.datname is null or d.datname = current_database())",
            &[],
        )
        .await?;
    let lowered: Vec<String> = lowered.iter().map(|row| row.get(0)).collect();
    let advice = "run: alter role … set synchronous_commit = on for every role that enqueues, or set it in postgresql.conf";
    Ok(match (value.as_str(), pooled, lowered.is_empty()) {
        ("off" | "local", true, _) => Finding::fail(
            name,
            format!("{value} through a pooler: a crash of the server can lose an accepted job"),
            advice,
        ),
        ("off" | "local", false, _) => Finding::warn(
            name,
            format!(
                "a new session has {value}; workers raise it, but a crash of the server can lose a job that your program enqueues in its own transaction"
            ),
            advice,
        ),
        (_, _, false) => {
            Finding::warn(name, format!("{value} here, lowered for {}", lowered.join(", ")), advice)
        }
        _ => Finding::ok(name, format!("{value} for a new session")),
    })
}

/// Checks the default of a new session. The engine lowers it for its own sessions, but cannot through a
/// pooler.
async fn isolation(db: &Db, pooled: bool) -> Result<Finding, Failure> {
    let name = "isolation";
    let value = setting(db, "default_transaction_isolation").await?;
    let advice = "run: alter role … set default_transaction_isolation = 'read committed' for workers and producers";
    Ok(match (value.as_str(), pooled) {
        ("read committed" | "read uncommitted", _) => Finding::ok(name, value),
        (_, true) => Finding::warn(
            name,
            format!(
                "{value} through a pooler: concurrent statements of workers fail to serialise, \
                 and are retried"
            ),
            advice,
        ),
        (_, false) => Finding::ok(name, format!("{value} by default; workers use read committed")),
    })
}

async fn connections(db: &Db) -> Result<Finding, Failure> {
    // pg_stat_activity hides the sessions of other users from a role without pg_monitor.
    let sql = "select (select coalesce(sum(numbackends), 0)::bigint from pg_stat_database), \
               current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint";
    let row = db.one(sql, &[]).await?;
    let (used, most): (i64, i64) = (row.get(0), row.get(1));
    let text = format!("{used} of {most} in use");
    Ok(match most - used {
        ..25 => Finding::warn(
            "connections",
            text,
            "a worker opens a few, and up to 16 for claims, 16 for results and 32 for transactions of handlers: raise max_connections, or put a pooler in front",
        ),
        _ => Finding::ok("connections", text),
    })
}

/// Returns how far a time lies outside of the interval in which the server was asked for it.
fn outside(there: Timestamp, before: Timestamp, after: Timestamp) -> Duration {
    let early = before.duration_since(there);
    let late = there.duration_since(after);
    Duration::try_from(early.max(late)).unwrap_or_default()
}

/// The database's clock decides what is due. A local clock that differs only confuses operators.
async fn clock(db: &Db) -> Result<Finding, Failure> {
    let before = Timestamp::now();
    let (there, ahead): (Timestamp, i64) = match db.query(diagnosis::CLOCK, &[]).await {
        Ok(rows) => rows.first().map_or((before, 0), |row| (row.get(0), row.get(1))),
        Err(_) => (db.one("select clock_timestamp()", &[]).await?.get(0), 0),
    };
    let after = Timestamp::now();
    let off = outside(there, before, after);
    let asking = Duration::try_from(after.duration_since(before)).unwrap_or_default();
    Ok(match (ahead, off.as_secs()) {
        (0, ..10) => Finding::ok(
            "clock",
            format!("within {} of this machine's", print_duration(off + asking)),
        ),
        (0, _) => Finding::warn(
            "clock",
            format!("the database's clock is {} away from this machine's", print_duration(off)),
            "the database's clock decides what is due; run NTP on both machines",
        ),
        (leases, _) => Finding::warn(
            "clock",
            format!(
                "{leases} leases end later than their length allows: the database's clock was set back"
            ),
            "a running worker shortens them; keep NTP from stepping the clock",
        ),
    })
}

async fn autovacuum(db: &Db) -> Result<Finding, Failure> {
    let sql = "select current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on', \
               (select string_agg(c.relname, ', ') from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                 where n.nspname in ('leasehold', 'leasehold_internal') and 'autovacuum_enabled=false' = any (c.reloptions))";
    let row = db.one(sql, &[]).await?;
    let (on, off_for): (bool, Option<String>) = (row.get(0), row.get(1));
    let advice = "turn it on: otherwise each claim reads more dead rows than the one before";
    Ok(match (on, off_for) {
        (false, _) => Finding::fail("autovacuum", "off", advice),
        (true, Some(tables)) => Finding::fail("autovacuum", format!("off for {tables}"), advice),
        (true, None) => Finding::ok("autovacuum", "on"),
    })
}

async fn old_transactions(db: &Db) -> Result<Finding, Failure> {
    let sql = "select pid, extract(epoch from clock_timestamp() - xact_start)::float8, state, \
                      application_name, left(query, 80) \
                 from pg_stat_activity \
                where xact_start < clock_timestamp() - interval '60 seconds' \
                  and backend_type = 'client backend' and pid <> pg_backend_pid() \
                order by xact_start limit 5";
    let rows = db.query(sql, &[]).await?;
    if rows.is_empty() {
        return Ok(Finding::ok("old transactions", "none older than 60s"));
    }
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let (pid, age): (i32, f64) = (row.get(0), row.get(1));
            let text = |at| one_line(row.get::<_, Option<&str>>(at).unwrap_or("?"), 80);
            format!("pid {pid}, {} old, {}, {}: {}", seconds(age), text(2), text(3), text(4))
        })
        .collect();
    Ok(Finding::warn(
        "old transactions",
        lines.join("\n"),
        "vacuum removes no dead rows while they are open; end one: select pg_terminate_backend(PID)",
    ))
}

async fn prepared_transactions(db: &Db) -> Result<Finding, Failure> {
    let sql = "select gid, extract(epoch from clock_timestamp() - prepared)::float8 from pg_prepared_xacts \
                where database = current_database() order by prepared limit 5";
    let rows = db.query(sql, &[]).await?;
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{}, {} old", one_line(row.get(0), 60), seconds(row.get(1))))
        .collect();
    Ok(match lines.is_empty() {
        true => Finding::ok("prepared", "no prepared transactions"),
        false => Finding::warn(
            "prepared",
            lines.join("\n"),
            "they hold locks across restarts; end each with COMMIT PREPARED or ROLLBACK PREPARED",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_ignores_the_time_of_the_round_trip() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap_or_default();
        let seconds = Duration::from_secs;
        assert_eq!(outside(at(5), at(0), at(20)), seconds(0));
        assert_eq!(outside(at(0), at(0), at(0)), seconds(0));
        assert_eq!(outside(at(-15), at(0), at(20)), seconds(15));
        assert_eq!(outside(at(50), at(0), at(20)), seconds(30));
    }
}
