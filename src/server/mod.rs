//! The server half: `web → service → store`, all over [`crate::model`].

pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod faults;
pub mod gateway;
pub mod ids;
pub mod seal;
pub mod service;
pub mod signals;
pub mod store;
pub mod web;
pub mod worker;
