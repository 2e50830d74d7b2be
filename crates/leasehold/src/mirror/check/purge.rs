//! Purge: forgets deletions that are too old for any write to be under way against them. The marks of
//! changes are idempotency keys, and pruned with all others.

use tokio_postgres::types::Type;

use crate::mirror::MirrorError;
use crate::mirror::runtime::MirrorRuntime;
use crate::mirror::sets::Tombstone;

/// Deletions per call.
const PIECE: i32 = 1000;

/// Forgets old deletions, in the store first: a deletion that only the store remembers is harmless, one
/// that only the table remembers would be written again. Returns how many.
pub(crate) async fn purge(runtime: &MirrorRuntime) -> Result<u64, MirrorError> {
    runtime.source.prepared().await?;
    let mut forgotten = 0;
    loop {
        let sql = "select key, version from leasehold_internal.mirror_old_gone($1, $2)";
        let params = [(&runtime.mirror.name as _, Type::TEXT), (&PIECE as _, Type::INT4)];
        let rows = runtime.source.query(sql, &params).await?;
        if rows.is_empty() {
            return Ok(forgotten);
        }
        let old: Vec<Tombstone> =
            rows.iter().map(|row| Tombstone { key: row.get(0), version: row.get(1) }).collect();
        let sets = runtime.sets.written().await?;
        runtime.calls.call(sets.serving.forget(&old)).await?;
        if let Some(second) = &sets.second {
            let forgetting = async { Ok(runtime.calls.call(second.forget(&old)).await?) };
            if runtime.sets.of_second(forgetting).await.is_err() {
                // The second set may still have them: remember them until it answers.
                return Ok(forgotten);
            }
        }
        let (keys, versions): (Vec<&str>, Vec<i64>) =
            old.iter().map(|one| (one.key.as_str(), one.version)).unzip();
        let sql = "select leasehold_internal.mirror_forgotten($1, $2, $3)";
        let params = [
            (&runtime.mirror.name as _, Type::TEXT),
            (&keys as _, Type::TEXT_ARRAY),
            (&versions as _, Type::INT8_ARRAY),
        ];
        let rows = runtime.source.query(sql, &params).await?;
        let gone = rows.first().map_or(0, |row| row.get::<_, i32>(0));
        forgotten += u64::try_from(gone).unwrap_or(0);
        // Another transaction has locked the rest: forget them next time.
        if gone < PIECE {
            return Ok(forgotten);
        }
    }
}
