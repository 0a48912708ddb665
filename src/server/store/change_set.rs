//! Change sets, what each waits for, and which operations compensate which.

use super::{Conn, Error, Result, Row, Tx, json, sql};
use crate::model::{
    change_set::{ChangeSet, Place},
    fingerprint::Fingerprint,
    id::{AgentId, ChangeSetId, OperationId, RunId},
    operation::Operation,
    time::Timestamp,
};

/// When the desk looks at a set again by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attention {
    /// When this operation is no longer the version that was seen.
    On(OperationId, i64),
    At(Timestamp),
    Never,
}

impl Attention {
    fn columns(&self) -> (Option<&str>, i64, Option<Timestamp>) {
        match self {
            Self::On(id, seen) => (Some(id.as_str()), *seen, None),
            Self::At(due) => (None, 0, Some(*due)),
            Self::Never => (None, 0, None),
        }
    }
}

fn read(row: &Row) -> Result<ChangeSet> {
    row.json("document")
}

pub async fn find(conn: &mut Conn, id: &ChangeSetId) -> Result<Option<ChangeSet>> {
    let query = sql("SELECT document FROM change_set WHERE id = $1").bind(id.as_str());
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

/// The set that a key is bound to, and the fingerprint of what it was opened with.
pub async fn by_key(conn: &mut Conn, agent: &AgentId, key: &str) -> Result<Option<(ChangeSet, Fingerprint)>> {
    let query = sql("SELECT document, fingerprint FROM change_set WHERE agent = $1 AND idempotency_key = $2");
    let row = conn.fetch_optional(query.bind(agent.as_str()).bind(key)).await?;
    row.map(|row| Ok((read(&row)?, row.parsed("fingerprint")?))).transpose()
}

/// The newest set that an operation was proposed for, and where in it.
pub async fn of_operation(conn: &mut Conn, op: &OperationId) -> Result<Option<(ChangeSet, Place)>> {
    let query = sql("SELECT change_set.document AS document, change_set_operation.place AS place \
                     FROM change_set_operation JOIN change_set ON change_set.id = change_set_operation.change_set \
                     WHERE change_set_operation.operation = $1 ORDER BY change_set.id DESC LIMIT 1");
    let row = conn.fetch_optional(query.bind(op.as_str())).await?;
    row.map(|row| Ok((read(&row)?, row.json("place")?))).transpose()
}

/// The sets for which a run has proposed something, the newest first.
pub async fn of_run(conn: &mut Conn, run: &RunId, limit: i64) -> Result<Vec<ChangeSet>> {
    let query = sql("SELECT document FROM change_set WHERE id IN (\
                     SELECT change_set_operation.change_set FROM change_set_operation \
                     JOIN operation ON operation.id = change_set_operation.operation WHERE operation.run = $1) \
                     ORDER BY id DESC LIMIT $2");
    conn.fetch_all(query.bind(run.as_str()).bind(limit)).await?.iter().map(read).collect()
}

/// Those that wait for a person, the oldest first.
pub async fn stuck(conn: &mut Conn, limit: i64) -> Result<Vec<ChangeSet>> {
    let query = sql("SELECT document FROM change_set WHERE state = 'stuck' ORDER BY id LIMIT $1");
    conn.fetch_all(query.bind(limit)).await?.iter().map(read).collect()
}

/// All operations that were proposed for a set, the oldest first.
pub async fn operations(conn: &mut Conn, id: &ChangeSetId) -> Result<Vec<(OperationId, Place)>> {
    let query = sql("SELECT operation, place FROM change_set_operation WHERE change_set = $1 ORDER BY operation");
    let rows = conn.fetch_all(query.bind(id.as_str())).await?;
    rows.iter().map(|row| Ok((row.parsed("operation")?, row.json("place")?))).collect()
}

/// What is awaited is the set's own.
async fn keep(tx: &mut Tx, set: &ChangeSet, attention: &Attention) -> Result<()> {
    let Attention::On(id, _) = attention else { return Ok(()) };
    let Some(place) = set.place_of(id) else { return Ok(()) };
    let query = sql("INSERT INTO change_set_operation (operation, change_set, place) VALUES ($1, $2, $3) \
                     ON CONFLICT (operation, change_set) DO NOTHING");
    tx.execute(query.bind(id.as_str()).bind(set.id.as_str()).bind(json(&place)?)).await?;
    Ok(())
}

/// What the key of a new set is bound to.
pub struct Bound<'a> {
    pub key: &'a str,
    pub fingerprint: &'a Fingerprint,
}

