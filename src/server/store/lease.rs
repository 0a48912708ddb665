//! Leases, and the counters their fencing tokens come from.

use super::{Conn, Error, Result, Row, Sql, Tx, setting, sql};
use crate::model::{
    id::{AgentId, LeaseId, RunId},
    lease::{Ended, FencingToken, Lease},
    target::Target,
    time::Timestamp,
};

/// The setting above which the tokens of every resource start.
const FLOOR: &str = "fence_floor";

/// A lease with the names of who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub lease: Lease,
    pub run_label: String,
    pub agent_name: String,
}

const SELECT: &str = "SELECT lease.*, run.label AS run_label, agent.name AS agent_name FROM lease \
                      JOIN run ON run.id = lease.run JOIN agent ON agent.id = lease.agent";

fn read(row: &Row) -> Result<Named> {
    let ended = match row.opt_int("ended_at")? {
        None => None,
        Some(at) => Some(Ended {
            how: row.parsed("ending")?,
            at: Timestamp(at),
            by: row.text("ended_by")?,
            reason: row.opt_text("end_reason")?,
        }),
    };
    let lease = Lease {
        id: row.parsed("id")?,
        resource: row.parsed("resource")?,
        fencing_token: token(row.int("fencing_token")?)?,
        run: row.parsed("run")?,
        agent: row.parsed("agent")?,
        version: row.int("version")?,
        acquired_at: Timestamp(row.int("acquired_at")?),
        expires_at: Timestamp(row.int("expires_at")?),
        progress: row
            .opt_text("progress")?
            .map(|text| text.parse())
            .transpose()
            .map_err(|error: &str| Error::corrupt(format!("`progress`: {error}")))?,
        progressed_at: Timestamp(row.int("progressed_at")?),
        ended,
    };
    Ok(Named { lease, run_label: row.text("run_label")?, agent_name: row.text("agent_name")? })
}

fn token(number: i64) -> Result<FencingToken> {
    number.try_into().map_err(|error: &str| Error::corrupt(error.to_owned()))
}

pub async fn find(conn: &mut Conn, id: &LeaseId) -> Result<Option<Named>> {
    let query = Sql::assembled(format!("{SELECT} WHERE lease.id = $1")).bind(id.as_str());
    conn.fetch_optional(query).await?.as_ref().map(read).transpose()
}

/// The last lease of a resource, whatever has become of it.
pub async fn last(conn: &mut Conn, resource: &Target) -> Result<Option<Lease>> {
    let query =
        Sql::assembled(format!("{SELECT} JOIN fence ON fence.current_lease = lease.id WHERE fence.resource = $1"));
    let row = conn.fetch_optional(query.bind(resource.as_str())).await?;
    Ok(row.as_ref().map(read).transpose()?.map(|named| named.lease))
}

/// The last fencing token of a resource, 0 when there was none.
pub async fn highest(conn: &mut Conn, resource: &Target) -> Result<i64> {
    let query = sql("SELECT token FROM fence WHERE resource = $1").bind(resource.as_str());
    match conn.fetch_optional(query).await? {
        Some(row) => row.int("token"),
        None => floor(conn).await,
    }
}

async fn floor(conn: &mut Conn) -> Result<i64> {
    Ok(setting::get(conn, FLOOR).await?.unwrap_or(0))
}

/// A lease about to be handed out.
pub struct New<'l> {
    pub id: LeaseId,
    pub resource: &'l Target,
    pub run: &'l RunId,
    pub agent: &'l AgentId,
    pub expires_at: Timestamp,
}

