//! Reading: what is alive by the database's clock, byte for byte.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio_postgres::types::Type;

use crate::cache::Known;
use crate::code::ShortCode;
use crate::error::{ReadError, Unavailable};
use crate::lookup::Found;
use crate::model::{Paste, Reading, Status};
use crate::service::Pastes;
use crate::store::StoreError;

impl Pastes {
    /// What a reader finds under a code.
    pub async fn read(&self, code: &ShortCode) -> Result<Reading, ReadError> {
        if let Some(Known { paste, ask_again }) = self.0.cache.answer(code, Instant::now()) {
            if ask_again {
                let (pastes, known) = (self.clone(), Arc::clone(&paste));
                tokio::spawn(async move { pastes.ask_again(&known).await });
            }
            return Ok(Reading::Ready(paste));
        }
        let found = self.look(code).await?;
        if found.burn {
            let Found { language, size, expires_at, .. } = found;
            return Ok(Reading::Burns { language, size, expires_at });
        }
        let Some((found, content)) = self.content(code, found).await? else {
            return Ok(Reading::Uploading { retry_after: self.settings().retry_after });
        };
        let asked = found.asked;
        let paste = Arc::new(paste(code, found, content));
        self.0.cache.keep_answer(&paste, asked, self.settings().recheck);
        Ok(Reading::Ready(paste))
    }

    /// Renews a kept answer, or drops it when the paste is over. No answer from the database: the
    /// kept one ends in its time.
    async fn ask_again(&self, known: &Paste) {
        let Ok(found) = self.0.lookups.look(&known.code).await else { return };
        match found {
            Some(found) if !found.burn && found.key.content_id == known.content_id => {
                let (asked, content) = (found.asked, known.content.clone());
                let paste = Arc::new(paste(&known.code, found, content));
                self.0.cache.keep_answer(&paste, asked, self.settings().recheck);
            }
            _ => self.0.cache.forget(&known.code),
        }
    }

    /// Reads a paste that burns: of two readers one gets it. The bytes are fetched first, so that a
    /// store that is down burns nothing.
    pub async fn burn(&self, code: &ShortCode) -> Result<Arc<Paste>, ReadError> {
        let found = self.look(code).await?;
        if !found.burn {
            return Err(ReadError::NotFound);
        }
        let Some((found, content)) = self.content(code, found).await? else {
            return Err(ReadError::StoreDown { retry_after: self.settings().retry_after });
        };
        let sql = "select pastes.burn($1)";
        let rows = self.0.sessions.query(sql, &[(&code.as_str(), Type::TEXT)]).await;
        let rows = rows.map_err(|error| ReadError::Unavailable(error.into()))?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Err(ReadError::NotFound);
        }
        Ok(Arc::new(paste(code, found, content)))
    }

    async fn look(&self, code: &ShortCode) -> Result<Found, ReadError> {
        self.0.lookups.look(code).await?.ok_or(ReadError::NotFound)
    }

    /// The bytes; `None` while the upload goes on.
    async fn content(
        &self,
        code: &ShortCode,
        mut found: Found,
    ) -> Result<Option<(Found, Bytes)>, ReadError> {
        // An object can be deleted between the question and the fetch: then the paste is over, or
        // its upload has just ended. The second look tells; a third would only hide a fault.
        for last in [false, true] {
            let content_id = found.key.content_id;
            if found.status == Status::InProgress {
                match self.staged(code).await? {
                    Staged::Bytes(bytes) => return Ok(Some((found, bytes))),
                    Staged::NotServed => return Ok(None),
                    Staged::Gone if last => return Ok(None),
                    Staged::Gone => {}
                }
            } else {
                if let Some(bytes) = self.0.cache.content(content_id) {
                    return Ok(Some((found, bytes)));
                }
                match self.0.store.get(&found.key, found.size).await {
                    Ok(bytes) => {
                        if !found.burn {
                            self.0.cache.keep_content(content_id, &bytes);
                        }
                        return Ok(Some((found, bytes)));
                    }
                    Err(StoreError::Missing) if !last => {}
                    Err(StoreError::Open(wait)) => {
                        return Err(ReadError::StoreDown { retry_after: wait });
                    }
                    Err(error) => {
                        tracing::error!(key = %found.key, %error, "an object cannot be read");
                        let retry_after = self.settings().retry_after;
                        return Err(ReadError::StoreDown { retry_after });
                    }
                }
            }
            found = self.look(code).await?;
        }
        Ok(None)
    }

    async fn staged(&self, code: &ShortCode) -> Result<Staged, ReadError> {
        if !self.settings().serve_staged {
            return Ok(Staged::NotServed);
        }
        let sql = "select bytes from pastes.staged where short_code = $1";
        let rows = self.0.sessions.query(sql, &[(&code.as_str(), Type::TEXT)]).await;
        let rows = rows.map_err(|error| ReadError::Unavailable(Unavailable::from(error)))?;
        Ok(match rows.first() {
            Some(row) => Staged::Bytes(Bytes::from(row.get::<_, Vec<u8>>(0))),
            None => Staged::Gone,
        })
    }
}

/// What became of bytes that waited for their upload.
enum Staged {
    Bytes(Bytes),
    /// The operator wants readers to wait.
    NotServed,
    Gone,
}

fn paste(code: &ShortCode, found: Found, content: Bytes) -> Paste {
    Paste {
        code: code.clone(),
        content,
        language: found.language,
        created_at: found.created_at,
        expires_at: found.expires_at,
        life: found.life,
        content_id: found.key.content_id,
    }
}
