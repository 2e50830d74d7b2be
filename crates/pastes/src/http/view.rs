//! Converts results of the service into what the pages show.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use leasehold_http::problems::ProblemDetails;
use uuid::Uuid;

use crate::code::ShortCode;
use crate::highlight::{self, Colours, Limits};
use crate::model::{Listed, Paste, Status};
use crate::pages::{
    self, BurnConfirm, Burnt, CreateForm, ErrorView, FormError, JustCreated, Links, Mine,
    MinePaste, PasteState, PasteView, Typed, Waiting, expiry_choices, expiry_value,
};
use crate::settings::Settings;

static NOT_FOUND: LazyLock<Bytes> = LazyLock::new(|| pages::not_found().into_string().into());

/// Returns the page of a problem.
pub fn problem(problem: &ProblemDetails) -> Bytes {
    if problem.status.as_u16() == 404 {
        return NOT_FOUND.clone();
    }
    let title = match problem.status.as_u16() {
        413 => "Too large",
        429 => "Too many requests",
        403 | 401 => "Not allowed",
        408 => "Too slow",
        409 => "That is not possible",
        410 => "Gone",
        500 => "Something went wrong",
        507 => "Full",
        503 => "Not available right now",
        _ => "That cannot be done",
    };
    let mut view = ErrorView::new(problem.status.as_u16(), title, &problem.detail);
    view.retry_after = problem.retry_after;
    pages::error(&view).into_string().into()
}

/// What a page has around the text of a paste.
const AROUND: usize = 32 * 1024;
/// The most bytes of HTML per byte of text: the element of an empty line.
const LONGEST_BYTE: usize = 80;

/// Returns an upper bound for the page of a paste with this many bytes.
pub fn largest_page(size: usize) -> usize {
    size.saturating_mul(LONGEST_BYTE).min(Limits::default().shown_html) + AROUND
}

/// Returns the page of a paste.
pub fn paste(base_url: &str, paste: &Paste, colours: Colours) -> String {
    let view = PasteView {
        code: paste.code.to_string(),
        paste_id: paste.paste_id.simple().to_string(),
        content: highlight::render(&paste.content, paste.language.as_deref(), colours),
        size: paste.content.len() as u64,
        created_at: paste.created_at,
        expires_at: paste.expires_at,
        life: paste.life,
        links: Links::of(base_url, paste.code.as_str()),
    };
    pages::paste(&view).into_string()
}

/// Returns the page of a paste for its author, right after it was created.
pub fn just_made(base_url: &str, paste: &Paste, page: &Bytes, delete_token: String) -> String {
    let links = Links::of(base_url, paste.code.as_str());
    let page = std::str::from_utf8(page).unwrap_or_default();
    pages::with_created(page, &links, &JustCreated { delete_token })
}

/// Returns the page that asks before a paste is burnt.
pub fn burn_confirm(
    base_url: &str,
    code: &ShortCode,
    paste: Uuid,
    language: Option<String>,
    size: usize,
    expires_at: Timestamp,
    delete_token: Option<String>,
) -> String {
    let confirm = BurnConfirm {
        code: code.to_string(),
        paste_id: paste.simple().to_string(),
        size: size as u64,
        language,
        expires_at,
        life: until(expires_at),
        links: Links::of(base_url, code.as_str()),
        created: delete_token.map(|delete_token| JustCreated { delete_token }),
    };
    pages::burn_confirm(&confirm).into_string()
}

/// Returns the page of a paste that was just burnt, or `None` if it is not text or too large for one.
pub fn burnt(paste: &Paste, colours: Colours) -> Option<String> {
    let text = highlight::text(&paste.content)?;
    let burnt = Burnt {
        code: paste.code.to_string(),
        content: highlight::highlight_whole(text, paste.language.as_deref(), colours)?,
        size: paste.content.len() as u64,
    };
    Some(pages::burnt(&burnt).into_string())
}

/// Returns the page of a paste whose upload is in progress.
pub fn waiting(base_url: &str, code: &ShortCode, delete_token: Option<String>) -> String {
    let waiting = Waiting {
        code: code.to_string(),
        refresh: Duration::from_secs(3),
        links: Links::of(base_url, code.as_str()),
        created: delete_token.map(|delete_token| JustCreated { delete_token }),
    };
    pages::waiting(&waiting).into_string()
}

/// Returns the page with the form that creates pastes; after an error, as the user filled it in.
pub fn create(settings: &Settings, typed: Option<Typed>, error: Option<FormError>) -> String {
    let default = expiry_value(settings.default_expiry);
    let form = CreateForm {
        base_url: settings.base_url.trim_end_matches('/').to_owned(),
        expiries: expiry_choices(settings.default_expiry, settings.max_expiry),
        max_size: settings.max_size as u64,
        private: settings.create_token.is_some(),
        typed: typed.unwrap_or_else(|| Typed { expires: default, ..Typed::default() }),
        error,
    };
    pages::create(&form).into_string()
}

/// Returns the page of an owner's pastes.
pub fn mine(base_url: &str, listed: &[Listed], next: Option<String>) -> String {
    let pastes = listed
        .iter()
        .map(|paste| MinePaste {
            code: paste.code.to_string(),
            paste_id: paste.paste_id.simple().to_string(),
            language: paste.language.clone(),
            size: Some(paste.size as u64),
            created_at: paste.created_at,
            expires_at: paste.expires_at,
            life: until(paste.expires_at),
            state: match paste.status {
                Status::Processed => PasteState::Ready,
                Status::InProgress => PasteState::Uploading,
                Status::Failed => PasteState::Failed,
            },
            burn: paste.burn,
            links: Links::of(base_url, paste.code.as_str()),
        })
        .collect();
    pages::mine(&Mine { pastes, next }).into_string()
}

/// Returns the time until a moment. Only for texts on a page: the database's clock decides what may be
/// read.
fn until(moment: Timestamp) -> Duration {
    moment.duration_since(Timestamp::now()).try_into().unwrap_or(Duration::ZERO)
}
