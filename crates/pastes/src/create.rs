//! Making a paste: checked, committed with its bytes and its upload job, then uploaded.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use leasehold::error::CallError;
use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;

use crate::code::{Alias, OwnerToken, ShortCode};
use crate::database::refusal;
use crate::error::{CreateError, Unavailable};
use crate::model::{Created, NewPaste, Status};
use crate::service::{Inner, Pastes};
use crate::settings::LEAST_EXPIRY;
use crate::store::{ObjectKey, hash_of};
use crate::upload::{ATTEMPTS, Task};
use crate::writer::{Made, Plain};

const CREATE: &str = "select * from pastes.create_paste(\
    $1, $2, $3, $4, $5, make_interval(secs => $6), $7, $8, $9, $10, make_interval(secs => $11), $12)";
/// Two random codes are the same once in the life of the universe, unless an operator made them
/// short.
const TRIES: usize = 8;

/// A paste that was checked: what is left to go wrong is up to the database.
struct Draft {
    new: NewPaste,
    alias: Option<ShortCode>,
    hash: String,
    life: Duration,
    request: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pastes {
    /// Makes a paste. When this answers, the paste and its bytes are committed.
    pub async fn create(&self, new: NewPaste) -> Result<Created, CreateError> {
        let draft = self.check(new)?;
        if let Some(created) = self.store_with_others(&draft).await? {
            return Ok(created);
        }
        for _ in 1..TRIES {
            match self.store_draft(&draft).await {
                Err(CallError::Database(error)) if is_taken(&error) => {}
                Err(error) => return Err(refused(error, &draft)),
                Ok(created) => return Ok(created),
            }
        }
        Err(CreateError::Unavailable(Unavailable::Answer("no free code was found")))
    }

    fn check(&self, new: NewPaste) -> Result<Draft, CreateError> {
        let settings = self.settings();
        if new.content.is_empty() {
            return Err(CreateError::Empty);
        }
        if new.content.len() > settings.max_size {
            let (size, limit) = (new.content.len(), settings.max_size);
            return Err(CreateError::TooLarge { size, limit });
        }
        let life = new.expires_in.unwrap_or(settings.default_expiry);
        if life < LEAST_EXPIRY || life > settings.max_expiry {
            return Err(CreateError::BadExpiry { least: LEAST_EXPIRY, most: settings.max_expiry });
        }
        if new.language.as_deref().is_some_and(|language| !is_language(language)) {
            return Err(CreateError::BadLanguage);
        }
        let alias = match new.alias.as_deref() {
            None => None,
            Some(text) => Some(Alias::parse(text).ok_or(CreateError::BadAlias)?.into_code()),
        };
        if self.0.staged.load(Ordering::Relaxed) > settings.staging_quota {
            return Err(CreateError::StagingFull { retry_after: settings.retry_after });
        }
        let hash = hash_of(&new.content);
        let request = match new.idempotency_key.as_deref() {
            None => None,
            Some(key) if !is_request_key(key) => return Err(CreateError::BadKey),
            Some(key) => Some((request_key(key, &new), request_payload(&hash, life, &new))),
        };
        Ok(Draft { new, alias, hash, life, request })
    }

    /// Makes the paste in a statement that it shares with others. `None`: it needs one of its own.
    async fn store_with_others(&self, draft: &Draft) -> Result<Option<Created>, CreateError> {
        if draft.alias.is_some() || draft.new.owner.is_some() || draft.request.is_some() {
            return Ok(None);
        }
        let code = ShortCode::random(self.settings().code_length);
        let plain = Plain {
            code: code.clone(),
            hash: draft.hash.clone(),
            content: draft.new.content.clone(),
            life: draft.life,
            language: draft.new.language.clone(),
            burn: draft.new.burn,
        };
        let answer = self.0.writer.create(plain).await;
        let answer = answer.map_err(|_| Unavailable::Answer("the database did not answer"))?;
        let Some(Made { expires_at, key }) = answer else { return Ok(None) };
        self.upload_soon(key, draft);
        let delete_token = self.delete_token(&code);
        let status = Status::InProgress;
        Ok(Some(Created { code, delete_token, status, expires_at, replayed: false }))
    }

    /// When there is no room the job does it, two seconds later.
    fn upload_soon(&self, key: ObjectKey, draft: &Draft) {
        if let Some(uploader) = &self.0.uploader {
            uploader.offer(Task { key, bytes: draft.new.content.clone() });
        }
    }

    async fn store_draft(&self, draft: &Draft) -> Result<Created, CallError> {
        let code = match &draft.alias {
            Some(alias) => alias.clone(),
            None => ShortCode::random(self.settings().code_length),
        };
        let owner = draft.new.owner.as_ref().map(OwnerToken::hash);
        let content: &[u8] = &draft.new.content;
        let wait = self.settings().head_start().as_secs_f64();
        let (key, payload) = match &draft.request {
            Some((key, payload)) => (Some(key.as_slice()), Some(payload.as_slice())),
            None => (None, None),
        };
        let rows = self
            .0
            .sessions
            .query(
                CREATE,
                &[
                    (&code.as_str(), Type::TEXT),
                    (&draft.alias.is_some(), Type::BOOL),
                    (&owner, Type::BYTEA),
                    (&draft.hash, Type::TEXT),
                    (&content, Type::BYTEA),
                    (&draft.life.as_secs_f64(), Type::FLOAT8),
                    (&draft.new.language, Type::TEXT),
                    (&draft.new.burn, Type::BOOL),
                    (&key, Type::BYTEA),
                    (&payload, Type::BYTEA),
                    (&wait, Type::FLOAT8),
                    (&ATTEMPTS, Type::INT4),
                ],
            )
            .await?;
        let row = rows.first().ok_or(CallError::TimedOut(Duration::ZERO))?;
        let (code, expires_at): (&str, Timestamp) = (row.get(0), row.get(1));
        let (status, replayed): (&str, bool) = (row.get(2), row.get(6));
        let code: ShortCode = code.parse().map_err(|_| CallError::TimedOut(Duration::ZERO))?;
        if !replayed {
            let content_hash = draft.hash.clone();
            let key = ObjectKey { content_hash, content_id: row.get(3), object_id: row.get(4) };
            self.upload_soon(key, draft);
        }
        let delete_token = self.delete_token(&code);
        Ok(Created { code, delete_token, status: Status::of(status), expires_at, replayed })
    }

    /// The token that deletes a paste. It is computed, not stored.
    pub(crate) fn delete_token(&self, code: &ShortCode) -> String {
        use std::fmt::Write;
        let mut mac = match Hmac::<Sha256>::new_from_slice(&self.0.secret) {
            Ok(mac) => mac,
            // HMAC takes keys of every length.
            Err(_) => return String::new(),
        };
        mac.update(b"delete ");
        mac.update(code.as_str().as_bytes());
        let mut token = String::with_capacity(48);
        for byte in mac.finalize().into_bytes().iter().take(24) {
            let _ = write!(token, "{byte:02x}");
        }
        token
    }
}

/// Counts the bytes that wait for their upload, every two seconds, until the service is gone.
pub(crate) async fn watch_staging(service: Weak<Inner>) {
    const COUNT: &str = "select coalesce(sum(size), 0)::bigint from pastes.staged";
    loop {
        let Some(inner) = service.upgrade() else { return };
        // A count that fails leaves the last one standing.
        if let Ok(rows) = inner.sessions.query(COUNT, &[]).await {
            let bytes: i64 = rows.first().map_or(0, |row| row.get(0));
            inner.staged.store(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        }
        drop(inner);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn is_language(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+#._- ".contains(&byte))
}

fn is_request_key(key: &str) -> bool {
    (1..=200).contains(&key.len()) && key.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

/// A key belongs to whoever sent it: strangers who chose the same word do not meet.
fn request_key(key: &str, new: &NewPaste) -> Vec<u8> {
    let who = match (&new.owner, new.client) {
        (Some(owner), _) => format!("owner {:?}", owner.hash()),
        (None, Some(address)) => format!("address {address}"),
        (None, None) => "nobody".to_owned(),
    };
    Sha256::digest(format!("{who}\0{key}")).to_vec()
}

fn request_payload(hash: &str, life: Duration, new: &NewPaste) -> Vec<u8> {
    Sha256::digest(format!("{hash} {life:?} {:?} {:?} {}", new.alias, new.language, new.burn))
        .to_vec()
}

fn is_taken(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION)
}

fn refused(error: CallError, draft: &Draft) -> CreateError {
    match refusal(&error) {
        Some("PB002") => CreateError::KeyReused,
        Some("PB003") => CreateError::UnknownOwner,
        Some("PB004") => CreateError::Banned,
        Some("PB005") => CreateError::AliasTaken(
            draft.alias.as_ref().map_or_else(String::new, ToString::to_string),
        ),
        _ => CreateError::Unavailable(error.into()),
    }
}
