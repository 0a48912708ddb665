//! Integration tests; the modules mirror `server::service`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod catalogue;
mod command_line;
mod crash;
mod lifecycle;
mod openapi;
mod people;
mod races;
mod runs;
mod security;
mod support;
