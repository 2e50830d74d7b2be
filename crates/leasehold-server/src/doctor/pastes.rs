//! The store of the paste service: can other users of this machine read it?

use std::path::Path;

use super::finding::Finding;
use crate::cli::Db;
use crate::exit::Failure;

const CHECK: &str = "paste store";

/// Returns `None` if no paste service has started yet.
pub async fn examine(db: &Db) -> Option<Finding> {
    match read(db).await {
        Ok(found) => found,
        Err(failure) => Some(Finding::unknown(CHECK, &failure)),
    }
}

async fn read(db: &Db) -> Result<Option<Finding>, Failure> {
    let there = "select to_regclass('pastes.store') is not null";
    if !db.one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let rows = db.query("select location from pastes.store", &[]).await?;
    let location: Option<String> = rows.first().and_then(|row| row.get(0));
    Ok(location.map(|location| match location.strip_prefix("file://") {
        Some(folder) => examine_folder(Path::new(folder)),
        None => Finding::ok(CHECK, location),
    }))
}

/// Checks only the folder itself: a user who cannot enter it cannot reach anything below it.
fn examine_folder(folder: &Path) -> Finding {
    let path = folder.display();
    let meta = match std::fs::metadata(folder) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::ok(CHECK, format!("{path} is not on this machine"));
        }
        Err(error) => {
            let advice = "run doctor as the user that runs the service";
            return Finding::warn(CHECK, format!("{path} could not be checked: {error}"), advice);
        }
    };
    match mode(&meta) & 0o077 {
        0 => Finding::ok(CHECK, format!("{path}, readable by its owner only")),
        _ => Finding::warn(
            CHECK,
            format!(
                "{path} has mode {:o}: other users of this machine can read every paste",
                mode(&meta) & 0o777
            ),
            format!("restrict it: chmod 700 {path}"),
        ),
    }
}

fn mode(meta: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(meta)
}
