//! The queue's verbs, each a thin call of one SQL function: enqueue, claim, finish.

pub mod bulk;
mod check;
pub(crate) mod claim;
pub mod enqueue;
pub(crate) mod finish;
pub(crate) mod lanes;
mod moment;
