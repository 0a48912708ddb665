//! The audit log, its checkpoints, and the events made from it, for reading.

use super::{Conn, Result, Tx, setting, sql};
use crate::model::{audit::Frontier, id::OperationId, time::Timestamp};

/// One canonical line with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub seq: u64,
    pub record: String,
}

/// Records from `from` on, in order.
pub async fn records(conn: &mut Conn, from: u64, limit: i64) -> Result<Vec<Line>> {
    let query = sql("SELECT seq, record FROM audit WHERE seq >= $1 ORDER BY seq LIMIT $2");
    lines(conn.fetch_all(query.bind(from as i64).bind(limit)).await?)
}

/// The newest records below `before`, newest first.
pub async fn newest(conn: &mut Conn, before: Option<u64>, limit: i64) -> Result<Vec<Line>> {
    let query = sql("SELECT seq, record FROM audit WHERE ($1 IS NULL OR seq < $1) ORDER BY seq DESC LIMIT $2");
    lines(conn.fetch_all(query.bind(before.map(|seq| seq as i64)).bind(limit)).await?)
}

/// All records about one operation, in order.
pub async fn of_operation(conn: &mut Conn, operation: &OperationId) -> Result<Vec<Line>> {
    let query = sql("SELECT seq, record FROM audit WHERE operation = $1 ORDER BY seq").bind(operation.as_str());
    lines(conn.fetch_all(query).await?)
}

fn lines(rows: Vec<super::Row>) -> Result<Vec<Line>> {
    rows.iter().map(|row| Ok(Line { seq: row.int("seq")? as u64, record: row.text("record")? })).collect()
}

/// How many records there are, and the tree over them.
pub async fn head(conn: &mut Conn) -> Result<Frontier> {
    let row = conn.fetch_optional(sql("SELECT frontier FROM audit_head WHERE id = 1")).await?;
    row.map_or_else(|| Ok(Frontier::default()), |row| row.parsed("frontier"))
}

/// A signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub size: u64,
    pub note: String,
    pub at: Timestamp,
}

pub async fn add_checkpoint(tx: &mut Tx, size: u64, note: &str) -> Result<()> {
    let now = tx.now();
    let insert =
        sql("INSERT INTO checkpoint (size, note, created_at) VALUES ($1, $2, $3) ON CONFLICT (size) DO NOTHING");
    tx.execute(insert.bind(size as i64).bind(note).bind(now)).await?;
    Ok(())
}

/// The newest checkpoints, newest first.
pub async fn checkpoints(conn: &mut Conn, limit: i64) -> Result<Vec<Signed>> {
    let query = sql("SELECT size, note, created_at FROM checkpoint ORDER BY size DESC LIMIT $1").bind(limit);
    signed(conn.fetch_all(query).await?)
}

/// Checkpoints that sign more than `over` and at most `up_to` records, newest first.
pub async fn checkpoints_between(conn: &mut Conn, over: u64, up_to: u64) -> Result<Vec<Signed>> {
    let query = sql("SELECT size, note, created_at FROM checkpoint WHERE size > $1 AND size <= $2 ORDER BY size DESC");
    signed(conn.fetch_all(query.bind(over as i64).bind(up_to as i64)).await?)
}

/// How many checkpoints sign at most `up_to` records.
pub async fn count_checkpoints(conn: &mut Conn, up_to: u64) -> Result<u64> {
    let query = sql("SELECT COUNT(*) FROM checkpoint WHERE size <= $1").bind(up_to as i64);
    Ok(conn.fetch_int(query).await? as u64)
}

fn signed(rows: Vec<super::Row>) -> Result<Vec<Signed>> {
    rows.iter()
        .map(|row| {
            Ok(Signed { size: row.int("size")? as u64, note: row.text("note")?, at: Timestamp(row.int("created_at")?) })
        })
        .collect()
}

/// An outbox row: what changed, in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub seq: i64,
    pub topic: String,
    pub subject: String,
    pub agent: Option<String>,
    pub state: String,
    pub version: i64,
    /// Id and state of the operation's conflict, where it is about that as well.
    pub conflict: Option<(String, String)>,
}

/// Events after `seq`, in order.
pub async fn events(conn: &mut Conn, after: i64, limit: i64) -> Result<Vec<Event>> {
    let query =
        sql("SELECT seq, topic, subject, agent, state, version, conflict, conflict_state FROM event WHERE seq > $1 \
             ORDER BY seq LIMIT $2");
    let rows = conn.fetch_all(query.bind(after).bind(limit)).await?;
    rows.iter()
        .map(|row| {
            Ok(Event {
                seq: row.int("seq")?,
                topic: row.text("topic")?,
                subject: row.text("subject")?,
                agent: row.opt_text("agent")?,
                state: row.text("state")?,
                version: row.int("version")?,
                conflict: row.opt_text("conflict")?.zip(row.opt_text("conflict_state")?),
            })
        })
        .collect()
}

/// The newest event's `seq`; -1 when there is none.
pub async fn newest_event(conn: &mut Conn) -> Result<i64> {
    conn.fetch_int(sql("SELECT COALESCE(MAX(seq), -1) FROM event")).await
}

/// The setting that names the newest event no longer kept.
const FORGOTTEN: &str = "events_forgotten";

/// The `seq` up to which events are forgotten; -1 when none are.
pub async fn forgotten(conn: &mut Conn) -> Result<i64> {
    Ok(setting::get(conn, FORGOTTEN).await?.unwrap_or(-1))
}

/// Forgets events made before `before`; streams that lag further behind are told to start over.
pub async fn forget_events(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let last = sql("SELECT COALESCE(MAX(seq), -1) FROM event WHERE created_at < $1").bind(before);
    let last = tx.fetch_int(last).await?;
    if last < 0 {
        return Ok(0);
    }
    setting::put(tx, FORGOTTEN, &last).await?;
    tx.execute(sql("DELETE FROM event WHERE seq <= $1").bind(last)).await
}
