//! Named points at which a test can hold a command in the middle. Nothing of this is in a release build.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Where to stop, from `COUNTERFOIL_FAULT=<point>:<marker file>`.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    stop_at: Option<Arc<Stop>>,
}

#[derive(Debug)]
struct Stop {
    point: String,
    marker: PathBuf,
    reached: AtomicBool,
}

impl Faults {
    pub fn from_env() -> Self {
        let setting = if cfg!(debug_assertions) { std::env::var("COUNTERFOIL_FAULT").ok() } else { None };
        let stop_at = setting.and_then(|text| {
            let (point, marker) = text.split_once(':')?;
            Some(Arc::new(Stop { point: point.to_owned(), marker: marker.into(), reached: AtomicBool::new(false) }))
        });
        Self { stop_at }
    }

    /// If this is the point to stop at, the first who comes here makes the marker and waits to be killed, or until the
    /// marker is taken away.
    pub async fn reach(&self, point: &str) {
        if let Some(stop) = self.stop_at.as_deref()
            && stop.point == point
            && !stop.reached.swap(true, Ordering::Relaxed)
            && std::fs::write(&stop.marker, point).is_ok()
        {
            while stop.marker.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
