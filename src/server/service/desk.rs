//! What pages show: read models over the store, with lapses decided as of the page's moment.

use super::{Desk, error::Result};
use crate::{
    model::time::Timestamp,
    server::store::queue::{self, Tally},
};

/// What the top bar counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the last day.
    pub conflicts: i64,
    pub unknown: i64,
}

pub async fn counts(desk: &Desk, now: Timestamp) -> Result<Counts> {
    let Tally { conflicted, unknown, .. } = queue::tally(&mut desk.store.read().await?, now, now).await?;
    Ok(Counts { conflicts: conflicted, unknown })
}
