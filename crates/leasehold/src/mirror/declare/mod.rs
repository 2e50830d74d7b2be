//! The declaration of a mirror: what it is, its SQL, what it adds to a table, and whether it fits one.

mod declaration;
mod install;
mod key;
mod prepare;
mod statements;

pub use declaration::Mirror;
pub use install::trigger_names;
pub use prepare::MirrorError;

pub(crate) use declaration::Store;
pub(crate) use key::KeyKind;
pub(crate) use prepare::{CALL_LIMIT, Prepared};
