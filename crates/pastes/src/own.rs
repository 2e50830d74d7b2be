//! What owners and readers do: list and delete their own pastes, and report a paste to the operator.
//! What operators do is in [`crate::moderate`].

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::code::{Bearer, OwnerToken, ShortCode};
use crate::error::{CreateError, DeleteError, ReadError, Unavailable};
use crate::model::{Cursor, Listed, Report, Status};
use crate::service::Pastes;

/// The longest report that is stored, in characters.
const LONGEST_REPORT: usize = 2000;
/// The most pastes per page.
const LONGEST_LIST: u32 = 1000;

impl Pastes {
    /// Creates an owner and returns the token, which is shown once; only its hash is stored.
    pub async fn new_owner(&self) -> Result<OwnerToken, CreateError> {
        let token = OwnerToken::random();
        let sql = "insert into pastes.owners (token_hash) values ($1)";
        self.rows(sql, &[(&token.hash(), Type::BYTEA)]).await?;
        Ok(token)
    }

    /// Returns true if this database issued the token.
    pub async fn is_owner(&self, owner: &OwnerToken) -> Result<bool, Unavailable> {
        let sql = "select from pastes.owners where token_hash = $1";
        Ok(!self.rows(sql, &[(&owner.hash(), Type::BYTEA)]).await?.is_empty())
    }

    /// Lists the owner's live pastes, newest first, after a cursor. Returns `NotFound` for an unknown
    /// owner.
    pub async fn list(
        &self,
        owner: &OwnerToken,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Listed>, ReadError> {
        let rows = self
            .rows(
                include_str!("../queries/own_pastes.sql"),
                &[
                    (&owner.hash(), Type::BYTEA),
                    (&after.map(|cursor| cursor.created_at), Type::TIMESTAMPTZ),
                    (&after.map(|cursor| cursor.code.as_str()), Type::TEXT),
                    (&i64::from(limit.min(LONGEST_LIST)), Type::INT8),
                ],
            )
            .await?;
        if rows.is_empty() && !self.is_owner(owner).await? {
            return Err(ReadError::NotFound);
        }
        Ok(rows.iter().filter_map(listed).collect())
    }

    /// Deletes a paste with its delete token or its owner's token. Deleting a paste that has ended is
    /// no error.
    ///
    /// A delete token names the paste that it belongs to. An owner's token does not: `only` is the
    /// paste that the owner saw under this code; `None` means whichever of the owner's pastes has the
    /// code now.
    pub async fn delete(
        &self,
        code: &ShortCode,
        bearer: &Bearer,
        only: Option<Uuid>,
    ) -> Result<(), DeleteError> {
        if let Some(paste) = self.0.tokens.paste(code, bearer.as_str()) {
            let params = [(&code.as_str() as _, Type::TEXT), (&paste as _, Type::UUID)];
            self.rows("select pastes.end_now($1, $2)", &params).await?;
        } else if let Some(owner) = OwnerToken::parse(bearer.as_str()) {
            let params = [
                (&code.as_str() as _, Type::TEXT),
                (&owner.hash() as _, Type::BYTEA),
                (&only as _, Type::UUID),
            ];
            let rows = self.rows("select pastes.end_owned($1, $2, $3)", &params).await?;
            let ended: Option<bool> = rows.first().and_then(|row| row.get(0));
            ended.ok_or(DeleteError::NotYours)?;
        } else {
            return Err(DeleteError::NotYours);
        }
        self.0.cache.forget(code);
        Ok(())
    }

    /// Stores a reader's report for the operator.
    pub async fn report(&self, code: &ShortCode, report: Report) -> Result<(), ReadError> {
        let cut = |text: String| -> String {
            text.chars().filter(|c| *c != '\0').take(LONGEST_REPORT).collect()
        };
        let rows = self
            .rows(
                "insert into pastes.reports (short_code, paste_id, content_hash, reason, contact) \
                 select l.code, l.paste_id, l.content_hash, $2, $3 \
                   from pastes.find_live(array[$1::text]) l \
                  where l.paste_id = coalesce($4, l.paste_id) \
                 returning id",
                &[
                    (&code.as_str(), Type::TEXT),
                    (&cut(report.reason), Type::TEXT),
                    (&report.contact.map(cut), Type::TEXT),
                    (&report.paste_id, Type::UUID),
                ],
            )
            .await?;
        if rows.is_empty() { Err(ReadError::NotFound) } else { Ok(()) }
    }

    pub(crate) async fn rows(
        &self,
        sql: &str,
        params: &[leasehold::link::Param<'_>],
    ) -> Result<Vec<Row>, Unavailable> {
        Ok(self.0.sessions.query(sql, params).await?)
    }
}

fn listed(row: &Row) -> Option<Listed> {
    let (code, status, size): (&str, &str, i32) = (row.get(0), row.get(2), row.get(4));
    Some(Listed {
        code: code.parse().ok()?,
        paste_id: row.get(1),
        status: Status::of(status),
        language: row.get(3),
        size: usize::try_from(size).unwrap_or(0),
        burn: row.get(5),
        created_at: row.get(6),
        expires_at: row.get(7),
    })
}
