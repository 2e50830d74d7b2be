//! `leasehold-bench limits`, `leasehold-bench flow-chaos`: what limits cost, and whether they hold.

pub mod chaos;
mod figures;
mod ledger;
mod process;

pub use figures::{Args, run};
pub use process::{WorkerArgs, work};
