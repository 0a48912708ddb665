//! Refused writes with their facts.

use super::{Conn, Error, Result, Tx, sql};
use crate::model::{
    conflict::Conflict,
    id::{AgentId, ConflictId},
};

pub async fn insert(tx: &mut Tx, agent: &AgentId, conflict: &Conflict) -> Result<()> {
    let now = tx.now();
    let record = serde_json::to_string(conflict).map_err(|e| Error::corrupt(e.to_string()))?;
    tx.execute(
        sql("INSERT INTO conflict (id, operation, agent, resource, record, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)")
        .bind(conflict.id.as_str())
        .bind(conflict.operation.as_str())
        .bind(agent.as_str())
        .bind(&conflict.resource)
        .bind(record)
        .bind(now),
    )
    .await?;
    Ok(())
}

pub async fn find(conn: &mut Conn, id: &ConflictId) -> Result<Option<Conflict>> {
    let query = sql("SELECT record FROM conflict WHERE id = $1").bind(id.as_str());
    conn.fetch_optional(query).await?.map(|row| row.json("record")).transpose()
}
