//! What people have approved of a run ahead of time.

use super::{Conn, Result, Row, Sql, Tx, sql};
use crate::model::{
    id::{ApprovalId, PersonId, RunId},
    run_approval::{Revoked, RunApproval},
    time::Timestamp,
};

const SELECT: &str = "SELECT run_approval.*, person.name AS by_name FROM run_approval \
                      JOIN person ON person.id = run_approval.granted_by";

fn read(row: &Row) -> Result<RunApproval> {
    let revoked = match row.opt_int("revoked_at")? {
        None => None,
        Some(at) => Some(Revoked { at: Timestamp(at), by: row.parsed("revoked_by")? }),
    };
    Ok(RunApproval {
        id: row.parsed("id")?,
        run: row.parsed("run")?,
        kinds: row.json("kinds")?,
        targets: row.json("targets")?,
        max_count: row.int("max_count")?,
        used: row.int("used")?,
        reason: row.opt_text("reason")?,
        by: row.parsed("granted_by")?,
        by_name: row.text("by_name")?,
        created_at: Timestamp(row.int("created_at")?),
        expires_at: Timestamp(row.int("expires_at")?),
        revoked,
    })
}

pub async fn insert(tx: &mut Tx, approval: &RunApproval) -> Result<()> {
    tx.execute(
        sql("INSERT INTO run_approval (id, run, kinds, targets, max_count, used, reason, granted_by, created_at, \
             expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
        .bind(approval.id.as_str())
        .bind(approval.run.as_str())
        .bind(super::json(&approval.kinds)?)
        .bind(super::json(&approval.targets)?)
        .bind(approval.max_count)
        .bind(approval.used)
        .bind(approval.reason.as_deref())
        .bind(approval.by.as_str())
        .bind(approval.created_at)
        .bind(approval.expires_at),
    )
    .await?;
    Ok(())
}

pub async fn find(conn: &mut Conn, id: &ApprovalId) -> Result<Option<RunApproval>> {
    let query = Sql::assembled(format!("{SELECT} WHERE run_approval.id = $1")).bind(id.as_str());
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

/// All of a run, the oldest first.
pub async fn of_run(conn: &mut Conn, run: &RunId) -> Result<Vec<RunApproval>> {
    let query = Sql::assembled(format!("{SELECT} WHERE run_approval.run = $1 ORDER BY run_approval.id"));
    conn.fetch_all(query.bind(run.as_str())).await?.iter().map(read).collect()
}

/// Uses one up; `false` when none is left, or the record is no longer open.
pub async fn count(tx: &mut Tx, id: &ApprovalId) -> Result<bool> {
    let now = tx.now();
    let counted = tx
        .execute(
            sql("UPDATE run_approval SET used = used + 1 WHERE id = $1 AND used < max_count AND revoked_at IS NULL \
                 AND expires_at > $2")
            .bind(id.as_str())
            .bind(now),
        )
        .await?;
    Ok(counted == 1)
}

/// Whether this call revoked it: false when it was revoked before.
pub async fn revoke(tx: &mut Tx, id: &ApprovalId, by: &PersonId) -> Result<bool> {
    let now = tx.now();
    let revoked = tx
        .execute(
            sql("UPDATE run_approval SET revoked_at = $1, revoked_by = $2 WHERE id = $3 AND revoked_at IS NULL")
                .bind(now)
                .bind(by.as_str())
                .bind(id.as_str()),
        )
        .await?;
    Ok(revoked == 1)
}
