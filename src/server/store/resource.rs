//! What is known here of targets: the version last reported, and by whom.

use super::{Conn, Result, Tx, sql};
use crate::model::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub version: i64,
    pub updated_by: String,
    pub updated_at: Timestamp,
}

pub async fn find(conn: &mut Conn, target: &str) -> Result<Option<Known>> {
    let query = sql("SELECT version, updated_by, updated_at FROM resource WHERE target = $1").bind(target);
    let row = conn.fetch_optional(query).await?;
    row.map(|row| {
        Ok(Known {
            version: row.int("version")?,
            updated_by: row.text("updated_by")?,
            updated_at: Timestamp(row.int("updated_at")?),
        })
    })
    .transpose()
}

/// Records a version somebody observed; `false` when a higher one is known already.
pub async fn observe(tx: &mut Tx, target: &str, version: i64, by: &str) -> Result<bool> {
    let now = tx.now();
    let changed = tx
        .execute(
            sql("INSERT INTO resource (target, version, managed, updated_by, updated_at) VALUES ($1, $2, 0, $3, $4) \
                 ON CONFLICT (target) DO UPDATE SET version = excluded.version, updated_by = excluded.updated_by, \
                 updated_at = excluded.updated_at WHERE excluded.version > resource.version")
            .bind(target)
            .bind(version)
            .bind(by)
            .bind(now),
        )
        .await?;
    Ok(changed == 1)
}
