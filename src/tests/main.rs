//! Integration tests; the modules mirror `server::service`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod catalogue;
mod command_line;
mod crash;
mod demo;
mod lifecycle;
mod openapi;
mod people;
mod races;
mod runs;
mod security;
mod support;
