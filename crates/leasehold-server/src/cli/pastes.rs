//! `leasehold pastes`: the operator's commands of a paste service, directly on the database.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::db::Db;
use super::prompt::ask_why;
use crate::exit::{Code, Failure};
use crate::output::Columns;
use crate::text::{one_line, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List the reports of readers, newest first
    Reports(Page),
    /// Take a paste down now
    #[command(
        after_help = "Examples:\n  leasehold pastes takedown aB3xYz --ban --why 'court order 12/34'\n  leasehold pastes takedown --report 17 --why phishing"
    )]
    Takedown(Takedown),
    /// Refuse content from now on; pastes that have it stay
    Ban {
        /// SHA-256 of the content, as sha256sum prints it
        hash: String,
        /// Record this reason in the log
        #[arg(long)]
        why: Option<String>,
    },
    /// Allow content again
    Unban {
        /// SHA-256 of the content
        hash: String,
        /// Record this reason in the log
        #[arg(long)]
        why: Option<String>,
    },
    /// List banned content, newest first
    Bans(Page),
    /// List takedowns and bans, newest first, with actor and reason
    Log(Page),
}

#[derive(Args, Debug)]
pub struct Page {
    /// List at most this many entries
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1000))]
    limit: i64,
    /// Continue with entries older than this id
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
}

