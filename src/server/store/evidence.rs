//! Evidence: written once, never changed.

use super::{Conn, Error, Result, Tx, sql};
use crate::model::{evidence::Evidence, id::OperationId};

pub async fn insert(tx: &mut Tx, operation: &OperationId, evidence: &Evidence) -> Result<()> {
    let now = tx.now();
    let record = serde_json::to_string(evidence).map_err(|e| Error::corrupt(e.to_string()))?;
    let insert = sql("INSERT INTO evidence (id, operation, record, created_at) VALUES ($1, $2, $3, $4)");
    tx.execute(insert.bind(evidence.id.as_str()).bind(operation.as_str()).bind(record).bind(now)).await?;
    Ok(())
}

/// All evidence about one operation, oldest first.
pub async fn of_operation(conn: &mut Conn, operation: &OperationId) -> Result<Vec<Evidence>> {
    let query = sql("SELECT record FROM evidence WHERE operation = $1 ORDER BY id").bind(operation.as_str());
    conn.fetch_all(query).await?.iter().map(|row| row.json("record")).collect()
}
