//! The one place that knows what time it is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::UNIX_EPOCH,
};

use crate::model::time::Timestamp;

/// Injected time: the machine's, corrected to the database's where there is one, or a test's.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Milliseconds by which the database's clock is ahead of this machine's.
    System {
        ahead: Arc<AtomicI64>,
    },
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn system() -> Self {
        Self::System { ahead: Arc::default() }
    }

    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.as_millis())))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { ahead } => Timestamp(machine_now() + ahead.load(Ordering::Relaxed)),
            Self::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Learns the database's clock; a manual clock stays as it is set.
    pub fn correct(&self, database: Timestamp) {
        if let Self::System { ahead } = self {
            ahead.store(database.as_millis() - machine_now(), Ordering::Relaxed);
        }
    }

    pub fn is_manual(&self) -> bool {
        matches!(self, Self::Manual(_))
    }

    /// Moves a manual clock.
    pub fn advance_ms(&self, ms: i64) {
        if let Self::Manual(now) = self {
            now.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

fn machine_now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the clock is where time comes from")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
