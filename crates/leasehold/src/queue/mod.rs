//! The queue's verbs, each a thin call of one SQL function: enqueue, claim, finish.

pub mod batch;
pub mod bulk;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod cursors;
pub mod enqueue;
pub(crate) mod finish;
pub(crate) mod follow_up;
#[doc(hidden)]
pub mod moment;
pub(crate) mod next_due;
