//! What operators do: reports, takedowns, bans. Each action is recorded with who did it, why, and when.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::refusal;
use crate::error::OperateError;
use crate::model::{Act, Ban, Moderated, Reported, TakenDown, Target};
use crate::service::Pastes;
use crate::sql;

/// The most rows per page.
const LONGEST_LIST: u32 = 1000;

impl Pastes {
    /// Lists reports, newest first, before a given one.
    pub async fn reports(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Reported>, OperateError> {
        let rows = self.page(sql::REPORTS, before, limit).await?;
        let reported = |row: &Row| Reported {
            id: row.get(0),
            code: row.get(1),
            content_hash: row.get(2),
            reason: row.get(3),
            contact: row.get(4),
            reported_at: row.get(5),
            alive: row.get(6),
        };
        Ok(rows.iter().map(reported).collect())
    }

    /// Takes a paste down. With `ban`, also takes down every copy of its bytes and refuses them in
    /// future.
    pub async fn takedown(
        &self,
        target: &Target,
        ban: bool,
        act: &Act,
    ) -> Result<TakenDown, OperateError> {
        let (report, code, hash) = match target {
            Target::Report(report) => (Some(*report), None, None),
            Target::Code { code, content_hash } => {
                let hash = content_hash.as_deref().map(checked_hash).transpose()?;
                (None, Some(code.as_str()), hash)
            }
        };
        let sql = "select * from pastes.take_down($1, $2, $3, $4, $5, $6)";
        let params = [
            (&report as _, Type::INT8),
            (&code as _, Type::TEXT),
            (&hash as _, Type::TEXT),
            (&ban as _, Type::BOOL),
            (&act.who as _, Type::TEXT),
            (&act.why as _, Type::TEXT),
        ];
        let rows =
            self.0.sessions.query(sql, &params).await.map_err(|error| match refusal(&error) {
                Some("PB007") => OperateError::NotFound,
                Some("PB008") => OperateError::AnotherPaste,
                _ => OperateError::Unavailable(error.into()),
            })?;
        let row = rows.first().ok_or(OperateError::NotFound)?;
        let (code, content_hash, ended): (String, String, i64) =
            (row.get(0), row.get(1), row.get(2));
        if let Ok(code) = code.parse() {
            self.0.cache.forget(&code);
        }
        let pastes = u64::try_from(ended).unwrap_or(0);
        Ok(TakenDown { code, content_hash, pastes, banned: ban })
    }

    /// Refuses these bytes from now on. Existing pastes of them stay: take them down separately.
    pub async fn ban(&self, hash: &str, act: &Act) -> Result<(), OperateError> {
        let hash = checked_hash(hash)?;
        let params =
            [(&hash as _, Type::TEXT), (&act.who as _, Type::TEXT), (&act.why as _, Type::TEXT)];
        self.rows("select pastes.ban($1, $2, $3)", &params).await?;
        Ok(())
    }

    /// Allows these bytes again.
    pub async fn unban(&self, hash: &str, act: &Act) -> Result<(), OperateError> {
        let hash = checked_hash(hash)?;
        let params =
            [(&hash as _, Type::TEXT), (&act.who as _, Type::TEXT), (&act.why as _, Type::TEXT)];
        let rows = self.rows("select pastes.unban($1, $2, $3)", &params).await?;
        match rows.first().is_some_and(|row| row.get(0)) {
            true => Ok(()),
            false => Err(OperateError::NotFound),
        }
    }

    /// Lists bans, newest first, before a given one.
    pub async fn bans(&self, before: Option<i64>, limit: u32) -> Result<Vec<Ban>, OperateError> {
        let rows = self.page(sql::BANS, before, limit).await?;
        let ban = |row: &Row| Ban {
            id: row.get(0),
            content_hash: row.get(1),
            reason: row.get(2),
            banned_at: row.get(3),
        };
        Ok(rows.iter().map(ban).collect())
    }

    /// Lists what operators did, newest first, before a given action.
    pub async fn moderation(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Moderated>, OperateError> {
        let rows = self.page(sql::MODERATION, before, limit).await?;
        let moderated = |row: &Row| Moderated {
            id: row.get(0),
            action: row.get(1),
            code: row.get(2),
            content_hash: row.get(3),
            report: row.get(4),
            pastes: u64::try_from(row.get::<_, i64>(5)).unwrap_or(0),
            banned: row.get(6),
            who: row.get(7),
            why: row.get(8),
            acted_at: row.get(9),
        };
        Ok(rows.iter().map(moderated).collect())
    }

    async fn page(
        &self,
        sql: &str,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Row>, OperateError> {
        let limit = i64::from(limit.min(LONGEST_LIST));
        Ok(self.rows(sql, &[(&before, Type::INT8), (&limit, Type::INT8)]).await?)
    }
}

fn checked_hash(hash: &str) -> Result<String, OperateError> {
    let fits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { Ok(hash.to_ascii_lowercase()) } else { Err(OperateError::BadHash) }
}
