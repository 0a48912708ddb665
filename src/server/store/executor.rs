//! Executors: principals that may claim operations of named kinds.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Conn, Result, Row, Tx, sql};
use crate::model::{id::ExecutorId, time::Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Executor {
    #[schema(value_type = String)]
    pub id: ExecutorId,
    pub name: String,
    /// Patterns of kind names, `payment.*`.
    pub kinds: Vec<String>,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

fn read(row: &Row) -> Result<Executor> {
    Ok(Executor {
        id: row.parsed("id")?,
        name: row.text("name")?,
        kinds: row.json("kinds")?,
        created_at: Timestamp(row.int("created_at")?),
        revoked_at: row.opt_int("revoked_at")?.map(Timestamp),
    })
}

async fn one(conn: &mut Conn, column: &str, value: &str) -> Result<Option<Executor>> {
    let query = super::Sql::assembled(format!("SELECT * FROM executor WHERE {column} = $1")).bind(value);
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

pub async fn by_id(conn: &mut Conn, id: &ExecutorId) -> Result<Option<Executor>> {
    one(conn, "id", id.as_str()).await
}

pub async fn by_name(conn: &mut Conn, name: &str) -> Result<Option<Executor>> {
    one(conn, "name", name).await
}

pub async fn by_token(conn: &mut Conn, token_hash: &str) -> Result<Option<Executor>> {
    one(conn, "token_hash", token_hash).await
}

/// All executors, by name.
pub async fn list(conn: &mut Conn) -> Result<Vec<Executor>> {
    conn.fetch_all(sql("SELECT * FROM executor ORDER BY name")).await?.iter().map(read).collect()
}

/// Whether the executor is new: false when the name is taken.
pub async fn insert(tx: &mut Tx, executor: &Executor, token_hash: &str) -> Result<bool> {
    let inserted = tx
        .execute(
            sql("INSERT INTO executor (id, name, kinds, token_hash, created_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (name) DO NOTHING")
            .bind(executor.id.as_str())
            .bind(&executor.name)
            .bind(super::json(&executor.kinds)?)
            .bind(token_hash)
            .bind(executor.created_at),
        )
        .await?;
    Ok(inserted == 1)
}

pub async fn update(tx: &mut Tx, executor: &Executor) -> Result<()> {
    tx.execute(
        sql("UPDATE executor SET kinds = $1, revoked_at = $2 WHERE id = $3")
            .bind(super::json(&executor.kinds)?)
            .bind(executor.revoked_at)
            .bind(executor.id.as_str()),
    )
    .await?;
    Ok(())
}