/// Hands out the lease under the next token, unless somebody holds a live one.
pub async fn take(tx: &mut Tx, new: New<'_>) -> Result<Option<Lease>> {
    let now = tx.now();
    let floor = floor(tx).await?;
    tx.execute(
        sql("INSERT INTO fence (resource, token) VALUES ($1, $2) ON CONFLICT (resource) DO NOTHING")
            .bind(new.resource.as_str())
            .bind(floor),
    )
    .await?;
    let taken = tx
        .execute(
            sql("UPDATE fence SET token = token + 1, current_lease = $1 WHERE resource = $2 AND NOT EXISTS \
                 (SELECT 1 FROM lease WHERE lease.id = fence.current_lease AND lease.ended_at IS NULL \
                 AND lease.expires_at > $3)")
            .bind(new.id.as_str())
            .bind(new.resource.as_str())
            .bind(now),
        )
        .await?;
    if taken == 0 {
        return Ok(None);
    }
    let lease = Lease {
        id: new.id,
        resource: new.resource.clone(),
        fencing_token: token(highest(tx, new.resource).await?)?,
        run: new.run.clone(),
        agent: new.agent.clone(),
        version: 1,
        acquired_at: now,
        expires_at: new.expires_at,
        progress: None,
        progressed_at: now,
        ended: None,
    };
    tx.execute(
        sql("INSERT INTO lease (id, resource, fencing_token, run, agent, version, acquired_at, expires_at, progressed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
        .bind(lease.id.as_str())
        .bind(lease.resource.as_str())
        .bind(lease.fencing_token.as_i64())
        .bind(lease.run.as_str())
        .bind(lease.agent.as_str())
        .bind(lease.version)
        .bind(lease.acquired_at)
        .bind(lease.expires_at)
        .bind(lease.progressed_at),
    )
    .await?;
    Ok(Some(lease))
}

/// Stores what has become of a lease.
///
/// # Errors
/// When it is not the next version of the stored one, or that one has ended.
pub async fn update(tx: &mut Tx, lease: &Lease) -> Result<()> {
    let ended = lease.ended.as_ref();
    let changed = tx
        .execute(
            sql("UPDATE lease SET version = $1, expires_at = $2, progress = $3, progressed_at = $4, ending = $5, \
                 ended_at = $6, ended_by = $7, end_reason = $8 WHERE id = $9 AND version = $10 AND ended_at IS NULL")
            .bind(lease.version)
            .bind(lease.expires_at)
            .bind(lease.progress.as_ref().map(|mark| mark.as_str()))
            .bind(lease.progressed_at)
            .bind(ended.map(|ended| ended.how.as_str()))
            .bind(ended.map(|ended| ended.at))
            .bind(ended.map(|ended| ended.by.as_str()))
            .bind(ended.and_then(|ended| ended.reason.as_deref()))
            .bind(lease.id.as_str())
            .bind(lease.version - 1),
        )
        .await?;
    if changed == 1 { Ok(()) } else { Err(Error::corrupt(format!("`{}` changed under a command", lease.id))) }
}

/// Makes every token of the resource handed out so far stale; the number that now is the highest.
pub async fn bump(tx: &mut Tx, resource: &Target) -> Result<i64> {
    tx.execute(sql("UPDATE fence SET token = token + 1 WHERE resource = $1").bind(resource.as_str())).await?;
    highest(tx, resource).await
}

/// Live leases, the newest first: of one agent, of one resource, before one of them, where given.
pub async fn live(
    conn: &mut Conn,
    agent: Option<&AgentId>,
    resource: Option<&Target>,
    before: Option<&LeaseId>,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Named>> {
    let query = Sql::assembled(format!(
        "{SELECT} WHERE lease.ended_at IS NULL AND lease.expires_at > $1 AND ($2 IS NULL OR lease.agent = $2) \
         AND ($3 IS NULL OR lease.resource = $3) AND ($4 IS NULL OR lease.id < $4) ORDER BY lease.id DESC LIMIT $5"
    ));
    let query = query
        .bind(now)
        .bind(agent.map(AgentId::as_str))
        .bind(resource.map(Target::as_str))
        .bind(before.map(LeaseId::as_str))
        .bind(limit);
    conn.fetch_all(query).await?.iter().map(read).collect()
}

/// What a run holds.
pub async fn live_of_run(conn: &mut Conn, run: &RunId, now: Timestamp) -> Result<Vec<Named>> {
    let query = Sql::assembled(format!(
        "{SELECT} WHERE lease.run = $1 AND lease.ended_at IS NULL AND lease.expires_at > $2 ORDER BY lease.id DESC"
    ));
    conn.fetch_all(query.bind(run.as_str()).bind(now)).await?.iter().map(read).collect()
}

/// Starts every counter above all tokens that the lost part of the history may have handed out, and ends every lease.
/// That history is as unknown as its tokens; what is known is that no resource was leased more often than once a
/// millisecond, so that the time itself lies above them.
pub async fn forget_after_restore(tx: &mut Tx) -> Result<()> {
    let now = tx.now();
    let row = tx.fetch_optional(sql("SELECT MAX(token) AS token FROM fence")).await?;
    let highest = row.map(|row| row.opt_int("token")).transpose()?.flatten().unwrap_or(0);
    let floor = floor(tx).await?.max(highest + 1).max(now.as_millis());
    setting::put(tx, FLOOR, &floor).await?;
    tx.execute(sql("UPDATE fence SET token = $1").bind(floor)).await?;
    tx.execute(
        sql("UPDATE lease SET ending = 'restored', ended_at = $1, ended_by = 'command-line', version = version + 1 \
             WHERE ended_at IS NULL")
        .bind(now),
    )
    .await?;
    Ok(())
}

/// Forgets leases that ended, or ran out, before `before`; the counters stay. How many there were.
pub async fn forget(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(sql("DELETE FROM lease WHERE expires_at < $1 AND (ended_at IS NULL OR ended_at < $1)").bind(before))
        .await
}
