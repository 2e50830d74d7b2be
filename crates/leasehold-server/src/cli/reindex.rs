//! `leasehold reindex`: compares notes with the search index again, behind the live saves.

use std::process::ExitCode;
use std::time::Duration;

use annotations::{AnnotationId, Annotations, Progress, What};
use clap::ArgGroup;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::annotations::service;
use super::common::Common;
use crate::exit::Failure;

/// How often --watch looks.
const LOOK: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
#[command(after_help = HELP, group = ArgGroup::new("what").required(true).multiple(true)
    .args(["user", "group", "document", "since", "until", "ids", "all", "status", "cancel"]))]
pub struct Args {
    /// Everything that somebody wrote
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "document", "since", "until", "ids", "all"])]
    user: Option<String>,
    /// Everything in a group; __world__ is what everybody reads
    #[arg(long, value_name = "ID", conflicts_with_all = ["document", "since", "until", "ids", "all"])]
    group: Option<String>,
    /// Everything on a page
    #[arg(long, value_name = "URL", conflicts_with_all = ["since", "until", "ids", "all"])]
    document: Option<String>,
    /// What changed from this moment on, such as 2026-01-30T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with_all = ["ids", "all"])]
    since: Option<Timestamp>,
    /// What changed before this moment
    #[arg(long, value_name = "TIME", conflicts_with_all = ["ids", "all"])]
    until: Option<Timestamp>,
    /// These notes, with commas between them
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "all")]
    ids: Vec<String>,
    /// Everything
    #[arg(long)]
    all: bool,
    /// How far a re-index has come
    #[arg(long, value_name = "NUMBER", exclusive = true)]
    status: Option<i64>,
    /// Stops a re-index
    #[arg(long, value_name = "NUMBER", exclusive = true)]
    cancel: Option<i64>,
    /// Counts, and asks for nothing
    #[arg(long)]
    dry_run: bool,
    /// Lower goes first; live saves have 1. Default: 100 for a person, group or page, 1000 for more
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(2..=1_000_000))]
    priority: Option<i32>,
    /// Writes what is equal, too
    #[arg(long)]
    force: bool,
    /// Stays until it is done
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

const HELP: &str = "\
Examples:
  leasehold reindex --user sophiathefirst --watch
  leasehold reindex --since 2026-01-30T12:00:00Z --until 2026-01-30T14:00:00Z --dry-run
  leasehold reindex --all --priority 1000

A worker of the annotation service does the work; saves and searches go on meanwhile.";

fn what(args: &Args) -> Result<What, Failure> {
    if let Some(user) = &args.user {
        return Ok(What::User(user.clone()));
    }
    if let Some(group) = &args.group {
        return Ok(What::Group(group.clone()));
    }
    if let Some(url) = &args.document {
        return Ok(What::Document(url.clone()));
    }
    if args.since.is_some() || args.until.is_some() {
        return Ok(What::Time { since: args.since, until: args.until });
    }
    if args.ids.is_empty() {
        return Ok(What::All);
    }
    let id = |text: &String| {
        text.trim()
            .parse::<AnnotationId>()
            .map_err(|error| Failure::usage(format!("{text:?}: {error}")))
    };
    Ok(What::Ids(args.ids.iter().map(id).collect::<Result<_, _>>()?))
}

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    let notes = service(common).await?;
    let out = common.out();
    if let Some(id) = args.status {
        let progress = notes.progress(id).await?;
        out.one("reindex", &answer(&progress), |_| words(&progress))?;
    } else if let Some(id) = args.cancel {
        let removed = notes.cancel_bulk(id).await?;
        let progress = notes.progress(id).await?;
        out.one("reindex", &answer(&progress), |_| {
            format!("re-index {id} is stopped; {removed} jobs were removed")
        })?;
    } else {
        begin(&notes, &args, common).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn begin(notes: &Annotations, args: &Args, common: &Common) -> Result<(), Failure> {
    let out = common.out();
    let what = what(args)?;
    if args.dry_run {
        let rows = notes.count_reindex(&what).await?;
        let counted = json!({ "tag": what.tag(), "rows": rows, "dry_run": true });
        return out.one("reindex", &counted, |_| {
            format!("{rows} notes would be compared; nothing was asked for")
        });
    }
    let id = notes.reindex(&what, args.priority, args.force).await?;
    if args.watch {
        watch(notes, id, common).await?;
    }
    let progress = notes.progress(id).await?;
    out.one("reindex", &answer(&progress), |_| words(&progress))
}

async fn watch(notes: &Annotations, id: i64, common: &Common) -> Result<(), Failure> {
    let mut said = String::new();
    loop {
        let progress = notes.progress(id).await?;
        if progress.cancelled || (progress.finished && progress.waiting == 0) {
            return Ok(());
        }
        let now = words(&progress);
        if now != said {
            common.out().note(&now);
            said = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn answer(progress: &Progress) -> Value {
    let Progress { id, tag, rows, waiting, finished, cancelled } = progress;
    json!({ "id": id.to_string(), "tag": tag, "rows": rows, "waiting": waiting, "finished": finished, "cancelled": cancelled })
}

fn words(progress: &Progress) -> String {
    let Progress { id, rows, waiting, finished, cancelled, .. } = progress;
    match (cancelled, finished, waiting) {
        (true, _, _) => format!("re-index {id} was stopped after {rows} notes"),
        (false, true, 0) => format!("re-index {id} is done: {rows} notes compared"),
        (false, true, waiting) => {
            format!("re-index {id}: {} of {rows} notes compared", rows - waiting)
        }
        (false, false, waiting) => {
            format!("re-index {id}: {rows} notes asked for so far, {waiting} of them wait")
        }
    }
}
