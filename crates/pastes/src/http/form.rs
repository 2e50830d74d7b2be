//! Forms: what browsers and `curl -F` send.
//!
//! # What can go wrong
//! - A browser sends CR LF for every line end of a text box, also for a pasted LF; we convert them back.
//! - A browser sends an empty file if the user chose none; we ignore it.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;

use super::options::{Options, shorten};
use super::problems::PasteProblem;
use super::web::Web;
use crate::pages::unix_lines;
use leasehold_http::body::ReceivedBody;
use uuid::Uuid;

/// The most bytes that the fields beside the content may have.
pub const OVERHEAD: usize = 64 * 1024;
const MOST_FIELDS: usize = 32;

/// A form that creates a paste.
#[derive(Default)]
pub struct Filled {
    pub content: Bytes,
    pub file_name: Option<String>,
    pub options: Options,
    pub remember: bool,
    pub key: Option<String>,
    /// The token of a private service.
    pub create_token: Option<String>,
    /// A user sent it, from our page.
    pub page: bool,
}

impl Filled {
    fn text(&mut self, name: &str, value: &str) -> Result<(), PasteProblem> {
        match name {
            "remember" => self.remember = !matches!(value, "" | "0" | "false"),
            "key" => self.key = Some(value.to_owned()).filter(|key| !key.is_empty()),
            "create_token" => self.create_token = Some(value.to_owned()),
            "page" => self.page = true,
            name if self.options.set(name, value)? => {}
            name => {
                return Err(PasteProblem::malformed(format!(
                    "There is no field {:?}. The fields are content or file, expires, lang, burn and alias.",
                    shorten(name)
                )));
            }
        }
        Ok(())
    }

    fn content(&mut self, bytes: Bytes) -> Result<(), PasteProblem> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.content.is_empty() {
            return Err(PasteProblem::malformed("Send one text or one file at a time."));
        }
        self.content = bytes;
        Ok(())
    }

    /// Converts the CR LF of a browser's text box back to LF.
    fn with_unix_lines(mut self) -> Self {
        if self.page
            && self.file_name.is_none()
            && let Ok(text) = std::str::from_utf8(&self.content)
            && let std::borrow::Cow::Owned(text) = unix_lines(text)
        {
            self.content = text.into();
        }
        self
    }
}

/// Parses `multipart/form-data` that was received completely.
pub async fn multipart(
    headers: &HeaderMap,
    body: &ReceivedBody,
    options: Options,
) -> Result<Filled, PasteProblem> {
    let mut request = Request::new(Body::from(body.bytes.clone()));
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        request.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    // The body was already limited by the service's own setting; disable axum's limit.
    DefaultBodyLimit::disable().apply(&mut request);
    let bad =
        || PasteProblem::malformed("The form cannot be read; send it with: curl -F file=@name");
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| bad())?;
    let mut filled = Filled { options, ..Filled::default() };
    let mut count = 0;
    while let Some(field) = form.next_field().await.map_err(|_| bad())? {
        count += 1;
        if count > MOST_FIELDS {
            return Err(PasteProblem::malformed("The form has too many fields."));
        }
        let name = field.name().unwrap_or_default().to_owned();
        let file_name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
        let bytes = field.bytes().await.map_err(|_| bad())?;
        let is_content = file_name.is_some() || matches!(name.as_str(), "content" | "file" | "");
        if is_content {
            if !bytes.is_empty() {
                filled.file_name = file_name;
            }
            filled.content(bytes)?;
        } else {
            let value = std::str::from_utf8(&bytes).map_err(|_| {
                PasteProblem::malformed(format!("The field {:?} is not text.", shorten(&name)))
            })?;
            filled.text(&name, value)?;
        }
    }
    Ok(filled.with_unix_lines())
}

/// Parses `application/x-www-form-urlencoded` from a browser.
pub fn urlencoded(body: &ReceivedBody, options: Options) -> Result<Filled, PasteProblem> {
    let mut filled = Filled { options, page: true, ..Filled::default() };
    for (name, value) in url::form_urlencoded::parse(&body.bytes).take(MOST_FIELDS) {
        match &*name {
            "content" => filled.content(value.into_owned().into())?,
            name => filled.text(name, &value)?,
        }
    }
    Ok(filled.with_unix_lines())
}

/// Returns the fields of one of our small forms. An empty body has no fields.
pub async fn fields(
    web: &Web,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Vec<(String, String)>, PasteProblem> {
    let received = web.budget.read(headers, body, limit).await?;
    Ok(url::form_urlencoded::parse(&received.bytes)
        .take(MOST_FIELDS)
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect())
}

/// Returns the paste that the page with the form showed.
pub fn seen(fields: &[(String, String)]) -> Result<Option<Uuid>, PasteProblem> {
    let paste = value(fields, "paste").map(Uuid::try_parse).transpose();
    paste.map_err(|_| PasteProblem::NOT_FOUND)
}

pub fn value<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}
