//! Agents: programs' principals, each with a human owner.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Conn, Result, Row, Tx, sql};
use crate::model::{
    id::{AgentId, PersonId, RunId},
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

/// The agents that are programs, by name.
pub async fn list(conn: &mut Conn) -> Result<Vec<Agent>> {
    let query = format!("{SELECT} WHERE agent.person IS NULL ORDER BY agent.name");
    conn.fetch_all(super::Sql::assembled(query)).await?.iter().map(read).collect()
}

/// The same, and those through which people write by hand.
pub async fn all(conn: &mut Conn) -> Result<Vec<Agent>> {
    conn.fetch_all(super::Sql::assembled(format!("{SELECT} ORDER BY agent.name"))).await?.iter().map(read).collect()
}

/// The agent and the run through which a person writes by hand, once they have.
pub async fn by_hand(conn: &mut Conn, person: &PersonId) -> Result<Option<(Agent, RunId)>> {
    let query = sql("SELECT agent.id AS agent, run.id AS run FROM agent JOIN run ON run.agent = agent.id \
                     WHERE agent.person = $1");
    let Some(row) = conn.fetch_optional(query.bind(person.as_str())).await? else { return Ok(None) };
    let agent = by_id(conn, &row.parsed("agent")?).await?;
    let run = row.parsed("run")?;
    Ok(agent.map(|agent| (agent, run)))
}

/// Marks an agent as the one through which its owner writes by hand.
pub async fn give_to(tx: &mut Tx, agent: &AgentId, person: &PersonId) -> Result<()> {
    let mark = sql("UPDATE agent SET person = $1 WHERE id = $2").bind(person.as_str()).bind(agent.as_str());
    tx.execute(mark).await.map(drop)
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
