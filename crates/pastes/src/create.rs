//! Creates a paste: checks it, commits it with its bytes and its upload job, and uploads it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::error::CallError;
use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::code::{Alias, OwnerToken, ShortCode};
use crate::database::refusal;
use crate::error::{CreateError, Unavailable};
use crate::highlight;
use crate::model::{Created, NewPaste, Status};
use crate::service::Pastes;
use crate::settings::LEAST_EXPIRY;
use crate::store::{ObjectKey, hash_of};
use crate::upload::Task;
use crate::writer::{CreatedRow, NewRow, SharedCreate};

const CREATE: &str = "select * from pastes.create_paste(\
    $1, $2, $3, $4, $5, $6, make_interval(secs => $7), $8, $9, $10, $11, make_interval(secs => $12))";
/// Two random codes of the default length practically never collide; short ones, set by an operator,
/// can.
const TRIES: usize = 8;

/// A validated paste: only the database can still refuse it.
struct Draft {
    new: NewPaste,
    alias: Option<ShortCode>,
    hash: String,
    life: Duration,
    request: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pastes {
    /// Creates a paste. When this returns, the paste and its bytes are committed.
    pub async fn create(&self, new: NewPaste) -> Result<Created, CreateError> {
        let draft = self.check(new)?;
        if let Some(created) = self.store_with_others(&draft).await? {
            self.note_stored(draft.new.content.len());
            return Ok(created);
        }
        for _ in 1..TRIES {
            match self.store_draft(&draft).await {
                Err(DraftError::Call(CallError::Database(error))) if is_taken(&error) => {}
                Err(DraftError::Call(error)) => return Err(refused(error, &draft)),
                Err(DraftError::Reply(why)) => return Err(Unavailable::Reply(why).into()),
                Ok(created) => {
                    self.note_stored(draft.new.content.len());
                    return Ok(created);
                }
            }
        }
        Err(Unavailable::Reply("no unused code was found; try again").into())
    }

    fn check(&self, mut new: NewPaste) -> Result<Draft, CreateError> {
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
        if let Some(name) = new.language.take() {
            match highlight::find(&name) {
                Some(language) => new.language = Some(language.id.to_owned()),
                None => return Err(CreateError::BadLanguage(name)),
            }
        }
        let alias = match new.alias.as_deref() {
            None => None,
            Some(text) => Some(Alias::parse(text).ok_or(CreateError::BadAlias)?.into_code()),
        };
        if self.0.staged.load(Ordering::Relaxed) > settings.staging_quota {
            return Err(CreateError::StagingFull { retry_after: settings.retry_after });
        }
        self.check_quota(new.content.len())?;
        let hash = hash_of(&new.content);
        let request = match new.idempotency_key.as_deref() {
            None => None,
            Some(key) if !is_request_key(key) => return Err(CreateError::BadKey),
            Some(key) => Some((request_key(key, &new), request_digest(&hash, life, &new))),
        };
        Ok(Draft { new, alias, hash, life, request })
    }

    /// Creates the paste in a statement that it shares with others. Returns `None` if it needs a
    /// statement of its own.
    async fn store_with_others(&self, draft: &Draft) -> Result<Option<Created>, CreateError> {
        if draft.alias.is_some() || draft.new.owner.is_some() || draft.request.is_some() {
            return Ok(None);
        }
        let (code, paste_id) = (ShortCode::random(self.settings().code_length), Uuid::new_v4());
        let row = NewRow {
            code: code.clone(),
            paste_id,
            hash: draft.hash.clone(),
            content: draft.new.content.clone(),
            life: draft.life,
            language: draft.new.language.clone(),
            burn: draft.new.burn,
        };
        let CreatedRow { expires_at, key } = match self.0.writer.create(row).await {
            SharedCreate::Created(created) => created,
            SharedCreate::Alone => return Ok(None),
            SharedCreate::Unknown => {
                return Err(Unavailable::Reply("the database did not respond").into());
            }
        };
        self.upload_soon(key, draft);
        let delete_token = self.0.tokens.token(&code, paste_id);
        let status = Status::InProgress;
        Ok(Some(Created { code, delete_token, status, expires_at, replayed: false }))
    }

    /// Offers the bytes to the direct uploader. If that is full, the job uploads them two seconds
    /// later.
    fn upload_soon(&self, key: ObjectKey, draft: &Draft) {
        if let Some(uploader) = &self.0.uploader {
            uploader.offer(Task { key, bytes: draft.new.content.clone() });
        }
    }

    async fn store_draft(&self, draft: &Draft) -> Result<Created, DraftError> {
        let code = match &draft.alias {
            Some(alias) => alias.clone(),
            None => ShortCode::random(self.settings().code_length),
        };
        let owner = draft.new.owner.as_ref().map(OwnerToken::hash);
        let content: &[u8] = &draft.new.content;
        let wait = self.settings().head_start().as_secs_f64();
        let (key, digest) = match &draft.request {
            Some((key, digest)) => (Some(key.as_slice()), Some(digest.as_slice())),
            None => (None, None),
        };
        let rows = self
            .0
            .sessions
            .query(
                CREATE,
                &[
                    (&code.as_str(), Type::TEXT),
                    (&Uuid::new_v4(), Type::UUID),
                    (&draft.alias.is_some(), Type::BOOL),
                    (&owner, Type::BYTEA),
                    (&draft.hash, Type::TEXT),
                    (&content, Type::BYTEA),
                    (&draft.life.as_secs_f64(), Type::FLOAT8),
                    (&draft.new.language, Type::TEXT),
                    (&draft.new.burn, Type::BOOL),
                    (&key, Type::BYTEA),
                    (&digest, Type::BYTEA),
                    (&wait, Type::FLOAT8),
                ],
            )
            .await?;
        let row = rows.first().ok_or(DraftError::Reply("create_paste returned no row"))?;
        let (code, paste_id): (&str, Uuid) = (row.get(0), row.get(1));
        let (expires_at, status, replayed): (Timestamp, &str, bool) =
            (row.get(2), row.get(3), row.get(6));
        let code: ShortCode = code
            .parse()
            .map_err(|_| DraftError::Reply("create_paste returned a malformed code"))?;
        if !replayed {
            let content_hash = draft.hash.clone();
            let key = ObjectKey { content_hash, content_id: row.get(4), object_id: row.get(5) };
            self.upload_soon(key, draft);
        }
        let delete_token = self.0.tokens.token(&code, paste_id);
        Ok(Created { code, delete_token, status: Status::of(status), expires_at, replayed })
    }
}

/// Why a paste was not stored by itself.
enum DraftError {
    Call(CallError),
    /// The function replied with something that it never returns.
    Reply(&'static str),
}

impl From<CallError> for DraftError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

fn is_request_key(key: &str) -> bool {
    (1..=200).contains(&key.len()) && key.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

/// Scopes a key to the client that sent it: two clients that choose the same key do not collide.
fn request_key(key: &str, new: &NewPaste) -> Vec<u8> {
    let who = match (&new.owner, new.client) {
        (Some(owner), _) => format!("owner {:?}", owner.hash()),
        (None, Some(address)) => format!("address {address}"),
        (None, None) => "unknown client".to_owned(),
    };
    Sha256::digest(format!("{who}\0{key}")).to_vec()
}

fn request_digest(hash: &str, life: Duration, new: &NewPaste) -> Vec<u8> {
    Sha256::digest(format!("{hash} {life:?} {:?} {:?} {}", new.alias, new.language, new.burn))
        .to_vec()
}

fn is_taken(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION)
}

fn refused(error: CallError, draft: &Draft) -> CreateError {
    match refusal(&error) {
        Some("PB002") => CreateError::KeyReused,
        Some("PB006") => CreateError::Gone,
        Some("PB003") => CreateError::UnknownOwner,
        Some("PB004") => CreateError::Banned,
        Some("PB005") => CreateError::AliasTaken(
            draft.alias.as_ref().map_or_else(String::new, ToString::to_string),
        ),
        _ => CreateError::Unavailable(error.into()),
    }
}
