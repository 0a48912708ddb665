//! Operations and the keys that name them.

use super::{
    Conn, Error, Result, Row, Sql, Tx,
    committer::{Batch, Notice, Topic},
    sql,
};
use crate::model::{
    audit::Event,
    conflict::ConflictState,
    fingerprint::Fingerprint,
    id::{AgentId, OperationId, RunId},
    operation::{
        Operation, Proposal, State,
        rules::{Step, next_lapse},
    },
    time::Timestamp,
};

/// Columns every read of a whole operation needs.
const COLUMNS: &str = "proposal, canonical, life";

fn operation(row: &Row) -> Result<Operation> {
    let mut proposal: Proposal = row.json("proposal")?;
    proposal.canonical = row.text("canonical")?;
    Ok(Operation { proposal, life: row.json("life")? })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::corrupt(e.to_string()))
}

/// The column `possibly_applied`: what may have happened, and did not simply succeed.
fn is_unsettled(op: &Operation) -> bool {
    op.possibly_applied() && (op.life.state != State::Succeeded || op.life.disputed)
}

/// What is stored beside an operation and never shown.
pub struct Stored<'a> {
    pub business_key: Option<&'a str>,
    /// Salt of every digest of this operation's bodies in the log.
    pub salt: &'a str,
}

/// Stores a new operation with the events that made it.
pub async fn insert(tx: &mut Tx, op: &Operation, stored: Stored<'_>, steps: Vec<Step>) -> Result<Operation> {
    let (p, life) = (&op.proposal, &op.life);
    let proposal = json(&Proposal { canonical: String::new(), ..p.clone() })?;
    tx.execute(
        sql("INSERT INTO operation (id, agent, run, kind, target, risk, fingerprint, business_key, canonical, proposal, \
             salt, state, version, deadline_at, possibly_applied, life, created_at, updated_at, gateway) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)")
        .bind(p.id.as_str())
        .bind(p.agent.as_str())
        .bind(p.run.as_str())
        .bind(&p.kind)
        .bind(p.target.as_str())
        .bind(p.risk.as_str())
        .bind(p.fingerprint.as_str())
        .bind(stored.business_key)
        .bind(&p.canonical)
        .bind(proposal)
        .bind(stored.salt)
        .bind(life.state.as_str())
        .bind(life.version)
        .bind(next_lapse(op))
        .bind(i64::from(is_unsettled(op)))
        .bind(json(life)?)
        .bind(p.created_at)
        .bind(life.updated_at)
        .bind(p.provider.as_deref().filter(|_| p.gateway)),
    )
    .await?;
    let mut op = op.clone();
    for step in steps {
        op = apply(tx, &op, step).await?;
    }
    Ok(op)
}

/// Stores the next life with its audit records, and tells those who watch.
///
/// # Errors
/// When the stored life is not the one the step started from.
pub async fn apply(tx: &mut Tx, op: &Operation, step: Step) -> Result<Operation> {
    let mut next = apply_all(tx, vec![(op, step)]).await?;
    next.pop().ok_or_else(|| Error::corrupt(format!("`{}` has gone", op.id())))
}

/// The same of several operations, in this order and in few statements: the only way an operation changes.
///
/// # Errors
/// When a stored life is not the one its step started from.
pub async fn apply_all(tx: &mut Tx, steps: Vec<(&Operation, Step)>) -> Result<Vec<Operation>> {
    let mut batch = Batch::default();
    let mut changes = Vec::with_capacity(steps.len());
    let mut changed = Vec::with_capacity(steps.len());
    for (op, step) in steps {
        let mut next = Operation { proposal: op.proposal.clone(), life: step.life };
        let mut seq = None;
        for event in &step.events {
            seq = Some(tx.append(event, &mut batch));
            if matches!(event.event, Event::ApprovalGranted | Event::ApprovalAutoGranted) {
                next.life.approval.receipt = Some(tx.receipt());
            }
        }
        changes.push(vec![
            next.proposal.id.as_str().into(),
            op.life.version.into(),
            op.life.state.as_str().into(),
            next.life.state.as_str().into(),
            next.life.version.into(),
            next_lapse(&next).into(),
            i64::from(is_unsettled(&next)).into(),
            json(&next.life)?.into(),
            next.life.updated_at.into(),
        ]);
        if let Some(seq) = seq {
            let notice = Notice {
                topic: Topic::Operation,
                subject: next.proposal.id.as_str(),
                agent: Some(next.proposal.agent.as_str()),
                state: next.life.state.as_str(),
                version: next.life.version,
            };
            let told = |op: &Operation| (op.life.conflict.clone(), op.life.conflict_resolution.clone());
            let state = ConflictState::of(next.life.conflict_resolution.as_ref());
            let conflict = next.life.conflict.as_ref().filter(|_| told(op) != told(&next)).map(|id| (id, state));
            batch.publish(seq, notice, conflict, tx.now());
        }
        changed.push(next);
    }
    tx.write(batch).await?;
    let next =
        "WITH next (id, was_version, was_state, state, version, deadline_at, possibly_applied, life, updated_at) AS (";
    let update = ") UPDATE operation SET state = next.state, version = next.version, deadline_at = next.deadline_at, \
                  possibly_applied = next.possibly_applied, life = next.life, updated_at = next.updated_at FROM next \
                  WHERE operation.id = next.id AND operation.version = next.was_version \
                  AND operation.state = next.was_state";
    if tx.execute_rows(next, &changes, update).await? != changes.len() as u64 {
        let ids: Vec<_> = changed.iter().map(|op| op.id().as_str()).collect();
        return Err(Error::corrupt(format!("`{}` changed under a command", ids.join("`, `"))));
    }
    Ok(changed)
}

