//! When a destination that does not answer is tried again.

use crate::{model::time::Timestamp, server::ids};

/// Failures in a row after which nothing more is claimed for a destination.
const OPEN_AFTER: u32 = 3;
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 60_000;

/// How requests to one destination have gone lately.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Circuit {
    failures: u32,
    is_proven: bool,
    retry_at: Timestamp,
    words: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Requests go out.
    Closed,
    /// Nothing is claimed before this time.
    Open { until: Timestamp },
    /// One request at a time finds out.
    HalfOpen,
}

impl CircuitState {
    /// As the measures have it.
    pub fn as_number(self) -> f64 {
        match self {
            Self::Closed => 0.0,
            Self::HalfOpen => 1.0,
            Self::Open { .. } => 2.0,
        }
    }
}

impl Circuit {
    pub fn state(&self, now: Timestamp) -> CircuitState {
        match self.failures {
            0..OPEN_AFTER => CircuitState::Closed,
            _ if now < self.retry_at => CircuitState::Open { until: self.retry_at },
            _ => CircuitState::HalfOpen,
        }
    }

    /// What the last failure was, while there has been no answer since.
    pub fn words(&self) -> Option<&str> {
        self.words.as_deref()
    }

    /// The last request was answered, so that the next one is likely to find somebody.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Requests that may be under way, of `most`.
    pub fn places(&self, most: usize, now: Timestamp) -> usize {
        match self.state(now) {
            CircuitState::Closed => most,
            CircuitState::Open { .. } => 0,
            CircuitState::HalfOpen => 1,
        }
    }

    pub fn answered(&mut self) {
        *self = Self { is_proven: true, ..Self::default() };
    }

    pub fn failed(&mut self, words: String, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.is_proven = false;
        self.retry_at = Timestamp(now.as_millis() + backoff_ms(self.failures));
        self.words = Some(words);
    }
}

/// Milliseconds until the next try after so many that came to nothing: twice as long each time, and by chance up to
/// half of that shorter, so that what failed together does not come back together.
pub fn backoff_ms(tries: u32) -> i64 {
    let whole = FIRST_PAUSE_MS.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(LONGEST_PAUSE_MS);
    whole - i64::from(u16::from_le_bytes(ids::random())) * (whole / 2) / i64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn a_circuit_opens_after_failures_in_a_row_and_lets_one_request_find_out() {
        let mut circuit = Circuit::default();
        for _ in 1..OPEN_AFTER {
            circuit.failed("no".to_owned(), NOW);
            assert_eq!(circuit.places(8, NOW), 8);
        }
        circuit.failed("no connection was made".to_owned(), NOW);
        let CircuitState::Open { until } = circuit.state(NOW) else { panic!("it is closed") };
        assert_eq!((circuit.places(8, NOW), circuit.words()), (0, Some("no connection was made")));
        assert_eq!((circuit.state(until), circuit.places(8, until)), (CircuitState::HalfOpen, 1));
        circuit.failed("no".to_owned(), until);
        assert!(matches!(circuit.state(until), CircuitState::Open { .. }));
        circuit.answered();
        assert_eq!((circuit.state(until), circuit.words(), circuit.is_proven()), (CircuitState::Closed, None, true));
    }

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        for tries in 1..40 {
            let whole = (1_000_i64 << (tries - 1).min(16)).min(60_000);
            assert!((whole / 2..=whole).contains(&backoff_ms(tries)), "{tries}");
        }
        assert!((0..100).map(|_| backoff_ms(20)).collect::<std::collections::HashSet<_>>().len() > 10);
    }
}
