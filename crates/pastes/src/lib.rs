//! The paste service.
