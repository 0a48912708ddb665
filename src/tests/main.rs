//! Integration tests; the modules mirror `server::service`.

mod support;
