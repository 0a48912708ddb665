//! Integration tests; the modules mirror `server::service`.

mod people;
mod runs;
mod security;
mod support;
