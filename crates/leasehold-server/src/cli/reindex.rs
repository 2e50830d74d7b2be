//! `leasehold reindex`: compares notes with the search index again, at a lower priority than live saves.

use std::process::ExitCode;
use std::time::Duration;

use annotations::{AnnotationId, Annotations, Progress, What};
use clap::ArgGroup;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::annotations::service;
use super::common::Common;
use crate::exit::Failure;
use crate::output::progress;

/// The polling interval of --watch.
const LOOK: Duration = Duration::from_secs(1);

const KINDS: [&str; 7] = ["user", "group", "document", "since", "until", "ids", "all"];

#[derive(clap::Args, Debug)]
#[command(after_help = HELP, group = ArgGroup::new("what").required(true).multiple(true)
    .args(["user", "group", "document", "since", "until", "ids", "all", "status", "cancel"]))]
pub struct Args {
    /// Compare all notes of this user
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "document", "since", "until", "ids", "all"])]
    user: Option<String>,
    /// Compare all notes of this group; __world__ is public
    #[arg(long, value_name = "ID", conflicts_with_all = ["document", "since", "until", "ids", "all"])]
    group: Option<String>,
    /// Compare all notes on this page
    #[arg(long, value_name = "URL", conflicts_with_all = ["since", "until", "ids", "all"])]
    document: Option<String>,
    /// Compare notes that changed from this time on, such as 2026-01-30T12:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with_all = ["ids", "all"])]
    since: Option<Timestamp>,
    /// Compare notes that changed before this time
    #[arg(long, value_name = "TIME", conflicts_with_all = ["ids", "all"])]
    until: Option<Timestamp>,
    /// Compare these notes, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "all")]
    ids: Vec<String>,
    /// Compare all notes
    #[arg(long)]
    all: bool,
    /// Show the progress of a re-index, or of the work after a rename
    #[arg(long, value_name = "NUMBER", conflicts_with_all = KINDS, conflicts_with_all = ["cancel", "dry_run", "priority", "force"])]
    status: Option<i64>,
    /// Stop a re-index and drop its waiting jobs
    #[arg(long, value_name = "NUMBER", conflicts_with_all = KINDS, conflicts_with_all = ["dry_run", "priority", "force", "watch"])]
    cancel: Option<i64>,
    /// Count the notes, and enqueue nothing
    #[arg(long)]
    dry_run: bool,
    /// Set the priority, 2 to 999999; lower numbers run first, and live saves have 1. Default: 100 for a
    /// user, group or page, 1000 for more
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(2..=999_999))]
    priority: Option<i32>,
    /// Write all of the notes, even if they do not differ
    #[arg(long)]
    force: bool,
    /// Wait for the end, with a progress bar on a terminal
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

const HELP: &str = "\
Examples:
  leasehold reindex --user sophiathefirst --watch
  leasehold reindex --since 2026-01-30T12:00:00Z --until 2026-01-30T14:00:00Z --dry-run
  leasehold reindex --all --priority 1000
  leasehold reindex --status 7 --watch

A worker of the annotation service does the work; saves and searches continue meanwhile.";

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
        follow(&notes, id, args.watch, common).await?;
    } else if let Some(id) = args.cancel {
        let removed = notes.cancel_bulk(id).await?;
        let progress = notes.progress(id).await?;
        out.one("reindex", &answer(&progress), |_| match progress.cancelled {
            true => format!("re-index {id} is cancelled; {removed} jobs were removed"),
            false => format!("nothing was left to cancel: {}", words(&progress)),
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
        let counted = json!({ "tag": what.tag(), "total": rows, "dry_run": true });
        return out.one("reindex", &counted, |_| {
            format!("{} would be compared; nothing was enqueued", notes_of(rows))
        });
    }
    let id = notes.reindex(&what, args.priority, args.force).await?;
    follow(notes, id, args.watch, common).await
}

/// Prints the progress; with `watch`, waits until the work is over.
async fn follow(notes: &Annotations, id: i64, watch: bool, common: &Common) -> Result<(), Failure> {
    let mut now = notes.progress(id).await?;
    let bar = progress("comparing", 0);
    while watch && !now.is_over() {
        if let Some(total) = now.total {
            bar.set_length(count(total.max(now.rows)));
        }
        bar.set_position(count(now.done()));
        tokio::time::sleep(LOOK).await;
        now = notes.progress(id).await?;
    }
    bar.finish_and_clear();
    common.out().one("reindex", &answer(&now), |_| words(&now))
}

/// Returns `1 note`, `2 notes`.
fn notes_of(number: i64) -> String {
    crate::text::count(usize::try_from(number).unwrap_or_default(), "note")
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn answer(progress: &Progress) -> Value {
    let Progress { id, tag, total, rows, waiting, finished, cancelled } = progress;
    json!({ "id": id.to_string(), "tag": tag, "total": total, "rows": rows, "waiting": waiting, "finished": finished, "cancelled": cancelled })
}

fn words(progress: &Progress) -> String {
    let Progress { id, tag, total, rows, waiting, cancelled, .. } = progress;
    let what = match tag.as_str() {
        "rename_user" => "rename",
        "delete_user" => "deletion",
        "move_group" => "move",
        _ => "re-index",
    };
    let of = total.map_or(String::new(), |total| format!(" of {}", total.max(*rows)));
    // Those whose jobs are not enqueued yet wait, too.
    let waiting = waiting + total.map_or(0, |total| (total - rows).max(0));
    match (cancelled, progress.is_over()) {
        (true, _) => format!("{what} {id} was cancelled after {}", notes_of(*rows)),
        (_, true) => {
            format!("{what} {id} is completed: {} compared with the index", notes_of(*rows))
        }
        (_, false) => {
            format!("{what} {id}: {}{of} notes completed, {waiting} waiting", progress.done())
        }
    }
}
