//! Waking those who wait: one task per process reads committed events in order and passes them on.
//!
//! The database is the truth: a commit of this process, a notification of another one, or the passing of time only
//! make the task look. Events become visible in the order of the log, so none is ever passed over.

use std::{sync::Arc, time::Duration};

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::store::{self, Store, log, log::Event};

/// Events a slow reader may lag behind before it has to start over.
const BACKLOG: usize = 4096;
/// Longest time that another process's news can stay unnoticed.
const POLL: Duration = Duration::from_millis(500);
const BATCH: i64 = 500;

/// A handle on the stream of events.
#[derive(Clone)]
pub struct Signals {
    events: broadcast::Sender<Arc<Event>>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(BACKLOG) }
    }
}

impl Signals {
    /// Events from now on, in order.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    /// Wakes when something about `subject` may have changed.
    pub fn watch(&self, subject: &str) -> Watch {
        Watch { events: self.subscribe(), subject: subject.to_owned() }
    }

    /// Reads events from the database and passes them on, until `stop`.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        let mut seen = None;
        let mut listener = None;
        loop {
            // Before looking: a commit during the look is noticed by the next round.
            let committed = store.committed().notified();
            tokio::pin!(committed);
            committed.as_mut().enable();
            match self.look(&store, seen).await {
                Ok(next) => seen = Some(next),
                Err(error) => tracing::warn!(%error, "events could not be read"),
            }
            tokio::select! {
                () = committed => {}
                () = store.news(&mut listener, POLL) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Passes on what is newer than `seen`; the first look only finds out where the log ends.
    async fn look(&self, store: &Store, seen: Option<i64>) -> store::Result<i64> {
        let mut conn = store.read().await?;
        let Some(mut seen) = seen else { return log::newest_event(&mut conn).await };
        loop {
            let events = log::events(&mut conn, seen, BATCH).await?;
            let Some(last) = events.last() else { return Ok(seen) };
            seen = last.seq;
            for event in events {
                // Nobody listening is no error.
                drop(self.events.send(Arc::new(event)));
            }
        }
    }
}

/// Waits for news about one subject.
pub struct Watch {
    events: broadcast::Receiver<Arc<Event>>,
    subject: String,
}

impl Watch {
    /// Returns when the subject may have changed: also when this watcher lagged, and cannot tell.
    pub async fn changed(&mut self) {
        loop {
            match self.events.recv().await {
                Ok(event) if event.subject == self.subject => return,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
