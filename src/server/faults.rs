//! Named points at which a test can stop the process for good. Nothing of this is in a release build.

use std::path::PathBuf;

/// Where to stop, from `COUNTERFOIL_FAULT=<point>:<marker file>`.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    stop_at: Option<(String, PathBuf)>,
}

impl Faults {
    pub fn from_env() -> Self {
        let setting = if cfg!(debug_assertions) { std::env::var("COUNTERFOIL_FAULT").ok() } else { None };
        let stop_at = setting.and_then(|text| {
            let (point, marker) = text.split_once(':')?;
            Some((point.to_owned(), PathBuf::from(marker)))
        });
        Self { stop_at }
    }

    /// Reports that `point` was reached, and waits there to be killed, if this is the point to stop at.
    pub async fn reach(&self, point: &str) {
        if let Some((wanted, marker)) = &self.stop_at
            && wanted == point
            && std::fs::write(marker, point).is_ok()
        {
            std::future::pending::<()>().await;
        }
    }
}
