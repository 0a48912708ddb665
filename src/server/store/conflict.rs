//! Refused writes with their facts.

use super::{Conn, Result, Sql, Tx, json, sql};
use crate::model::{
    conflict::{Conflict, ConflictState},
    id::{AgentId, ConflictId, RunId},
};

/// Stores conflicts, each with the agent whose write was refused.
pub async fn insert(tx: &mut Tx, conflicts: &[(&AgentId, Conflict)]) -> Result<()> {
    let now = tx.now();
    let row = |(agent, conflict): &(&AgentId, Conflict)| {
        Ok(vec![
            conflict.id.as_str().into(),
            conflict.operation.as_str().into(),
            agent.as_str().into(),
            (&conflict.resource).into(),
            (&conflict.kind).into(),
            conflict.code.as_str().into(),
            conflict.state().as_str().into(),
            conflict.met.author.agent.as_ref().map(|id| id.as_str()).into(),
            json(conflict)?.into(),
            now.into(),
        ])
    };
    let rows = conflicts.iter().map(row).collect::<Result<Vec<_>>>()?;
    let into =
        "INSERT INTO conflict (id, operation, agent, resource, kind, code, state, met_agent, record, created_at)";
    tx.execute_rows(into, &rows, "").await.map(drop)
}

/// Stores how the conflict was resolved; `false` when it was resolved before.
pub async fn resolve(tx: &mut Tx, conflict: &Conflict) -> Result<bool> {
    let changed = tx
        .execute(
            sql("UPDATE conflict SET state = 'resolved', record = $1 WHERE id = $2 AND state = 'open'")
                .bind(json(conflict)?)
                .bind(conflict.id.as_str()),
        )
        .await?;
    Ok(changed == 1)
}

pub async fn find(conn: &mut Conn, id: &ConflictId) -> Result<Option<Conflict>> {
    let query = sql("SELECT record FROM conflict WHERE id = $1").bind(id.as_str());
    conn.fetch_optional(query).await?.map(|row| row.json("record")).transpose()
}

/// Which conflicts a list shows.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub state: Option<ConflictState>,
    pub kind: Option<String>,
    pub target: Option<String>,
    /// Whose write was refused.
    pub agent: Option<AgentId>,
    pub run: Option<RunId>,
    /// Part of a resource.
    pub q: Option<String>,
    /// Only what is older than this one.
    pub before: Option<ConflictId>,
    pub limit: i64,
}

/// A conflict in a list, with what is stored beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub conflict: Conflict,
    pub kind: String,
    /// Whose write was refused.
    pub agent: AgentId,
    /// Whose change it met.
    pub met_agent: Option<AgentId>,
}

/// One page, the newest first.
pub async fn list(conn: &mut Conn, filter: &Filter) -> Result<Vec<Listed>> {
    let mut values = Vec::new();
    let mut clauses = String::new();
    for (column, value) in [
        ("state =", filter.state.map(|state| state.as_str().to_owned())),
        ("kind =", filter.kind.clone()),
        ("resource =", filter.target.clone()),
        ("agent =", filter.agent.as_ref().map(ToString::to_string)),
        ("id <", filter.before.as_ref().map(ToString::to_string)),
    ] {
        let Some(value) = value else { continue };
        values.push(value);
        clauses.push_str(&format!(" AND {column} ${}", values.len()));
    }
    if let Some(run) = &filter.run {
        values.push(run.to_string());
        clauses.push_str(&format!(" AND operation IN (SELECT id FROM operation WHERE run = ${})", values.len()));
    }
    if let Some(q) = &filter.q {
        let escaped = q.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        values.push(format!("%{escaped}%"));
        clauses.push_str(&format!(" AND lower(resource) LIKE ${} ESCAPE '\\'", values.len()));
    }
    let query = format!(
        "SELECT record, kind, agent, met_agent FROM conflict WHERE 1 = 1{clauses} ORDER BY id DESC LIMIT {}",
        filter.limit.clamp(1, 1000)
    );
    let rows = conn.fetch_all(values.into_iter().fold(Sql::assembled(query), Sql::bind)).await?;
    rows.iter()
        .map(|row| {
            let met_agent = if row.opt_text("met_agent")?.is_some() { Some(row.parsed("met_agent")?) } else { None };
            Ok(Listed {
                conflict: row.json("record")?,
                kind: row.text("kind")?,
                agent: row.parsed("agent")?,
                met_agent,
            })
        })
        .collect()
}

/// How many wait for somebody.
pub async fn count_open(conn: &mut Conn) -> Result<i64> {
    conn.fetch_int(sql("SELECT COUNT(*) FROM conflict WHERE state = 'open'")).await
}