#[derive(Args, Debug)]
pub struct Takedown {
    /// Code of the paste
    #[arg(required_unless_present = "report")]
    code: Option<String>,
    /// Take down the paste of this report, and none that got its name later
    #[arg(long, value_name = "ID", conflicts_with_all = ["code", "hash"])]
    report: Option<i64>,
    /// Take the paste down only if it has this SHA-256: another paste may use its name again
    #[arg(long, value_name = "SHA-256")]
    hash: Option<String>,
    /// Take down every paste of the same bytes, and refuse them from now on
    #[arg(long)]
    ban: bool,
    /// Record this reason in the log
    #[arg(long)]
    why: Option<String>,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let status = pastes::SCHEMA.status(db.client()).await?;
    if status.problem().is_some() {
        return Err(pastes::StartError::NotMigrated.into());
    }
    match command {
        Command::Reports(page) => reports(&db, common, &page).await?,
        Command::Takedown(order) => takedown(&db, common, order).await?,
        Command::Ban { hash, why } => ban(&db, common, &hash, why).await?,
        Command::Unban { hash, why } => unban(&db, common, &hash, why).await?,
        Command::Bans(page) => bans(&db, common, &page).await?,
        Command::Log(page) => log(&db, common, &page).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads one page of a list.
async fn read<T>(
    db: &Db,
    sql: &str,
    page: &Page,
    entry: impl Fn(&tokio_postgres::Row) -> T,
) -> Result<Vec<T>, Failure> {
    let params = [(&page.before as _, Type::INT8), (&page.limit as _, Type::INT8)];
    Ok(db.query(sql, &params).await?.iter().map(entry).collect())
}

/// Prints how to get the next page, or that the list is empty.
fn end_of_table(common: &Common, page: &Page, ids: &[i64], nothing: &str) {
    let out = common.out();
    match ids.last() {
        _ if !out.is_table() => {}
        Some(last) if ids.len() as i64 == page.limit => {
            out.note(format!("more may follow: --before {last}"));
        }
        None if page.before.is_none() => out.note(nothing),
        _ => {}
    }
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

async fn reports(db: &Db, common: &Common, page: &Page) -> Result<(), Failure> {
    let reports = read(db, pastes::sql::REPORTS, page, |row| Report {
        id: row.get(0),
        code: row.get(1),
        content_hash: row.get(2),
        reason: row.get(3),
        contact: row.get(4),
        reported_at: row.get(5),
        alive: row.get(6),
    })
    .await?;
    let now = db.now().await?;
    common.out().list("reports", &reports, |reports| {
        let mut columns = Columns::new(&["ID", "CODE", "REPORTED", "LIVE", "REASON", "CONTACT"]);
        for report in reports {
            columns.row([
                report.id.to_string(),
                report.code.clone(),
                relative(report.reported_at, now),
                if report.alive { "yes" } else { "no" }.to_owned(),
                one_line(&report.reason, 60),
                one_line(report.contact.as_deref().unwrap_or_default(), 40),
            ]);
        }
        columns
    })?;
    let ids: Vec<i64> = reports.iter().map(|report| report.id).collect();
    end_of_table(common, page, &ids, "there are no reports");
    Ok(())
}

async fn takedown(db: &Db, common: &Common, order: Takedown) -> Result<(), Failure> {
    if let Some(code) = &order.code
        && code.parse::<pastes::ShortCode>().is_err()
    {
        return Err(Failure::usage(format!("{code:?} is not the code of a paste")));
    }
    let hash = order.hash.as_deref().map(checked).transpose()?;
    let why = ask_why(order.why, "--why TEXT")?;
    let sql = "select * from pastes.take_down($1, $2, $3, $4, $5, $6)";
    let params = [
        (&order.report as _, Type::INT8),
        (&order.code as _, Type::TEXT),
        (&hash as _, Type::TEXT),
        (&order.ban as _, Type::BOOL),
        (&actor() as _, Type::TEXT),
        (&why as _, Type::TEXT),
    ];
    let row = db.one(sql, &params).await.map_err(|failure| match failure.code {
        Code::Conflict => failure.hint(
            "name the paste: --report ID, or CODE --hash SHA-256; list reports: leasehold pastes reports --json",
        ),
        _ => failure,
    })?;
    let (code, hash, ended): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
    let banned = order.ban;
    let answer = serde_json::json!({ "code": code, "content_hash": hash, "pastes": ended, "banned": banned });
    let count = crate::text::count(usize::try_from(ended).unwrap_or(0), "paste");
    common.out().one("takedown", &answer, |_| match banned {
        true => format!("{count} taken down; the content is banned"),
        false => format!("{count} taken down; caches follow within a second"),
    })
}

fn checked(hash: &str) -> Result<String, Failure> {
    let fits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match fits {
        true => Ok(hash.to_ascii_lowercase()),
        false => Err(Failure::usage("the hash is not 64 hexadecimal digits")
            .hint("compute it: sha256sum FILE; or list it: leasehold pastes reports --json")),
    }
}

async fn ban(db: &Db, common: &Common, hash: &str, why: Option<String>) -> Result<(), Failure> {
    let hash = checked(hash)?;
    let why = ask_why(why, "--why TEXT")?;
    let params = [(&hash as _, Type::TEXT), (&actor() as _, Type::TEXT), (&why as _, Type::TEXT)];
    db.query("select pastes.ban($1, $2, $3)", &params).await?;
    let answer = serde_json::json!({ "content_hash": hash, "banned": true });
    common.out().one("ban", &answer, |_| format!("{hash} is banned"))
}

async fn unban(db: &Db, common: &Common, hash: &str, why: Option<String>) -> Result<(), Failure> {
    let hash = checked(hash)?;
    let why = ask_why(why, "--why TEXT")?;
    let params = [(&hash as _, Type::TEXT), (&actor() as _, Type::TEXT), (&why as _, Type::TEXT)];
    let was_banned: bool = db.one("select pastes.unban($1, $2, $3)", &params).await?.get(0);
    if !was_banned {
        return Err(Failure::not_found(format!("{hash} is not banned"))
            .hint("list bans: leasehold pastes bans"));
    }
    let answer = serde_json::json!({ "content_hash": hash, "banned": false });
    common.out().one("ban", &answer, |_| format!("{hash} is allowed again"))
}

#[derive(Serialize)]
struct Ban {
    #[serde(serialize_with = "super::record::as_text")]
    id: i64,
    content_hash: String,
    reason: String,
    banned_at: Timestamp,
}

async fn bans(db: &Db, common: &Common, page: &Page) -> Result<(), Failure> {
    let bans = read(db, pastes::sql::BANS, page, |row| Ban {
        id: row.get(0),
        content_hash: row.get(1),
        reason: row.get(2),
        banned_at: row.get(3),
    })
    .await?;
    let now = db.now().await?;
    common.out().list("bans", &bans, |bans| {
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
    let ids: Vec<i64> = bans.iter().map(|ban| ban.id).collect();
    end_of_table(common, page, &ids, "nothing is banned");
    Ok(())
}

#[derive(Serialize)]
struct Act {
    #[serde(serialize_with = "super::record::as_text")]
    id: i64,
    action: String,
    code: Option<String>,
    content_hash: String,
    report: Option<i64>,
    pastes: i64,
    banned: bool,
    who: String,
    why: Option<String>,
    acted_at: Timestamp,
}

async fn log(db: &Db, common: &Common, page: &Page) -> Result<(), Failure> {
    let acts = read(db, pastes::sql::MODERATION, page, |row| Act {
        id: row.get(0),
        action: row.get(1),
        code: row.get(2),
        content_hash: row.get(3),
        report: row.get(4),
        pastes: row.get(5),
        banned: row.get(6),
        who: row.get(7),
        why: row.get(8),
        acted_at: row.get(9),
    })
    .await?;
    let now = db.now().await?;
    common.out().list("acts", &acts, |acts| {
        let mut columns = Columns::new(&["TIME", "ACTION", "CODE", "PASTES", "ACTOR", "REASON"]);
        for act in acts {
            columns.row([
                relative(act.acted_at, now),
                act.action.clone(),
                act.code.clone().unwrap_or_default(),
                act.pastes.to_string(),
                one_line(&act.who, 40),
                one_line(act.why.as_deref().unwrap_or_default(), 60),
            ]);
        }
        columns
    })?;
    let ids: Vec<i64> = acts.iter().map(|act| act.id).collect();
    end_of_table(common, page, &ids, "no operator has acted yet");
    Ok(())
}