pub async fn find(conn: &mut Conn, id: &OperationId) -> Result<Option<Operation>> {
    let query = Sql::assembled(format!("SELECT {COLUMNS} FROM operation WHERE id = $1")).bind(id.as_str());
    conn.fetch_optional(query).await?.as_ref().map(operation).transpose()
}

/// Salt of the digests of this operation's bodies.
pub async fn salt(conn: &mut Conn, id: &OperationId) -> Result<String> {
    let row = conn.fetch_optional(sql("SELECT salt FROM operation WHERE id = $1").bind(id.as_str())).await?;
    row.ok_or_else(|| Error::corrupt(format!("`{id}` has gone")))?.text("salt")
}

/// What a key is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundKey {
    pub operation: OperationId,
    /// Of the command that bound it; an alias of an existing operation has its own.
    pub fingerprint: Fingerprint,
    /// Set once the key is past its retention.
    pub expired_at: Option<Timestamp>,
}

/// Binds a key; `false` when it is bound already. The first effect of every proposal.
pub async fn bind_key(
    tx: &mut Tx,
    agent: &AgentId,
    key: &str,
    operation: &OperationId,
    fingerprint: &Fingerprint,
) -> Result<bool> {
    let now = tx.now();
    let bound = tx
        .execute(
            sql("INSERT INTO idempotency_key (agent, key, operation, fingerprint, created_at) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (agent, key) DO NOTHING")
            .bind(agent.as_str())
            .bind(key)
            .bind(operation.as_str())
            .bind(fingerprint.as_str())
            .bind(now),
        )
        .await?;
    Ok(bound == 1)
}

pub async fn bound_key(conn: &mut Conn, agent: &AgentId, key: &str) -> Result<Option<BoundKey>> {
    let query = sql("SELECT operation, fingerprint, expired_at FROM idempotency_key WHERE agent = $1 AND key = $2");
    let row = conn.fetch_optional(query.bind(agent.as_str()).bind(key)).await?;
    row.map(|row| {
        Ok(BoundKey {
            operation: row.parsed("operation")?,
            fingerprint: row.parsed("fingerprint")?,
            expired_at: row.opt_int("expired_at")?.map(Timestamp),
        })
    })
    .transpose()
}

/// Turns keys whose operation ended before `ended_before` into tombstones; how many.
pub async fn expire_keys(tx: &mut Tx, ended_before: Timestamp) -> Result<u64> {
    let now = tx.now();
    tx.execute(
        sql("UPDATE idempotency_key SET expired_at = $1 WHERE expired_at IS NULL AND operation IN \
             (SELECT id FROM operation WHERE updated_at < $2 AND state IN \
             ('succeeded', 'failed', 'conflicted', 'rejected', 'expired', 'cancelled', 'superseded', 'abandoned'))")
        .bind(now)
        .bind(ended_before),
    )
    .await
}

