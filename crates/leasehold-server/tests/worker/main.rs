//! `leasehold worker`, as its users meet it: the real program on a real database.

mod command_line;
mod exec;
mod http;
mod receiver;
mod stop;
mod support;
