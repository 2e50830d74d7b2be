//! The search index in a directory: whether other users of the machine can read it.

use std::path::Path;

use annotations::index::is_open_to_others;

use super::finding::Finding;

const CHECK: &str = "search index";

/// Returns `None` if no directory is named: doctor does not know those of other processes.
pub fn examine(dir: Option<&Path>) -> Option<Finding> {
    let dir = dir?;
    let path = dir.display();
    Some(match is_open_to_others(dir) {
        Ok(false) => Finding::ok(CHECK, format!("{path}, readable by its owner only")),
        Ok(true) => Finding::warn(
            CHECK,
            format!(
                "other users of this machine can read {path}, which holds notes of closed groups"
            ),
            format!("restrict it: chmod -R go= {path}"),
        ),
        Err(error) => Finding::warn(
            CHECK,
            format!("{path} could not be checked: {error}"),
            "name the directory that leasehold serve uses, and run doctor as its user",
        ),
    })
}
