//! Kinds, compiled: schemas that check what is proposed and templates that say what it does.

mod engine;
pub mod samples;
mod sentence;

pub use engine::{Checked, CompiledKind, compile_schema};
pub use sentence::{ConsequenceFacts, LinkedPayment};

use crate::model::{
    json::{self, Limits},
    kind::Kind,
    problem::Problem,
};

/// The version that the built-in kinds are kept under.
pub const BUILTIN_VERSION: i64 = 1;

macro_rules! documents {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("builtin/", $name, ".json"))),)*] };
}

/// The built-in kinds: name and document.
const BUILTIN: [(&str, &str); 15] = documents! {
    "ticket.create" "ticket.comment" "ticket.transition"
    "payment.authorize" "payment.capture" "payment.refund"
    "deployment.release" "deployment.rollback"
    "resource.create" "resource.replace" "resource.update" "resource.delete"
    "user.invite" "credential.delete" "http.request"
};

/// The kinds that every desk has.
///
/// # Errors
/// A document in this crate is not valid; a test keeps that from being released.
pub fn builtin() -> Result<Vec<Kind>, Problem> {
    BUILTIN.iter().map(|(_, text)| Kind::load(&json::parse(text.as_bytes(), Limits::BODY)?)).collect()
}

/// Whether the name is one of the built-in kinds', which nobody redefines.
pub fn is_builtin(name: &str) -> bool {
    BUILTIN.iter().any(|(builtin, _)| *builtin == name)
}

#[cfg(test)]
mod tests;
