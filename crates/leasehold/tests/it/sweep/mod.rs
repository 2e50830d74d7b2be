//! Sweeps: rows of a table that is not ours, each finished once.

mod basics;
mod shelf;
mod speed;
