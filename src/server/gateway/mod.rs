//! The gateway: requests that Counterfoil itself sends, to destinations an admin has registered.

pub mod circuit;
mod dispatch;
pub mod http;

pub use dispatch::{run, step};

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::model::{id::OperationId, time::Timestamp};
use circuit::{Circuit, backoff_ms};

/// Requests that one process has under way, to all destinations.
const MOST: usize = 256;

/// What this process has under way with each destination, and when it tries again. It decides only when something is
/// tried; what may be done is decided by the rules, in the database.
#[derive(Default)]
pub struct Gateway {
    lines: Mutex<HashMap<String, Line>>,
    /// A place has become free.
    freed: Notify,
}

/// One destination.
#[derive(Default)]
struct Line {
    circuit: Circuit,
    in_hand: HashSet<OperationId>,
    /// What could not be claimed for the moment.
    later: HashMap<OperationId, Later>,
}

struct Later {
    tries: u32,
    not_before: Timestamp,
}

impl Gateway {
    fn lines(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How requests to `destination` have gone lately, in this process.
    pub fn circuit(&self, destination: &str) -> Circuit {
        self.lines().get(destination).map(|line| line.circuit.clone()).unwrap_or_default()
    }

    /// Tries again at once: what stood in the way may have been changed.
    pub fn forget(&self, destination: &str) {
        if let Some(line) = self.lines().get_mut(destination) {
            line.circuit = Circuit::default();
            line.later.clear();
        }
        self.freed.notify_waiters();
    }

    fn record(&self, destination: &str, result: Result<(), String>, now: Timestamp) {
        let mut lines = self.lines();
        let circuit = &mut lines.entry(destination.to_owned()).or_default().circuit;
        match result {
            Ok(()) => circuit.answered(),
            Err(words) => circuit.failed(words, now),
        }
        metrics::gauge!("counterfoil_gateway_circuit", "destination" => destination.to_owned())
            .set(circuit.state(now).as_number());
    }

    /// Takes in hand what of `waiting` is due, as far as there are places.
    fn take(&self, destination: &str, waiting: Vec<OperationId>, places: usize, now: Timestamp) -> Vec<OperationId> {
        let mut lines = self.lines();
        let under_way: usize = lines.values().map(|line| line.in_hand.len()).sum();
        let line = lines.entry(destination.to_owned()).or_default();
        line.later.retain(|id, _| waiting.contains(id));
        let free = line.circuit.places(places, now).saturating_sub(line.in_hand.len());
        let free = free.min(MOST.saturating_sub(under_way));
        let due = |id: &OperationId| {
            !line.in_hand.contains(id) && line.later.get(id).is_none_or(|later| later.not_before <= now)
        };
        let taken: Vec<_> = waiting.into_iter().filter(due).take(free).collect();
        line.in_hand.extend(taken.iter().cloned());
        taken
    }

    /// Puts an operation back that could not be claimed; it is due again later.
    fn postpone(&self, destination: &str, id: &OperationId, now: Timestamp) {
        let mut lines = self.lines();
        let line = lines.entry(destination.to_owned()).or_default();
        let later = line.later.entry(id.clone()).or_insert(Later { tries: 0, not_before: now });
        later.tries += 1;
        later.not_before = Timestamp(now.as_millis() + backoff_ms(later.tries));
    }

    fn put_down(&self, destination: &str, id: &OperationId) {
        if let Some(line) = self.lines().get_mut(destination) {
            line.in_hand.remove(id);
        }
        self.freed.notify_waiters();
    }
}
