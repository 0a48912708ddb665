//! The domain, pure: rules, documents and proofs. No I/O, no async, no clock; every rule takes `now` as an argument.

pub mod approval;
pub mod audit;
pub mod conflict;
pub mod diff;
pub mod document;
pub mod etag;
pub mod evidence;
pub mod fingerprint;
pub mod id;
pub mod json;
pub mod kind;
pub mod lease;
pub mod money;
pub mod operation;
pub mod overlap;
pub mod policy;
pub mod problem;
pub mod provider;
pub mod resend;
pub mod resource;
pub mod run;
pub mod run_approval;
pub mod strict;
pub mod target;
pub mod text;
pub mod time;
