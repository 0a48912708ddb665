//! Rules about documents: versioned, and only ever added or taken out of force.

use super::{Conn, Result, Row, Tx, json, sql};
use crate::model::{id::ResourceRuleId, resource::ResourceRule, time::Timestamp};

/// One version of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub id: ResourceRuleId,
    pub version: i64,
    pub rule: ResourceRule,
    /// The person, or `command-line`.
    pub created_by: String,
    pub created_at: Timestamp,
}

const IN_FORCE: &str = "SELECT id, version, document, created_by, created_at FROM resource_rule r \
     WHERE removed_at IS NULL AND version = (SELECT MAX(version) FROM resource_rule WHERE id = r.id)";

fn read(row: &Row) -> Result<Stored> {
    Ok(Stored {
        id: row.parsed("id")?,
        version: row.int("version")?,
        rule: row.json("document")?,
        created_by: row.text("created_by")?,
        created_at: Timestamp(row.int("created_at")?),
    })
}

/// The newest version of every rule in force, oldest rule first.
pub async fn in_force(conn: &mut Conn) -> Result<Vec<Stored>> {
    conn.fetch_all(super::Sql::assembled(format!("{IN_FORCE} ORDER BY id"))).await?.iter().map(read).collect()
}

pub async fn insert(tx: &mut Tx, rule: &Stored) -> Result<()> {
    tx.execute(
        sql("INSERT INTO resource_rule (id, version, scope, document, created_by, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)")
        .bind(rule.id.as_str())
        .bind(rule.version)
        .bind(rule.rule.scope.as_str())
        .bind(json(&rule.rule)?)
        .bind(&rule.created_by)
        .bind(rule.created_at),
    )
    .await
    .map(drop)
}

/// Takes a rule out of force; `false` when it was not in force.
pub async fn remove(tx: &mut Tx, id: &ResourceRuleId) -> Result<bool> {
    let now = tx.now();
    let remove = sql("UPDATE resource_rule SET removed_at = $1 WHERE id = $2 AND removed_at IS NULL");
    Ok(tx.execute(remove.bind(now).bind(id.as_str())).await? > 0)
}
