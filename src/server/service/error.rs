//! The three ways in which something is not done.

use crate::{model::problem::Problem, server::store};

pub type Result<T> = std::result::Result<T, Error>;

/// Why a use case did not do what was asked. No HTTP in here: `web` decides how it is said.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The answer is no, with its code, sentence and way on.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// Too busy, or the database is away. Nothing was done.
    #[error("not available right now")]
    Unavailable,
    /// Our own fault. The chain is for the log, never for the caller.
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub fn internal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(error.into())
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Unavailable(source) => {
                if let Some(source) = source {
                    tracing::warn!(error = %source, "the database is not available");
                }
                Self::Unavailable
            }
            other => Self::internal(other),
        }
    }
}
