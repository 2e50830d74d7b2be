//! Purge: forgets deletions that are too old for any write to be under way against them. The marks of
//! changes are idempotency keys, and pruned with all others.

use tokio_postgres::types::Type;

use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use super::target::Tombstone;
use crate::engine::Leasehold;

/// Deletions per call.
const PIECE: i32 = 1000;

impl super::Mirror {
    /// Forgets deletions that are old enough, and returns how many. A worker does it once per minute.
    pub async fn purge_once(&self, engine: &Leasehold) -> Result<u64, MirrorError> {
        MirrorRuntime::new(engine, self.clone()).purge().await
    }
}

impl MirrorRuntime {
    /// Forgets old deletions, in the store first: a deletion that only the store remembers is harmless,
    /// one that only the table remembers would be written again.
    pub(super) async fn purge(&self) -> Result<u64, MirrorError> {
        self.prepared().await?;
        let mut forgotten = 0;
        loop {
            let sql = "select key, version from leasehold.mirror_old_gone($1, $2)";
            let params = [(&self.mirror.name as _, Type::TEXT), (&PIECE as _, Type::INT4)];
            let rows = self.link.query(sql, &params).await?;
            if rows.is_empty() {
                return Ok(forgotten);
            }
            let old: Vec<Tombstone> =
                rows.iter().map(|row| Tombstone { key: row.get(0), version: row.get(1) }).collect();
            let sets = self.sets().await?;
            self.call(sets.serving.forget(&old)).await?;
            if let Some(second) = &sets.second {
                let forgetting = async { Ok(self.call(second.forget(&old)).await?) };
                if self.of_second(forgetting).await.is_err() {
                    // The second set may still have them: remember them until it answers.
                    return Ok(forgotten);
                }
            }
            let (keys, versions): (Vec<&str>, Vec<i64>) =
                old.iter().map(|one| (one.key.as_str(), one.version)).unzip();
            let sql = "select leasehold.mirror_forgotten($1, $2, $3)";
            let params = [
                (&self.mirror.name as _, Type::TEXT),
                (&keys as _, Type::TEXT_ARRAY),
                (&versions as _, Type::INT8_ARRAY),
            ];
            let rows = self.link.query(sql, &params).await?;
            let gone = rows.first().map_or(0, |row| row.get::<_, i32>(0));
            forgotten += u64::try_from(gone).unwrap_or(0);
            // Another transaction has locked the rest: forget them next time.
            if gone < PIECE {
                return Ok(forgotten);
            }
        }
    }
}
