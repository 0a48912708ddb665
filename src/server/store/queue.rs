//! What the desk's lists count. Lapses that nobody has recorded yet are counted as what they are.

use super::{Conn, Result, sql};
use crate::model::time::Timestamp;

/// Operations by where they stand at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub pending: i64,
    /// Approved, and not sent yet or under way.
    pub approved: i64,
    /// Conflicts of the last day.
    pub conflicted: i64,
    pub unknown: i64,
    /// Undecided or not run, with a deadline before `soon`.
    pub expiring: i64,
}

pub async fn tally(conn: &mut Conn, now: Timestamp, soon: Timestamp) -> Result<Tally> {
    let yesterday = now.plus_seconds(-24 * 3600);
    let query = sql("SELECT \
         COALESCE(SUM(CASE WHEN state = 'pending' AND deadline_at > $1 THEN 1 ELSE 0 END), 0) AS pending, \
         COALESCE(SUM(CASE WHEN state IN ('approved', 'claimed', 'sent', 'accepted') AND deadline_at > $1 \
             THEN 1 ELSE 0 END), 0) AS approved, \
         COALESCE(SUM(CASE WHEN state = 'conflicted' AND updated_at > $3 THEN 1 ELSE 0 END), 0) AS conflicted, \
         COALESCE(SUM(CASE WHEN state IN ('unknown', 'needs_review') \
             OR (state IN ('sent', 'accepted') AND deadline_at <= $1) THEN 1 ELSE 0 END), 0) AS unknown, \
         COALESCE(SUM(CASE WHEN state IN ('pending', 'approved', 'claimed') AND deadline_at > $1 AND deadline_at <= $2 \
             THEN 1 ELSE 0 END), 0) AS expiring \
         FROM operation WHERE state IN ('pending', 'approved', 'claimed', 'sent', 'accepted', 'unknown', 'needs_review', \
         'conflicted')");
    let row = conn.fetch_optional(query.bind(now).bind(soon).bind(yesterday)).await?;
    let Some(row) = row else { return Ok(Tally::default()) };
    Ok(Tally {
        pending: row.int("pending")?,
        approved: row.int("approved")?,
        conflicted: row.int("conflicted")?,
        unknown: row.int("unknown")?,
        expiring: row.int("expiring")?,
    })
}
