//! Reading: pastes that are live by the database's clock, byte for byte.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::cache::CachedPaste;
use crate::code::ShortCode;
use crate::error::{ReadError, Unavailable};
use crate::lookup::Found;
use crate::model::{Paste, Reading, Status};
use crate::service::Pastes;
use crate::store::StoreError;

impl Pastes {
    /// Returns what a reader finds under a code.
    pub async fn read(&self, code: &ShortCode) -> Result<Reading, ReadError> {
        if let Some(CachedPaste { paste, refresh }) = self.0.cache.lookup(code, Instant::now()) {
            if refresh {
                let (pastes, known) = (self.clone(), Arc::clone(&paste));
                tokio::spawn(async move { pastes.refresh(&known).await });
            }
            return Ok(Reading::Ready(paste));
        }
        let found = self.find(code).await?;
        if found.burn {
            let Found { paste_id, language, size, expires_at, .. } = found;
            return Ok(Reading::Burns { paste_id, language, size, expires_at });
        }
        let paste_id = found.paste_id;
        let Some((found, content)) = self.content(code, found).await? else {
            let retry_after = self.settings().retry_after;
            return Ok(Reading::Uploading { paste_id, retry_after });
        };
        let asked = found.asked;
        let paste = Arc::new(paste(code, found, content));
        self.0.cache.keep_lookup(&paste, asked, self.settings().recheck);
        Ok(Reading::Ready(paste))
    }

    /// Refreshes a cached lookup result, or drops it if the paste has ended. If the database does not
    /// respond, the cached result expires as planned.
    async fn refresh(&self, known: &Paste) {
        let Ok(found) = self.0.lookups.find(&known.code).await else { return };
        match found {
            Some(found) if found.paste_id == known.paste_id => {
                let (asked, content) = (found.asked, known.content.clone());
                let paste = Arc::new(paste(&known.code, found, content));
                self.0.cache.keep_lookup(&paste, asked, self.settings().recheck);
            }
            _ => self.0.cache.forget(&known.code),
        }
    }

    /// Reads a paste that burns: of two concurrent readers, one gets it. Fetches the bytes first, so
    /// that a failing store burns nothing. With `only` it burns that very paste, or none.
    pub async fn burn(
        &self,
        code: &ShortCode,
        only: Option<Uuid>,
    ) -> Result<Arc<Paste>, ReadError> {
        let found = self.find(code).await?;
        if !found.burn || only.is_some_and(|only| only != found.paste_id) {
            return Err(ReadError::NotFound);
        }
        let Some((found, content)) = self.content(code, found).await? else {
            return Err(ReadError::StoreDown { retry_after: self.settings().retry_after });
        };
        // Pass the identity, too: if another paste has the name by now, it stays unread.
        let sql = "select pastes.burn($1, $2)";
        let params = [(&code.as_str() as _, Type::TEXT), (&found.paste_id as _, Type::UUID)];
        let rows = self.0.sessions.query(sql, &params).await;
        let rows = rows.map_err(|error| ReadError::Unavailable(error.into()))?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Err(ReadError::NotFound);
        }
        Ok(Arc::new(paste(code, found, content)))
    }

    async fn find(&self, code: &ShortCode) -> Result<Found, ReadError> {
        self.0.lookups.find(code).await?.ok_or(ReadError::NotFound)
    }

    /// Returns the bytes, or `None` while the upload is in progress.
    async fn content(
        &self,
        code: &ShortCode,
        mut found: Found,
    ) -> Result<Option<(Found, Bytes)>, ReadError> {
        // Bytes can disappear between the lookup and the fetch: then the paste has ended, or its upload
        // has just finished. A second lookup tells which; a third would only hide a fault.
        for last in [false, true] {
            let content_id = found.key.content_id;
            if found.status == Status::InProgress {
                match self.staged(code, content_id).await? {
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
            let paste_id = found.paste_id;
            found = self.find(code).await?;
            // Another paste has the name now. It may burn, and it is not the one that the caller looked
            // up.
            if found.paste_id != paste_id {
                return Err(ReadError::NotFound);
            }
        }
        Ok(None)
    }

    async fn staged(&self, code: &ShortCode, content_id: i64) -> Result<Staged, ReadError> {
        if !self.settings().serve_staged {
            return Ok(Staged::NotServed);
        }
        let sql = "select bytes from pastes.staged where short_code = $1 and content_id = $2";
        let params = [(&code.as_str() as _, Type::TEXT), (&content_id as _, Type::INT8)];
        let rows = self.0.sessions.query(sql, &params).await;
        let rows = rows.map_err(|error| ReadError::Unavailable(Unavailable::from(error)))?;
        Ok(match rows.first() {
            Some(row) => Staged::Bytes(Bytes::from(row.get::<_, Vec<u8>>(0))),
            None => Staged::Gone,
        })
    }
}

/// The staged bytes of a paste.
enum Staged {
    Bytes(Bytes),
    /// `serve_staged` is off: readers wait for the upload.
    NotServed,
    Gone,
}

fn paste(code: &ShortCode, found: Found, content: Bytes) -> Paste {
    Paste {
        code: code.clone(),
        paste_id: found.paste_id,
        content,
        language: found.language,
        created_at: found.created_at,
        expires_at: found.expires_at,
        life: found.life,
        content_id: found.key.content_id,
    }
}
