//! What belongs to somebody: listing and deleting one's own, and what an operator may do.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::code::{Bearer, OwnerToken, ShortCode};
use crate::error::{CreateError, DeleteError, OperateError, ReadError, Unavailable};
use crate::model::{Ban, Listed, Report, Reported, Status, TakenDown};
use crate::service::Pastes;

/// The longest complaint that is kept.
const LONGEST_REPORT: usize = 2000;

impl Pastes {
    /// A new owner. The token is shown once; only its hash is kept.
    pub async fn new_owner(&self) -> Result<OwnerToken, CreateError> {
        let token = OwnerToken::random();
        let sql = "insert into pastes.owners (token_hash) values ($1)";
        self.rows(sql, &[(&token.hash(), Type::BYTEA)]).await?;
        Ok(token)
    }

    /// Own living pastes, newest first; `before`: only those made before this one. An owner that is
    /// not known is not found.
    pub async fn list(
        &self,
        owner: &OwnerToken,
        before: Option<&ShortCode>,
        limit: u32,
    ) -> Result<Vec<Listed>, ReadError> {
        let rows = self
            .rows(
                include_str!("../queries/own_pastes.sql"),
                &[
                    (&owner.hash(), Type::BYTEA),
                    (&before.map(ShortCode::as_str), Type::TEXT),
                    (&i64::from(limit.min(1000)), Type::INT8),
                ],
            )
            .await?;
        if rows.is_empty() {
            let sql = "select from pastes.owners where token_hash = $1";
            if self.rows(sql, &[(&owner.hash(), Type::BYTEA)]).await?.is_empty() {
                return Err(ReadError::NotFound);
            }
        }
        Ok(rows.iter().filter_map(listed).collect())
    }

    /// Deletes a paste with its delete token or its owner's. Deleting what is gone is no error.
    pub async fn delete(&self, code: &ShortCode, bearer: &Bearer) -> Result<(), DeleteError> {
        if !bearer.is(&self.delete_token(code)) && !self.owns(code, bearer).await? {
            return Err(DeleteError::NotYours);
        }
        self.rows("select pastes.end_now($1)", &[(&code.as_str(), Type::TEXT)]).await?;
        self.0.cache.forget(code);
        Ok(())
    }

    async fn owns(&self, code: &ShortCode, bearer: &Bearer) -> Result<bool, DeleteError> {
        let Some(owner) = OwnerToken::parse(bearer.as_str()) else { return Ok(false) };
        let sql = "select from pastes.pastes p join pastes.owners o using (user_id) \
                   where p.short_code = $1 and o.token_hash = $2";
        let params = [(&code.as_str() as _, Type::TEXT), (&owner.hash() as _, Type::BYTEA)];
        Ok(!self.rows(sql, &params).await?.is_empty())
    }

    /// Keeps a reader's complaint for the operator.
    pub async fn report(&self, code: &ShortCode, report: Report) -> Result<(), ReadError> {
        let cut = |text: String| -> String {
            text.chars().filter(|c| *c != '\0').take(LONGEST_REPORT).collect()
        };
        let rows = self
            .rows(
                "insert into pastes.reports (short_code, content_hash, reason, contact) \
                 select l.code, l.content_hash, $2, $3 from pastes.look(array[$1::text]) l \
                 returning id",
                &[
                    (&code.as_str(), Type::TEXT),
                    (&cut(report.reason), Type::TEXT),
                    (&report.contact.map(cut), Type::TEXT),
                ],
            )
            .await?;
        if rows.is_empty() { Err(ReadError::NotFound) } else { Ok(()) }
    }

    /// Complaints, newest first.
    pub async fn reports(&self, limit: u32) -> Result<Vec<Reported>, OperateError> {
        let sql = include_str!("../queries/reports.sql");
        let rows = self.rows(sql, &[(&i64::from(limit.min(1000)), Type::INT8)]).await?;
        Ok(rows.iter().map(reported).collect())
    }

    /// Takes a paste down; with `ban` every copy of its bytes, and all to come.
    pub async fn takedown(
        &self,
        code: &ShortCode,
        reason: &str,
        ban: bool,
    ) -> Result<TakenDown, OperateError> {
        let rows = self
            .rows(
                "select pastes.take_down($1, $2, $3)",
                &[(&code.as_str(), Type::TEXT), (&reason, Type::TEXT), (&ban, Type::BOOL)],
            )
            .await?;
        self.0.cache.forget(code);
        let ended: Option<i64> = rows.first().and_then(|row| row.get(0));
        let ended = ended.ok_or(OperateError::NotFound)?;
        Ok(TakenDown { pastes: u64::try_from(ended).unwrap_or(0), banned: ban })
    }

    /// Refuses these bytes from now on. Pastes that have them stay: take them down.
    pub async fn ban(&self, hash: &str, reason: &str) -> Result<(), OperateError> {
        let hash = checked_hash(hash)?;
        let sql = "insert into pastes.banned (content_hash, reason) values ($1, $2) \
                   on conflict (content_hash) do update set reason = excluded.reason";
        self.rows(sql, &[(&hash, Type::TEXT), (&reason, Type::TEXT)]).await?;
        Ok(())
    }

    pub async fn unban(&self, hash: &str) -> Result<(), OperateError> {
        let hash = checked_hash(hash)?;
        let sql = "delete from pastes.banned where content_hash = $1 returning 1";
        match self.rows(sql, &[(&hash, Type::TEXT)]).await?.is_empty() {
            true => Err(OperateError::NotFound),
            false => Ok(()),
        }
    }

    pub async fn bans(&self, limit: u32) -> Result<Vec<Ban>, OperateError> {
        let sql = "select content_hash::text, reason, banned_at from pastes.banned \
                   order by banned_at desc limit $1";
        let rows = self.rows(sql, &[(&i64::from(limit.min(1000)), Type::INT8)]).await?;
        let ban =
            |row: &Row| Ban { content_hash: row.get(0), reason: row.get(1), banned_at: row.get(2) };
        Ok(rows.iter().map(ban).collect())
    }

    async fn rows(
        &self,
        sql: &str,
        params: &[leasehold::link::Param<'_>],
    ) -> Result<Vec<Row>, Unavailable> {
        Ok(self.0.sessions.query(sql, params).await?)
    }
}

fn checked_hash(hash: &str) -> Result<String, OperateError> {
    let fits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(hash.to_ascii_lowercase()) } else { Err(OperateError::BadHash) }
}

fn listed(row: &Row) -> Option<Listed> {
    let (code, status, size): (&str, &str, i32) = (row.get(0), row.get(1), row.get(3));
    Some(Listed {
        code: code.parse().ok()?,
        status: Status::of(status),
        language: row.get(2),
        size: usize::try_from(size).unwrap_or(0),
        burn: row.get(4),
        created_at: row.get(5),
        expires_at: row.get(6),
    })
}

fn reported(row: &Row) -> Reported {
    let reported_at: Timestamp = row.get(5);
    Reported {
        id: row.get(0),
        code: row.get(1),
        content_hash: row.get(2),
        reason: row.get(3),
        contact: row.get(4),
        reported_at,
        alive: row.get(6),
    }
}
