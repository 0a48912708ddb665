//! The domain, pure: rules, documents and proofs. No I/O, no async, no clock; every rule takes `now` as an argument.

pub mod fingerprint;
pub mod id;
pub mod json;
pub mod kind;
pub mod money;
pub mod policy;
pub mod problem;
pub mod strict;
pub mod target;
pub mod text;
pub mod time;
