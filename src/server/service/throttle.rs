//! How often something may happen: per account, per address, per agent.

use std::{collections::HashMap, hash::Hash, sync::Mutex};

use crate::model::time::Timestamp;

/// Keys remembered at most. A key that is forgotten starts afresh.
const MAX_KEYS: usize = 10_000;

/// A token bucket for each key (as GCRA: one number a key, the time at which its bucket is full again).
pub struct Throttle<K> {
    /// Microseconds in which one token comes back.
    interval: i64,
    /// Microseconds in which an empty bucket fills.
    depth: i64,
    full_at: Mutex<HashMap<K, i64>>,
}

impl<K: Hash + Eq + Clone> Throttle<K> {
    /// `burst` at once, and `per_minute` in the long run.
    pub fn new(burst: i64, per_minute: i64) -> Self {
        let interval = 60_000_000 / per_minute.max(1);
        Self { interval, depth: interval * burst, full_at: Mutex::default() }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// Seconds until there is one again, at least 1.
    pub fn take(&self, key: &K, now: Timestamp) -> Result<(), i64> {
        let now = now.as_millis() * 1000;
        let mut full_at = self.lock();
        let next = full_at.get(key).copied().unwrap_or(now).max(now) + self.interval;
        let wait = next - now - self.depth;
        if wait > 0 {
            return Err(wait.div_euclid(1_000_000) + 1);
        }
        if full_at.len() >= MAX_KEYS && !full_at.contains_key(key) {
            make_room(&mut full_at, now);
        }
        full_at.insert(key.clone(), next);
        Ok(())
    }

    /// Puts a token back: what it was taken for was in order.
    pub fn give_back(&self, key: &K) {
        if let Some(full_at) = self.lock().get_mut(key) {
            *full_at -= self.interval;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, i64>> {
        self.full_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Forgets the full buckets, or else the one closest to full: whoever is held back stays so.
fn make_room<K: Hash + Eq + Clone>(full_at: &mut HashMap<K, i64>, now: i64) {
    full_at.retain(|_, at| *at > now);
    if full_at.len() >= MAX_KEYS
        && let Some(key) = full_at.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
    {
        full_at.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let throttle = Throttle::new(3, 6);
        let at = |ms| throttle.take(&"a", Timestamp(ms));
        assert_eq!([at(0), at(0), at(0)], [Ok(()); 3]);
        assert_eq!(at(0), Err(11));
        assert_eq!(at(9_999), Err(1));
        assert_eq!(at(10_000), Ok(()));
        assert_eq!(at(10_000), Err(11));
        assert_eq!(throttle.take(&"b", Timestamp(10_000)), Ok(()));
    }

    #[test]
    fn a_refusal_costs_nothing_and_a_token_can_be_given_back() {
        let throttle = Throttle::new(1, 60);
        assert_eq!(throttle.take(&"a", Timestamp(0)), Ok(()));
        assert!((0..100).all(|_| throttle.take(&"a", Timestamp(0)).is_err()));
        throttle.give_back(&"a");
        assert_eq!(throttle.take(&"a", Timestamp(0)), Ok(()));
    }

    #[test]
    fn a_flood_of_keys_neither_grows_it_nor_frees_the_one_held_back() {
        let throttle = Throttle::new(2, 1);
        let now = Timestamp(0);
        assert_eq!([throttle.take(&-1, now), throttle.take(&-1, now)], [Ok(()); 2]);
        for key in 0..MAX_KEYS as i64 + 10 {
            assert_eq!(throttle.take(&key, now), Ok(()));
        }
        assert!(throttle.lock().len() <= MAX_KEYS);
        assert!(throttle.take(&-1, now).is_err());
    }
}