/// Operations whose deadline has passed and whose lapse nobody has recorded, oldest first.
pub async fn overdue(conn: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<OperationId>> {
    let query = sql("SELECT id FROM operation WHERE deadline_at <= $1 ORDER BY deadline_at LIMIT $2");
    let rows = conn.fetch_all(query.bind(now).bind(limit)).await?;
    rows.iter().map(|row| row.parsed("id")).collect()
}

/// Open operations of one agent. What has expired by `now` is not open, recorded or not.
pub async fn count_open(conn: &mut Conn, agent: &AgentId, now: Timestamp) -> Result<i64> {
    let query = format!(
        "SELECT COUNT(*) FROM operation WHERE agent = $1 AND state IN ({OPEN}) \
         AND NOT (state IN ('pending', 'approved', 'claimed') AND possibly_applied = 0 AND COALESCE(deadline_at <= $2, FALSE))"
    );
    conn.fetch_int(Sql::assembled(query).bind(agent.as_str()).bind(now)).await
}

const OPEN: &str = "'pending', 'approved', 'claimed', 'sent', 'accepted', 'unknown', 'needs_review'";

/// Operations with the same command of the same agent that are open or may have been applied, oldest first.
pub async fn same_command(conn: &mut Conn, agent: &AgentId, fingerprint: &Fingerprint) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE agent = $1 AND fingerprint = $2 \
         AND (state IN ({OPEN}) OR possibly_applied = 1) ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(agent.as_str()).bind(fingerprint.as_str())).await?;
    rows.iter().map(operation).collect()
}

/// Operations of `kind` on `target` that are open, succeeded, or may have been applied, oldest first.
pub async fn counting(conn: &mut Conn, kind: &str, target: &str) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE target = $1 AND kind = $2 \
         AND (state IN ({OPEN}) OR state = 'succeeded' OR possibly_applied = 1) ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(target).bind(kind)).await?;
    rows.iter().map(operation).collect()
}

/// The same, narrowed to one business key.
pub async fn by_business_key(conn: &mut Conn, kind: &str, target: &str, key: &str) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE kind = $1 AND target = $2 AND business_key = $3 \
         AND (state IN ({OPEN}) OR state = 'succeeded' OR possibly_applied = 1) ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(kind).bind(target).bind(key)).await?;
    rows.iter().map(operation).collect()
}

/// Every operation on a target that holds or locks it: claimed, on its way, unknown, or ended without certainty.
pub async fn unsettled_on_target(conn: &mut Conn, target: &str) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE target = $1 AND (state = 'claimed' OR possibly_applied = 1) ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(target)).await?;
    rows.iter().map(operation).collect()
}

/// Destinations of the gateway for which something is approved, or may be licensed once more.
pub async fn awaited_destinations(conn: &mut Conn) -> Result<Vec<String>> {
    let query = sql("SELECT DISTINCT gateway FROM operation \
                     WHERE gateway IS NOT NULL AND state IN ('approved', 'unknown') ORDER BY gateway");
    let rows = conn.fetch_all(query).await?;
    rows.iter().map(|row| row.text("gateway")).collect()
}

/// What is approved for one destination of the gateway, the soonest deadline first, and then what is unknown there.
pub async fn awaiting(conn: &mut Conn, destination: &str, limit: i64) -> Result<Vec<OperationId>> {
    let query = sql("SELECT id FROM operation WHERE gateway = $1 AND state IN ('approved', 'unknown') \
                     ORDER BY state, deadline_at, id LIMIT $2");
    let rows = conn.fetch_all(query.bind(destination).bind(limit)).await?;
    rows.iter().map(|row| row.parsed("id")).collect()
}

/// Every operation on a target that is not claimed yet.
pub async fn waiting_on_target(conn: &mut Conn, target: &str) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE target = $1 AND state IN ('pending', 'approved') ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(target)).await?;
    rows.iter().map(operation).collect()
}

/// The operation that last succeeded on a target: what is there now, as far as it went through this desk.
pub async fn last_succeeded(conn: &mut Conn, target: &str) -> Result<Option<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE target = $1 AND state = 'succeeded' ORDER BY updated_at DESC, id DESC LIMIT 1"
    ));
    conn.fetch_optional(query.bind(target)).await?.as_ref().map(operation).transpose()
}

/// What of a run is not sent yet.
pub async fn unsent_of_run(conn: &mut Conn, run: &RunId) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE run = $1 AND state IN ('pending', 'approved', 'claimed') ORDER BY id"
    ));
    let rows = conn.fetch_all(query.bind(run.as_str())).await?;
    rows.iter().map(operation).collect()
}