pub async fn insert(tx: &mut Tx, set: &ChangeSet, bound: Bound<'_>, attention: &Attention) -> Result<()> {
    let (awaits, seen, due_at) = attention.columns();
    tx.execute(
        sql("INSERT INTO change_set (id, agent, idempotency_key, fingerprint, state, version, awaits, seen, due_at, \
             document) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
        .bind(set.id.as_str())
        .bind(set.agent.as_str())
        .bind(bound.key)
        .bind(bound.fingerprint.as_str())
        .bind(set.state.as_str())
        .bind(set.version)
        .bind(awaits)
        .bind(seen)
        .bind(due_at)
        .bind(json(set)?),
    )
    .await?;
    keep(tx, set, attention).await
}

/// Stores what has become of a set that was read as version `before`.
///
/// # Errors
/// When the stored set is another version.
pub async fn update(tx: &mut Tx, set: &ChangeSet, before: i64, attention: &Attention) -> Result<()> {
    let (awaits, seen, due_at) = attention.columns();
    let changed = tx
        .execute(
            sql("UPDATE change_set SET state = $1, version = $2, awaits = $3, seen = $4, due_at = $5, document = $6 \
                 WHERE id = $7 AND version = $8")
            .bind(set.state.as_str())
            .bind(set.version)
            .bind(awaits)
            .bind(seen)
            .bind(due_at)
            .bind(json(set)?)
            .bind(set.id.as_str())
            .bind(before),
        )
        .await?;
    match changed {
        1 => keep(tx, set, attention).await,
        _ => Err(Error::corrupt(format!("`{}` changed under a command", set.id))),
    }
}

/// Sets for which something may be next.
pub async fn due(conn: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<ChangeSetId>> {
    let query = sql("SELECT change_set.id AS id FROM change_set \
                     LEFT JOIN operation ON operation.id = change_set.awaits \
                     WHERE change_set.state IN ('open', 'compensating') \
                     AND (operation.version <> change_set.seen OR change_set.due_at <= $1) \
                     ORDER BY change_set.due_at, change_set.id LIMIT $2");
    conn.fetch_all(query.bind(now).bind(limit)).await?.iter().map(|row| row.parsed("id")).collect()
}

/// Notes that `op` is to make good for another.
pub async fn compensates(tx: &mut Tx, op: &Operation, other: &OperationId) -> Result<()> {
    let query = sql("INSERT INTO compensation (operation, compensates, seen) VALUES ($1, $2, 0)");
    tx.execute(query.bind(op.id().as_str()).bind(other.as_str())).await?;
    Ok(())
}

/// The operations that are to make good for another.
pub async fn compensating(conn: &mut Conn, id: &OperationId) -> Result<Vec<OperationId>> {
    let query = sql("SELECT operation FROM compensation WHERE compensates = $1 ORDER BY operation");
    conn.fetch_all(query.bind(id.as_str())).await?.iter().map(|row| row.parsed("operation")).collect()
}

/// Compensations that have changed since what they compensate was last told, with that.
pub async fn untold(conn: &mut Conn, limit: i64) -> Result<Vec<(OperationId, OperationId)>> {
    let query = sql("SELECT compensation.operation AS operation, compensation.compensates AS compensates \
                     FROM compensation JOIN operation ON operation.id = compensation.operation \
                     WHERE operation.version <> compensation.seen ORDER BY compensation.operation LIMIT $1");
    let rows = conn.fetch_all(query.bind(limit)).await?;
    rows.iter().map(|row| Ok((row.parsed("operation")?, row.parsed("compensates")?))).collect()
}

pub async fn told(tx: &mut Tx, op: &Operation) -> Result<()> {
    let query = sql("UPDATE compensation SET seen = $1 WHERE operation = $2");
    tx.execute(query.bind(op.life.version).bind(op.id().as_str())).await?;
    Ok(())
}
