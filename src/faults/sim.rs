//! Simulated time, and chance that a seed repeats.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use counterfoil::server::clock::Clock;
use futures::future::join_all;
use tokio::sync::oneshot;

/// Milliseconds between two instants at which somebody can wake up: those who wake together work together.
const GRID_MS: i64 = 1_000;

/// A clock that moves to the next waking once everybody sleeps.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    awake: usize,
    sleepers: BTreeMap<i64, Vec<oneshot::Sender<()>>>,
}

impl Sim {
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, state: Mutex::default() }))
    }

    /// Milliseconds.
    pub fn now(&self) -> i64 {
        self.0.clock.now().as_millis()
    }

    pub async fn sleep_ms(&self, ms: i64) {
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.0.state.lock().unwrap();
            let at = (self.now() + ms.max(1) + GRID_MS - 1) / GRID_MS * GRID_MS;
            state.sleepers.entry(at).or_default().push(wake);
            self.leave(&mut state);
        }
        woken.await.unwrap();
    }

    fn leave(&self, state: &mut State) {
        state.awake -= 1;
        if state.awake == 0
            && let Some((at, sleepers)) = state.sleepers.pop_first()
        {
            self.0.clock.advance_ms(at - self.now());
            state.awake = sleepers.len();
            sleepers.into_iter().for_each(|wake| wake.send(()).unwrap());
        }
    }

    /// From outside: runs them all to their end.
    pub async fn run<T>(&self, actors: Vec<impl Future<Output = T>>) -> Vec<T> {
        self.0.state.lock().unwrap().awake += 1;
        let results = self.all(actors).await;
        self.0.state.lock().unwrap().awake -= 1;
        results
    }

    /// From within one actor: several at once, in its place.
    pub async fn all<T>(&self, actors: Vec<impl Future<Output = T>>) -> Vec<T> {
        let left = AtomicUsize::new(actors.len());
        self.0.state.lock().unwrap().awake += actors.len() - 1;
        let each = actors.into_iter().map(async |actor| {
            let result = actor.await;
            if left.fetch_sub(1, Ordering::SeqCst) > 1 {
                self.leave(&mut self.0.state.lock().unwrap());
            }
            result
        });
        join_all(each).await
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Milliseconds up to `limit_ms`: every second seed a fixed delay, the others drawn from a Pareto distribution with
    /// shape 1.2, most of them short and some very long.
    pub fn delay_ms(&mut self, least_ms: i64, limit_ms: i64) -> i64 {
        let heavy = self.next().is_multiple_of(2);
        let drawn = if heavy { least_ms as f64 * (1.0 - self.unit()).powf(-1.0 / 1.2) } else { 3.0 * least_ms as f64 };
        (drawn as i64).min(limit_ms)
    }
}
