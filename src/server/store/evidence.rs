//! Evidence: written once, never changed.

use super::{Conn, Error, Result, Tx, sql};
use crate::model::{evidence::Evidence, id::OperationId};

pub async fn insert(tx: &mut Tx, operation: &OperationId, evidence: &Evidence) -> Result<()> {
    let now = tx.now();
    let record = Evidence { body: None, ..evidence.clone() };
    let record = serde_json::to_string(&record).map_err(|e| Error::corrupt(e.to_string()))?;
    let insert = sql("INSERT INTO evidence (id, operation, record, created_at) VALUES ($1, $2, $3, $4)");
    tx.execute(insert.bind(evidence.id.as_str()).bind(operation.as_str()).bind(record).bind(now)).await?;
    if let Some(body) = &evidence.body {
        let insert = sql("INSERT INTO evidence_body (evidence, body) VALUES ($1, $2)");
        tx.execute(insert.bind(evidence.id.as_str()).bind(body.to_string())).await?;
    }
    Ok(())
}

/// All evidence about one operation, oldest first.
pub async fn of_operation(conn: &mut Conn, operation: &OperationId) -> Result<Vec<Evidence>> {
    let query = sql("SELECT e.record, b.body FROM evidence e LEFT JOIN evidence_body b ON b.evidence = e.id \
                     WHERE e.operation = $1 ORDER BY e.id");
    let rows = conn.fetch_all(query.bind(operation.as_str())).await?;
    rows.iter().map(|row| Ok(Evidence { body: row.opt_json("body")?, ..row.json("record")? })).collect()
}
