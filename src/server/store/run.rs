//! Runs: one process of an agent each, with its own credential.

use super::{Conn, Result, Row, Tx, sql};
use crate::model::{
    id::{AgentId, RunId},
    run::{RunStatus, Scope, WriteGrant},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub agent: AgentId,
    pub agent_name: String,
    pub label: String,
    pub write_set: Option<Vec<WriteGrant>>,
    /// What the run reads and what it relies on as shared defaults: declared, for the conflict map.
    pub reads: Option<Vec<Scope>>,
    pub defaults: Option<Vec<Scope>>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub stopped: Option<Stopped>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub at: Timestamp,
    /// The id of who stopped it.
    pub by: String,
    pub reason: String,
}

impl Run {
    pub fn status(&self, now: Timestamp) -> RunStatus {
        RunStatus::at(now, self.expires_at, self.stopped.as_ref().map(|stopped| stopped.at))
    }
}

const SELECT: &str = "SELECT run.*, agent.name AS agent_name FROM run JOIN agent ON agent.id = run.agent";

fn read(row: &Row) -> Result<Run> {
    let stopped = match row.opt_int("stopped_at")? {
        None => None,
        Some(at) => Some(Stopped { at: Timestamp(at), by: row.text("stopped_by")?, reason: row.text("stop_reason")? }),
    };
    Ok(Run {
        id: row.parsed("id")?,
        agent: row.parsed("agent")?,
        agent_name: row.text("agent_name")?,
        label: row.text("label")?,
        write_set: row.opt_json("write_set")?,
        reads: row.opt_json("reads")?,
        defaults: row.opt_json("defaults")?,
        created_at: Timestamp(row.int("created_at")?),
        expires_at: Timestamp(row.int("expires_at")?),
        stopped,
    })
}

async fn one(conn: &mut Conn, condition: &str, value: &str) -> Result<Option<Run>> {
    let query = super::Sql::assembled(format!("{SELECT} WHERE {condition} = $1")).bind(value);
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

pub async fn by_id(conn: &mut Conn, id: &RunId) -> Result<Option<Run>> {
    one(conn, "run.id", id.as_str()).await
}

pub async fn by_token(conn: &mut Conn, token_hash: &str) -> Result<Option<Run>> {
    one(conn, "run.token_hash", token_hash).await
}

/// Runs of programs, the newest first, `limit` at most; of one agent, and older than `before`, where given.
pub async fn list(conn: &mut Conn, agent: Option<&AgentId>, before: Option<&RunId>, limit: i64) -> Result<Vec<Run>> {
    let query = super::Sql::assembled(format!(
        "{SELECT} WHERE agent.person IS NULL AND ($1 IS NULL OR run.agent = $1) AND ($2 IS NULL OR run.id < $2) \
         ORDER BY run.id DESC LIMIT $3"
    ));
    let query = query.bind(agent.map(AgentId::as_str)).bind(before.map(RunId::as_str)).bind(limit);
    conn.fetch_all(query).await?.iter().map(read).collect()
}

/// Live runs of agents that are not revoked, the newest first, `limit` at most.
pub async fn live(conn: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<Run>> {
    let query = super::Sql::assembled(format!(
        "{SELECT} WHERE run.stopped_at IS NULL AND run.expires_at > $1 AND agent.revoked_at IS NULL \
         ORDER BY run.id DESC LIMIT $2"
    ));
    conn.fetch_all(query.bind(now).bind(limit)).await?.iter().map(read).collect()
}

pub async fn insert(tx: &mut Tx, run: &Run, token_hash: &str) -> Result<()> {
    tx.execute(
        sql("INSERT INTO run (id, agent, label, token_hash, write_set, reads, defaults, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
        .bind(run.id.as_str())
        .bind(run.agent.as_str())
        .bind(&run.label)
        .bind(token_hash)
        .bind(run.write_set.as_ref().map(super::json).transpose()?)
        .bind(run.reads.as_ref().map(super::json).transpose()?)
        .bind(run.defaults.as_ref().map(super::json).transpose()?)
        .bind(run.created_at)
        .bind(run.expires_at),
    )
    .await?;
    Ok(())
}

/// Whether this call stopped it: false when it was stopped before.
pub async fn stop(tx: &mut Tx, id: &RunId, stopped: &Stopped) -> Result<bool> {
    let changed = tx
        .execute(
            sql("UPDATE run SET stopped_at = $1, stopped_by = $2, stop_reason = $3 WHERE id = $4 AND stopped_at IS NULL")
                .bind(stopped.at)
                .bind(&stopped.by)
                .bind(&stopped.reason)
                .bind(id.as_str()),
        )
        .await?;
    Ok(changed == 1)
}

/// Runs that have stopped or expired and left something unsent.
pub async fn ended_with_unsent(conn: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<RunId>> {
    let query = sql("SELECT DISTINCT run.id AS id FROM run JOIN operation ON operation.run = run.id \
                     WHERE operation.state IN ('pending', 'approved', 'claimed') \
                     AND (run.expires_at <= $1 OR run.stopped_at IS NOT NULL) LIMIT $2");
    conn.fetch_all(query.bind(now).bind(limit)).await?.iter().map(|row| row.parsed("id")).collect()
}
