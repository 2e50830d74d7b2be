//! The paste service.

pub mod assets;
pub mod highlight;
pub mod pages;
pub mod qr;
