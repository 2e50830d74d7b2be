//! Redis: the gate of a sweep, and a hash as the store of a mirror. Neither is needed for correctness:
//! Postgres keeps claims apart, and the check of a mirror finds what a hash has lost.

mod connection;
mod gate;
mod hash;

pub use hash::RedisHash;
