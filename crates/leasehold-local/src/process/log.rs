//! A server's log: kept in the server's directory, quoted when a start fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A larger log is renamed at the next start.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
const TAIL_BYTES: u64 = 4 * 1024;

/// Opens the log; returns it and the offset at which this start begins.
pub fn open_log(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|log| log.len() > LOG_BYTES) {
        fs::rename(path, path.with_extension("log.old"))?;
    }
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let begin = log.metadata()?.len();
    Ok((log, begin))
}

/// Returns the last lines that were written after `begin`.
pub fn log_tail(path: &Path, begin: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(begin.max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(error) => format!("(unreadable: {error})"),
    }
}
