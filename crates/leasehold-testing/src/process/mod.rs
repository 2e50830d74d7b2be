//! Starting other programs: short ones with a time limit, long ones that must not outlive us.

mod command;
mod dir;
mod log;
mod run_as;
mod supervisor;

pub(crate) use command::{CommandError, run};
pub(crate) use dir::{SOCKET_DIR_BYTES, make_private_dir, short_temp_dir};
pub(crate) use log::{log_tail, open_log};
pub(crate) use run_as::{NoUnprivilegedUser, RunAs};
pub(crate) use supervisor::Supervisor;
