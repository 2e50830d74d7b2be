//! `leasehold pastes`: what the operator of a paste service does, straight on the database.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use super::common::Common;
use super::db::Db;
use super::prompt::ask_why;
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{one_line, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Lists what readers complained about, newest first
    Reports {
        /// The most to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
    /// Ends a paste now
    #[command(
        after_help = "Example:\n  leasehold pastes takedown aB3xYz --ban --why 'court order 12/34'"
    )]
    Takedown {
        /// The code of the paste
        code: String,
        /// Also ends every other paste of the same bytes, and refuses them from now on
        #[arg(long)]
        ban: bool,
        /// Why, for the records
        #[arg(long)]
        why: Option<String>,
    },
    /// Refuses content from now on; pastes that have it stay
    Ban {
        /// The SHA-256 of the content: sha256sum file
        hash: String,
        /// Why, for the records
        #[arg(long)]
        why: Option<String>,
    },
    /// Allows content again
    Unban {
        /// The SHA-256 of the content
        hash: String,
    },
    /// Lists banned content, newest first
    Bans {
        /// The most to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let status = pastes::SCHEMA.status(db.client()).await?;
    if status.problem().is_some() {
        return Err(pastes::StartError::NotMigrated.into());
    }
    match command {
        Command::Reports { limit } => reports(&db, common, limit).await?,
        Command::Takedown { code, ban, why } => takedown(&db, common, &code, ban, why).await?,
        Command::Ban { hash, why } => ban(&db, common, &hash, why).await?,
        Command::Unban { hash } => unban(&db, common, &hash).await?,
        Command::Bans { limit } => bans(&db, common, limit).await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Report {
    #[serde(serialize_with = "super::record::as_text")]
    id: i64,
    code: String,
    content_hash: String,
    reason: String,
    contact: Option<String>,
    reported_at: Timestamp,
    alive: bool,
}

async fn reports(db: &Db, common: &Common, limit: i64) -> Result<(), Failure> {
    let sql = include_str!("../queries/paste_reports.sql");
    let rows = db.query(sql, &[(&limit, Type::INT8)]).await?;
    let reports: Vec<Report> = rows
        .iter()
        .map(|row| Report {
            id: row.get(0),
            code: row.get(1),
            content_hash: row.get(2),
            reason: row.get(3),
            contact: row.get(4),
            reported_at: row.get(5),
            alive: row.get(6),
        })
        .collect();
    let now = db.now().await?;
    let out = common.out();
    out.list("reports", &reports, |reports| {
        let mut columns = Columns::new(&["CODE", "REPORTED", "STILL THERE", "REASON", "CONTACT"]);
        for report in reports {
            columns.row([
                report.code.clone(),
                relative(report.reported_at, now),
                if report.alive { "yes" } else { "no" }.to_owned(),
                one_line(&report.reason, 60),
                one_line(report.contact.as_deref().unwrap_or_default(), 40),
            ]);
        }
        columns
    })?;
    if out.is_table() && reports.is_empty() {
        out.note("nobody complained");
    }
    Ok(())
}

async fn takedown(
    db: &Db,
    common: &Common,
    code: &str,
    ban: bool,
    why: Option<String>,
) -> Result<(), Failure> {
    if code.parse::<pastes::ShortCode>().is_err() {
        return Err(Failure::usage(format!("{code:?} is no code of a paste")));
    }
    let why = ask_why(why, "--why TEXT")?;
    let sql = "select pastes.take_down($1, $2, $3)";
    let params = [(&code as _, Type::TEXT), (&why as _, Type::TEXT), (&ban as _, Type::BOOL)];
    let ended: Option<i64> = db.one(sql, &params).await?.get(0);
    let Some(ended) = ended else {
        return Err(Failure::not_found(format!("there is no paste {code}, or not any more")));
    };
    let answer = serde_json::json!({ "code": code, "pastes": ended, "banned": ban });
    let count = crate::text::count(usize::try_from(ended).unwrap_or(0), "paste");
    common.out().one("takedown", &answer, |_| match ban {
        true => format!("{count} ended; the content is banned"),
        false => format!("{count} ended; readers see nothing within a second"),
    })
}

fn checked(hash: &str) -> Result<String, Failure> {
    let fits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match fits {
        true => Ok(hash.to_ascii_lowercase()),
        false => Err(Failure::usage("a hash is 64 hexadecimal digits")
            .hint("compute it: sha256sum file; or see: leasehold pastes reports --json")),
    }
}

async fn ban(db: &Db, common: &Common, hash: &str, why: Option<String>) -> Result<(), Failure> {
    let hash = checked(hash)?;
    let why = ask_why(why, "--why TEXT")?;
    let sql = "insert into pastes.banned (content_hash, reason) values ($1, $2) \
               on conflict (content_hash) do update set reason = excluded.reason";
    db.query(sql, &[(&hash, Type::TEXT), (&why, Type::TEXT)]).await?;
    let answer = serde_json::json!({ "content_hash": hash, "banned": true });
    common.out().one("ban", &answer, |_| format!("{hash} is banned"))
}

async fn unban(db: &Db, common: &Common, hash: &str) -> Result<(), Failure> {
    let hash = checked(hash)?;
    let sql = "delete from pastes.banned where content_hash = $1 returning 1";
    if db.query(sql, &[(&hash, Type::TEXT)]).await?.is_empty() {
        return Err(Failure::not_found(format!("{hash} is not banned"))
            .hint("see what is: leasehold pastes bans"));
    }
    let answer = serde_json::json!({ "content_hash": hash, "banned": false });
    common.out().one("ban", &answer, |_| format!("{hash} is allowed again"))
}

#[derive(Serialize)]
struct Ban {
    content_hash: String,
    reason: String,
    banned_at: Timestamp,
}

async fn bans(db: &Db, common: &Common, limit: i64) -> Result<(), Failure> {
    let sql = "select content_hash::text, reason, banned_at from pastes.banned \
               order by banned_at desc limit $1";
    let rows = db.query(sql, &[(&limit, Type::INT8)]).await?;
    let bans: Vec<Ban> = rows
        .iter()
        .map(|row| Ban { content_hash: row.get(0), reason: row.get(1), banned_at: row.get(2) })
        .collect();
    let now = db.now().await?;
    let out = common.out();
    out.list("bans", &bans, |bans| {
        let mut columns = Columns::new(&["CONTENT HASH", "BANNED", "REASON"]);
        for ban in bans {
            columns.row([
                ban.content_hash.clone(),
                relative(ban.banned_at, now),
                one_line(&ban.reason, 60),
            ]);
        }
        columns
    })?;
    if out.is_table() && bans.is_empty() {
        out.note("nothing is banned");
    }
    Ok(())
}
