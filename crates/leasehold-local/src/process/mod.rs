//! Starting other programs: short ones with a time limit, long ones that must not outlive us.

mod command;
mod dir;
mod log;
mod run_as;
mod supervisor;

use std::time::Duration;

pub use command::{CommandError, run};
pub use dir::{SOCKET_DIR_BYTES, cache_dir, make_private_dir, short_temp_dir};
pub use log::{log_tail, open_log};
pub use run_as::{NoUnprivilegedUser, RunAs};
pub use supervisor::Supervisor;

/// Sleeps between two checks of another process. Every caller documents that it blocks.
#[expect(clippy::disallowed_methods, reason = "the system has no event that we could wait for")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
