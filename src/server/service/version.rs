//! Versions of targets that live elsewhere: what the last outcome or an observer reported.

use super::By;
use crate::{
    model::{
        operation::{State, rules},
        resource::Author,
    },
    server::store::{self, Tx, operation, resource},
};

/// Records that `target` is at `version` now. Every waiting operation that was planned on an older one ends as
/// conflicted in the same transaction: its reviewers see it before they click.
pub async fn observe(tx: &mut Tx, by: &By, target: &str, version: i64, author: &Author) -> store::Result<()> {
    if resource::observe(tx, target, version, &by.actor.id, author).await? {
        overtake(tx, by, target, version).await?;
    }
    Ok(())
}

/// Ends what waits for an older version of `target` than the one it has now.
pub async fn overtake(tx: &mut Tx, by: &By, target: &str, version: i64) -> store::Result<()> {
    let now = tx.now();
    for op in operation::waiting_on_target(tx, target).await? {
        let waits = matches!(rules::state_at(&op, now), State::Pending | State::Approved);
        let planned_on_older = op.proposal.expected_version.is_some_and(|expected| expected < version);
        if let (true, Some(step)) = (waits && planned_on_older, rules::stale(&op, now)) {
            operation::apply(tx, &op, by.step(step)).await?;
        }
    }
    Ok(())
}
