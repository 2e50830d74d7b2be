//! A shop: `POST /orders` stores an order and enqueues its receipt in one transaction.
//!
//! - [`orders`]: the HTTP side, with sqlx. It enqueues and knows nothing of workers.
//! - [`receipts`]: the job and its handler. The receipt and the job's completion are one commit.
//! - [`shop`]: the tables, and everything put together in one process.

#![forbid(unsafe_code)]

pub mod orders;
pub mod receipts;
pub mod shop;
