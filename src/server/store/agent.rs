//! Agents: programs' principals, each with a human owner.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Conn, Result, Row, Tx, sql};
use crate::model::{
    id::{AgentId, PersonId},
    run::Allowance,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Agent {
    #[schema(value_type = String)]
    pub id: AgentId,
    pub name: String,
    #[schema(value_type = String)]
    pub owner: PersonId,
    pub owner_name: String,
    /// What its runs may be granted at most; `null` sets no limit, and lets nothing through without a person.
    pub allow: Option<Vec<Allowance>>,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

const SELECT: &str = "SELECT agent.*, person.name AS owner_name FROM agent JOIN person ON person.id = agent.owner";

fn read(row: &Row) -> Result<Agent> {
    Ok(Agent {
        id: row.parsed("id")?,
        name: row.text("name")?,
        owner: row.parsed("owner")?,
        owner_name: row.text("owner_name")?,
        allow: row.opt_json("allow")?,
        created_at: Timestamp(row.int("created_at")?),
        revoked_at: row.opt_int("revoked_at")?.map(Timestamp),
    })
}

async fn one(conn: &mut Conn, condition: &str, value: &str) -> Result<Option<Agent>> {
    let query = super::Sql::assembled(format!("{SELECT} WHERE {condition} = $1")).bind(value);
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

pub async fn by_id(conn: &mut Conn, id: &AgentId) -> Result<Option<Agent>> {
    one(conn, "agent.id", id.as_str()).await
}

pub async fn by_name(conn: &mut Conn, name: &str) -> Result<Option<Agent>> {
    one(conn, "agent.name", name).await
}

pub async fn by_token(conn: &mut Conn, token_hash: &str) -> Result<Option<Agent>> {
    one(conn, "agent.token_hash", token_hash).await
}

/// All agents, by name.
pub async fn list(conn: &mut Conn) -> Result<Vec<Agent>> {
    conn.fetch_all(super::Sql::assembled(format!("{SELECT} ORDER BY agent.name"))).await?.iter().map(read).collect()
}

/// Whether the agent is new: false when the name is taken.
pub async fn insert(tx: &mut Tx, agent: &Agent, token_hash: &str) -> Result<bool> {
    let inserted = tx
        .execute(
            sql("INSERT INTO agent (id, name, owner, token_hash, allow, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
                 ON CONFLICT (name) DO NOTHING")
            .bind(agent.id.as_str())
            .bind(&agent.name)
            .bind(agent.owner.as_str())
            .bind(token_hash)
            .bind(agent.allow.as_ref().map(super::json).transpose()?)
            .bind(agent.created_at),
        )
        .await?;
    Ok(inserted == 1)
}

pub async fn update(tx: &mut Tx, agent: &Agent) -> Result<()> {
    tx.execute(
        sql("UPDATE agent SET owner = $1, allow = $2, revoked_at = $3 WHERE id = $4")
            .bind(agent.owner.as_str())
            .bind(agent.allow.as_ref().map(super::json).transpose()?)
            .bind(agent.revoked_at)
            .bind(agent.id.as_str()),
    )
    .await?;
    Ok(())
}
