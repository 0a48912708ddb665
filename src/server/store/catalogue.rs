//! Kinds and policies: versioned documents that are only ever added.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Conn, Result, Tx, sql};
use crate::model::time::Timestamp;

/// A document with the version it is kept under.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned {
    pub version: i64,
    pub document: Value,
}

/// One version of a kind; the newest when `version` is `None`.
pub async fn kind(conn: &mut Conn, name: &str, version: Option<i64>) -> Result<Option<Versioned>> {
    let query = sql("SELECT version, document FROM kind WHERE name = $1 AND ($2 IS NULL OR version = $2) \
                     ORDER BY version DESC LIMIT 1");
    let row = conn.fetch_optional(query.bind(name).bind(version)).await?;
    row.map(|row| Ok(Versioned { version: row.int("version")?, document: row.json("document")? })).transpose()
}

/// The newest version of every kind, by name.
pub async fn kinds(conn: &mut Conn) -> Result<Vec<Versioned>> {
    let rows = conn
        .fetch_all(sql("SELECT version, document FROM kind k WHERE version = \
             (SELECT MAX(version) FROM kind WHERE name = k.name) ORDER BY name"))
        .await?;
    rows.iter().map(|row| Ok(Versioned { version: row.int("version")?, document: row.json("document")? })).collect()
}

pub async fn add_kind(tx: &mut Tx, name: &str, kind: &Versioned) -> Result<()> {
    let now = tx.now();
    let insert = sql("INSERT INTO kind (name, version, document, created_at) VALUES ($1, $2, $3, $4)");
    tx.execute(insert.bind(name).bind(kind.version).bind(kind.document.to_string()).bind(now)).await?;
    Ok(())
}

/// The policy in force.
pub async fn policy(conn: &mut Conn) -> Result<Option<Versioned>> {
    let row = conn.fetch_optional(sql("SELECT version, document FROM policy ORDER BY version DESC LIMIT 1")).await?;
    row.map(|row| Ok(Versioned { version: row.int("version")?, document: row.json("document")? })).transpose()
}

/// One version's place in the history of the policy.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PolicyVersion {
    pub version: i64,
    /// The person, `command-line`, or nobody for what the desk began with.
    pub changed_by: Option<String>,
    pub created_at: Timestamp,
}

/// The last versions of the policy, newest first.
pub async fn policy_versions(conn: &mut Conn, limit: i64) -> Result<Vec<PolicyVersion>> {
    let query = sql("SELECT version, changed_by, created_at FROM policy ORDER BY version DESC LIMIT $1");
    let rows = conn.fetch_all(query.bind(limit)).await?;
    rows.iter()
        .map(|row| {
            Ok(PolicyVersion {
                version: row.int("version")?,
                changed_by: row.opt_text("changed_by")?,
                created_at: Timestamp(row.int("created_at")?),
            })
        })
        .collect()
}

pub async fn add_policy(tx: &mut Tx, policy: &Versioned, changed_by: Option<&str>) -> Result<()> {
    let now = tx.now();
    let insert = sql("INSERT INTO policy (version, document, changed_by, created_at) VALUES ($1, $2, $3, $4)");
    let insert = insert.bind(policy.version).bind(policy.document.to_string()).bind(changed_by).bind(now);
    tx.execute(insert).await?;
    Ok(())
}
