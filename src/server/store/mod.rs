//! The database: one file of rows and queries per word of the domain. The store decides nothing.
//!
//! All writes go through [`committer`]; reads take a connection from [`Store::read`].

pub mod agent;
pub mod backup;
pub mod catalogue;
pub mod change_set;
pub mod committer;
pub mod conflict;
mod dialect;
pub mod evidence;
pub mod executor;
pub mod lease;
pub mod log;
pub mod measures;
pub mod operation;
pub mod person;
pub mod provider;
pub mod queue;
pub mod resource;
pub mod resource_rule;
pub mod run;
pub mod run_approval;
pub mod session;
pub mod setting;
pub mod sql;

use std::sync::Arc;

pub use committer::Tx;
pub use dialect::Listener;
pub use sql::{Conn, Row, Sql, sql};

use crate::server::{clock::Clock, config::Database};
use dialect::Pools;

pub type Result<T> = std::result::Result<T, Error>;

/// The database could not do what was asked. Refusals are not errors of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too much is waiting, the database is away, or the transaction could not be committed. Nothing was done.
    #[error("the database is not available")]
    Unavailable(#[source] Option<sqlx::Error>),
    #[error("the database refused a statement")]
    Database(#[source] sqlx::Error),
    #[error("the database holds something it should not: {0}")]
    Corrupt(String),
    #[error("a command panicked: {0}")]
    Panicked(String),
    #[error(transparent)]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// A document as it is stored.
fn json(value: &(impl serde::Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::corrupt(error.to_string()))
}

impl Error {
    pub fn corrupt(what: String) -> Self {
        Self::Corrupt(what)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::*;
        match error {
            Io(_) | PoolTimedOut | PoolClosed | WorkerCrashed | Tls(_) => Self::Unavailable(Some(error)),
            Database(ref inner) if dialect::is_transient(inner.as_ref()) => Self::Unavailable(Some(error)),
            _ => Self::Database(error),
        }
    }
}

/// A handle on the database: cheap to clone.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    committer: committer::Committer,
    clock: Clock,
    committed: Arc<tokio::sync::Notify>,
}

impl Store {
    /// Opens the database, brings its schema up to date, and starts the committer. There are two connections or more.
    ///
    /// # Errors
    /// When the database cannot be reached, or was written by a newer version.
    pub async fn open(database: &Database, connections: u32, clock: Clock) -> Result<Self> {
        let pools = Pools::open(database, connections).await?;
        pools.migrate().await?;
        let committed = Arc::new(tokio::sync::Notify::new());
        let committer = committer::Committer::start(pools.clone(), clock.clone(), committed.clone());
        Ok(Self { pools, committer, clock, committed })
    }

    /// A connection for reading. It sees what is committed, never half a command.
    pub async fn read(&self) -> Result<Conn> {
        self.pools.read().await
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it does not.
    pub async fn ping(&self) -> Result<()> {
        dialect::ping(&mut self.read().await?).await
    }

    /// Notified after each commit of this process.
    pub fn committed(&self) -> &tokio::sync::Notify {
        &self.committed
    }

    /// Waits for news from other processes, `patience` at most.
    pub async fn news(&self, listener: &mut Option<Listener>, patience: std::time::Duration) {
        self.pools.news(listener, patience).await;
    }

    /// Waits until what is queued is committed, and closes the database.
    pub async fn close(&self) {
        self.committer.drain().await;
        self.pools.close().await;
    }
}
