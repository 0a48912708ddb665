//! Evidence: written once, never changed; what is attached to it can be erased.

use super::{Conn, Error, Result, Tx, sql};
use crate::model::{
    evidence::Evidence,
    id::{EvidenceId, OperationId},
};

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

/// One statement, without what is attached to it, and the operation it is about.
pub async fn find(conn: &mut Conn, id: &EvidenceId) -> Result<Option<(OperationId, Evidence)>> {
    let query = sql("SELECT operation, record FROM evidence WHERE id = $1");
    let row = conn.fetch_optional(query.bind(id.as_str())).await?;
    row.map(|row| Ok((row.parsed("operation")?, row.json("record")?))).transpose()
}

/// Takes away what is attached; whether anything was.
pub async fn erase_body(tx: &mut Tx, id: &EvidenceId) -> Result<bool> {
    Ok(tx.execute(sql("DELETE FROM evidence_body WHERE evidence = $1").bind(id.as_str())).await? > 0)
}
