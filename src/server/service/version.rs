//! Versions of targets that live elsewhere: what the last outcome or an observer reported.

use super::{By, conflict};
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
    let waiting = operation::waiting_on_target(tx, target).await?;
    let met = conflict::met(tx, target).await?;
    let refused = waiting.iter().filter_map(|op| {
        let waits = matches!(rules::state_at(op, now), State::Pending | State::Approved);
        let expected = op.proposal.expected_version.filter(|expected| waits && *expected < version)?;
        Some((op, rules::stale(op, now)?, rules::stale_version(target, expected, version)))
    });
    conflict::end_all(tx, by, refused.collect(), &met).await?;
    Ok(())
}
