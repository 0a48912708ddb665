//! The server half: `web → service → store`, all over [`crate::model`].

pub mod clock;
pub mod config;
pub mod service;
pub mod store;