/// Operations that have ended and against which there is evidence: of what has ended only an open case has a deadline.
pub async fn disputed(conn: &mut Conn) -> Result<Vec<Operation>> {
    let query = Sql::assembled(format!(
        "SELECT {COLUMNS} FROM operation WHERE deadline_at > 0 AND state NOT IN ({OPEN}) ORDER BY id DESC LIMIT 1000"
    ));
    conn.fetch_all(query).await?.iter().map(operation).collect()
}

/// Which operations a list shows. States are as stored; what has lapsed meanwhile is decided by the caller.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub states: Vec<State>,
    pub kind: Option<String>,
    pub target: Option<String>,
    pub agent: Option<AgentId>,
    pub run: Option<RunId>,
    pub risk: Option<String>,
    /// Part of a target, kind, short code or id.
    pub q: Option<String>,
    /// Only what was created before this one.
    pub before: Option<OperationId>,
    /// Only what comes after this one when the soonest deadline is first.
    pub after: Option<(Timestamp, OperationId)>,
    pub order: Order,
    pub limit: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    NewestFirst,
    /// Soonest deadline first: the queue.
    SoonestFirst,
}

/// One page of operations.
pub async fn list(conn: &mut Conn, filter: &Filter) -> Result<Vec<Operation>> {
    let mut query = String::from("SELECT proposal, canonical, life FROM operation WHERE 1 = 1");
    let mut values: Vec<String> = Vec::new();
    let mut narrow = |query: &mut String, clause: &str, value: String| {
        values.push(value);
        let n = values.len();
        query.push_str(&format!(" AND {}", clause.replace('?', &format!("${n}"))));
    };
    if !filter.states.is_empty() {
        let states: Vec<_> = filter.states.iter().map(|state| format!("'{state}'")).collect();
        query.push_str(&format!(" AND state IN ({})", states.join(", ")));
    }
    if let Some(kind) = &filter.kind {
        narrow(&mut query, "kind = ?", kind.clone());
    }
    if let Some(target) = &filter.target {
        narrow(&mut query, "target = ?", target.clone());
    }
    if let Some(agent) = &filter.agent {
        narrow(&mut query, "agent = ?", agent.to_string());
    }
    if let Some(run) = &filter.run {
        narrow(&mut query, "run = ?", run.to_string());
    }
    if let Some(risk) = &filter.risk {
        narrow(&mut query, "risk = ?", risk.clone());
    }
    if let Some(before) = &filter.before {
        narrow(&mut query, "id < ?", before.to_string());
    }
    if let Some((deadline, id)) = &filter.after {
        let deadline = deadline.as_millis();
        let clause = format!("(deadline_at > {deadline} OR (deadline_at = {deadline} AND id > ?))");
        narrow(&mut query, &clause, id.to_string());
    }
    if let Some(q) = &filter.q {
        let escaped = q.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let code = escaped.replace('-', "");
        narrow(
            &mut query,
            "(lower(target) LIKE ? ESCAPE '\\' OR lower(kind) LIKE ? ESCAPE '\\' OR lower(id) LIKE ? ESCAPE '\\' \
             OR agent IN (SELECT a.id FROM agent a WHERE lower(a.name) LIKE ? ESCAPE '\\'))",
            format!("%{escaped}%"),
        );
        if code.len() >= 4 && code.bytes().all(|b| b.is_ascii_hexdigit()) {
            let last = query.pop();
            debug_assert_eq!(last, Some(')'));
            values.push(format!("sha256:{code}%"));
            query.push_str(&format!(" OR fingerprint LIKE ${})", values.len()));
        }
    }
    query.push_str(match filter.order {
        Order::NewestFirst => " ORDER BY id DESC",
        Order::SoonestFirst => " ORDER BY deadline_at, id",
    });
    query.push_str(&format!(" LIMIT {}", filter.limit.clamp(1, 1000)));
    let bound = values.into_iter().fold(Sql::assembled(query), Sql::bind);
    let rows = conn.fetch_all(bound).await?;
    rows.iter().map(operation).collect()
}

/// How many operations are in each state, lapses not decided.
pub async fn count_by_state(conn: &mut Conn) -> Result<Vec<(State, i64)>> {
    let rows = conn.fetch_all(sql("SELECT state, COUNT(*) AS n FROM operation GROUP BY state")).await?;
    rows.iter()
        .map(|row| {
            let state = State::parse(&row.text("state")?).ok_or_else(|| Error::corrupt("unknown state".into()))?;
            Ok((state, row.int("n")?))
        })
        .collect()
}
