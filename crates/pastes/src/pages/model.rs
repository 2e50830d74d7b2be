//! What the pages show: plain types, filled by the request handlers.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::duration;

use crate::highlight::{Content, Highlighted};

/// The page with the form that creates pastes.
#[derive(Debug, Clone)]
pub struct CreateForm {
    /// Shown in the example for the command line, without a slash at the end.
    pub base_url: String,
    /// In the order of the menu; see [`expiry_choices`].
    pub expiries: Vec<Choice>,
    /// The most bytes that a paste may have.
    pub max_size: u64,
    /// Saving needs a token.
    pub private: bool,
    /// The values of the fields: the defaults, or the user's input after an error.
    pub typed: Typed,
    /// Why the form is shown again.
    pub error: Option<FormError>,
}

/// One line of a menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The value that the form sends: `1d`.
    pub value: String,
    /// The text that users see: `1 day`.
    pub label: String,
}

/// The fields of the form.
#[derive(Debug, Clone, Default)]
pub struct Typed {
    pub content: String,
    /// Id or alias; empty: detect.
    pub language: String,
    /// The value of a [`Choice`].
    pub expires: String,
    pub alias: String,
    pub burn: bool,
    /// List it on [`Mine`]: the browser then gets a cookie with its owner's token.
    pub remember: bool,
}

/// What is wrong, and in which field.
#[derive(Debug, Clone)]
pub struct FormError {
    pub field: Option<Field>,
    /// What to do next, in a sentence.
    pub message: String,
}

/// A field of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Content,
    Language,
    Expires,
    Alias,
    /// The token of a private service.
    Token,
}

/// A paste's addresses: absolute or relative, but always on our own host.
#[derive(Debug, Clone)]
pub struct Links {
    /// The link that users share: absolute.
    pub page: String,
    pub raw: String,
    pub download: String,
    pub qr: String,
    /// Where the report form is posted.
    pub report: String,
    /// Where the delete form is posted.
    pub delete: String,
    /// Where the burn form is posted.
    pub burn: String,
}

impl Links {
    /// Returns the addresses of `code` below `base_url`.
    pub fn of(base_url: &str, code: &str) -> Self {
        let base = base_url.trim_end_matches('/');
        Self {
            page: format!("{base}/{code}"),
            raw: format!("/raw/{code}"),
            download: format!("/download/{code}"),
            qr: format!("/qr/{code}"),
            report: format!("/{code}/report"),
            delete: format!("/{code}/delete"),
            burn: format!("/{code}/burn"),
        }
    }
}

/// Shown only to the author, right after the paste was created.
#[derive(Debug, Clone)]
pub struct JustCreated {
    /// Lets its holder delete the paste.
    pub delete_token: String,
}

/// A paste that can be read.
#[derive(Debug, Clone)]
pub struct PasteView {
    pub code: String,
    /// The paste's identity: the name may be used again.
    pub paste_id: String,
    pub content: Content,
    pub size: u64,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The time until it expires, by the database's clock.
    pub life: Duration,
    pub links: Links,
}

/// A paste that can be read once: the page asks first.
#[derive(Debug, Clone)]
pub struct BurnConfirm {
    pub code: String,
    /// The paste's identity.
    pub paste_id: String,
    pub size: u64,
    /// Id of the language, if one was chosen.
    pub language: Option<String>,
    pub expires_at: Timestamp,
    pub life: Duration,
    pub links: Links,
    pub created: Option<JustCreated>,
}

/// The content of a paste that was just burnt. Only text: send other bytes as a download.
#[derive(Debug, Clone)]
pub struct Burnt {
    pub code: String,
    /// Made by [`crate::highlight::highlight_whole`], because the reader cannot fetch the rest later.
    pub content: Highlighted,
    pub size: u64,
}

/// A paste whose upload is in progress.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub code: String,
    /// After how long the page reloads without scripts. A few seconds; never 0.
    pub refresh: Duration,
    pub links: Links,
    pub created: Option<JustCreated>,
}

/// The pastes of one owner.
#[derive(Debug, Clone)]
pub struct Mine {
    pub pastes: Vec<MinePaste>,
    /// The address of the next page of the list.
    pub next: Option<String>,
}

/// A line of [`Mine`].
#[derive(Debug, Clone)]
pub struct MinePaste {
    pub code: String,
    pub paste_id: String,
    pub language: Option<String>,
    pub size: Option<u64>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub life: Duration,
    pub state: PasteState,
    pub burn: bool,
    pub links: Links,
}

/// The state of a paste's upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasteState {
    Ready,
    Uploading,
    /// Its bytes could not be stored; readers get "not found".
    Failed,
}

/// An error page.
#[derive(Debug, Clone)]
pub struct ErrorView {
    pub status: u16,
    /// A few words: "Too large".
    pub title: String,
    /// What happened, and what to do next.
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl ErrorView {
    pub fn new(status: u16, title: &str, message: &str) -> Self {
        Self { status, title: title.into(), message: message.into(), retry_after: None }
    }
}

/// A request was carried out, and there is nothing else to show.
#[derive(Debug, Clone)]
pub struct Done {
    pub title: String,
    pub message: String,
}

impl Done {
    pub fn deleted() -> Self {
        Self { title: "Deleted".into(), message: "This paste can no longer be read.".into() }
    }

    pub fn reported() -> Self {
        Self {
            title: "Report sent".into(),
            message: "The operators of this service have your report.".into(),
        }
    }
}

/// Returns the usual lifetimes up to `max`, with `default` and `max` among them.
pub fn expiry_choices(default: Duration, max: Duration) -> Vec<Choice> {
    const MINUTE: u64 = 60;
    const DAY: u64 = 24 * 60 * MINUTE;
    let usual = [10 * MINUTE, 60 * MINUTE, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];
    let mut seconds: Vec<u64> = usual.into_iter().filter(|s| *s <= max.as_secs()).collect();
    seconds.extend([default.as_secs().min(max.as_secs()), max.as_secs()]);
    seconds.sort_unstable();
    seconds.dedup();
    seconds.into_iter().map(choice).collect()
}

/// Returns the [`Choice::value`] of a lifetime: `1m 30s`, `10m`, `1h`, `30d`.
pub fn expiry_value(life: Duration) -> String {
    duration::compact(life)
}

fn choice(seconds: u64) -> Choice {
    let life = Duration::from_secs(seconds);
    Choice { value: expiry_value(life), label: duration::verbose(life) }
}
