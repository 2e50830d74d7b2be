//! The real executable against real databases: what it prints, how it ends, what it changes.

mod basics;
mod dead;
mod dev;
mod doctor;
mod enqueue;
mod jobs;
mod migrate;
mod queues;
mod schedules;
mod support;
