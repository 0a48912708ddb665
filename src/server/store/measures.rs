//! What the on-call page counts. The log is read along its key from one place on, and never beyond [`CAP`] records.
//!
//! Records are canonical JSON, in which a quotation mark within somebody's words is escaped: a pattern that names a
//! member with its value matches that member and nothing else.

use super::{Conn, Result, Sql, sql};
use crate::model::{
    conflict::Conflict,
    id::{AgentId, ConflictId, OperationId},
    operation::{Life, Resolution},
    time::Timestamp,
};

/// Records looked at for one answer, the newest.
pub const CAP: u64 = 100_000;
/// Recoveries, pairs of agents or waiting approvals looked at for one answer.
const LIMIT: i64 = 10_000;

/// What is counted, and which records are it. A record is counted as the first that it fits.
macro_rules! words {
    ($($(#[$doc:meta])* $word:ident $name:literal $condition:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Word { $($(#[$doc])* $word,)* }

        impl Word {
            pub const ALL: &[Word] = &[$(Word::$word,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Word::$word => $name,)* }
            }
        }

        const CASES: &str = concat!("CASE ", $("WHEN ", $condition, " THEN '", $name, "' ",)* "END");
    };
}

words! {
    /// A new key for a known event.
    SameEvent "same_event" r#"event = 'operation.replayed' AND record LIKE '%"reason":"business key"%'"#,
    /// A known key with the content it had.
    SameKey "same_key" "event = 'operation.replayed'",
    /// A known key with other content.
    OtherContent "other_content" "event = 'operation.key_conflict'",
    /// A new key for a command that is under way, held for a person.
    SameCommand "same_command" r#"event = 'operation.proposed' AND record LIKE '%"reason":"duplicate of op\_%' ESCAPE '\'"#,
    /// People's votes.
    Decision "decision" "event IN ('approval.voted', 'approval.rejected')",
    Granted "granted" "event IN ('approval.granted', 'approval.auto_granted')",
    ExpiredApproved "expired_approved"
        r#"event = 'operation.expired' AND (record LIKE '%"from":"approved"%' OR record LIKE '%"from":"claimed"%')"#,
    ConflictedApproved "conflicted_approved"
        r#"event = 'operation.conflicted' AND record NOT LIKE '%"from":"pending"%'"#,
    ConflictedPending "conflicted_pending" "event = 'operation.conflicted'",
    /// By the claimant's report or the reconciler's proof.
    Completed "completed" "event IN ('effect.completed', 'reconcile.applied')",
    Failed "failed" "event IN ('effect.failed', 'reconcile.not_applied')",
    /// By the finding of people, which is an intervention as well.
    FoundApplied "found_applied" r#"event = 'review.resolved' AND record LIKE '%"to":"succeeded"%'"#,
    FoundNotApplied "found_not_applied" r#"event = 'review.resolved' AND record LIKE '%"to":"failed"%'"#,
    LostAnswer "lost_answer" "event = 'effect.outcome_unknown'",
    LeaseHeld "lease_held" r#"event LIKE '%.refused' AND record LIKE '%"status":"lease_held"%'"#,
    LeaseLost "lease_lost" r#"event LIKE '%.refused' AND record LIKE '%"status":"lease_lost"%'"#,
    ReleaseLocked "release_locked" r#"event LIKE '%.refused' AND record LIKE '%"status":"release_locked"%'"#,
    OwnershipConflict "ownership_conflict" r#"event LIKE '%.refused' AND record LIKE '%"status":"ownership_conflict"%'"#,
    StaleFence "stale_fence"
        r#"event = 'fence.rejected' OR (event LIKE '%.refused' AND record LIKE '%"status":"stale_fence"%')"#,
    /// Whatever else a person did about one operation, lease or run.
    Intervention "intervention"
        r#"record LIKE '%"kind":"human"%' AND event IN ('approval.withdrawn', 'conflict.resolved', 'evidence.added',
        'review.seconded', 'review.resolved', 'review.retry_authorized', 'review.abandoned', 'review.assigned',
        'admin.hold_overridden', 'operation.cancelled', 'lease.force_released', 'run.stopped')"#,
}

/// Records from one place of the log on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from_seq: u64,
    /// One past the last.
    pub to_seq: u64,
    /// When the first of them was made, where older ones of the time asked for are left out.
    pub cut_at: Option<Timestamp>,
}

/// What has been recorded since record `from_seq`.
pub async fn range_from(conn: &mut Conn, from_seq: u64) -> Result<Range> {
    let to_seq = size(conn).await?;
    Ok(Range { from_seq: from_seq.max(to_seq.saturating_sub(CAP)), to_seq, cut_at: None })
}

async fn size(conn: &mut Conn) -> Result<u64> {
    Ok(conn.fetch_int(sql("SELECT COALESCE(MAX(seq), -1) + 1 FROM audit")).await? as u64)
}

/// What was recorded at `since` or later. Times never run backwards in the log, so that its key finds them.
pub async fn range(conn: &mut Conn, since: Timestamp) -> Result<Range> {
    let size = size(conn).await?;
    let least = size.saturating_sub(CAP);
    let (mut low, mut high) = (least, size);
    while low < high {
        let middle = low + (high - low) / 2;
        if recorded_at(conn, middle).await? < since { low = middle + 1 } else { high = middle }
    }
    let is_cut = low == least && least > 0;
    let cut_at = if is_cut { Some(recorded_at(conn, low).await?) } else { None };
    Ok(Range { from_seq: low, to_seq: size, cut_at })
}

async fn recorded_at(conn: &mut Conn, seq: u64) -> Result<Timestamp> {
    let at = sql("SELECT at FROM audit WHERE seq = $1").bind(seq as i64);
    Ok(Timestamp(conn.fetch_int(at).await?))
}

/// How often what happened, in slots of `slot_ms` from `since` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub word: Word,
    pub slot: i64,
    pub n: i64,
}

pub async fn counts(conn: &mut Conn, range: Range, since: Timestamp, slot_ms: i64) -> Result<Vec<Count>> {
    let query = format!(
        "SELECT word, slot, COUNT(*) AS n FROM (SELECT (at - $3) / $4 AS slot, {CASES} AS word FROM audit \
         WHERE seq >= $1 AND seq < $2) counted WHERE word IS NOT NULL GROUP BY word, slot"
    );
    let query = Sql::assembled(query).bind(range.from_seq as i64).bind(range.to_seq as i64);
    let rows = conn.fetch_all(query.bind(since).bind(slot_ms)).await?;
    rows.iter()
        .map(|row| {
            let name = row.text("word")?;
            let word = Word::ALL.iter().copied().find(|word| word.as_str() == name);
            let word = word.ok_or_else(|| super::Error::corrupt(format!("`{name}` is not counted")))?;
            Ok(Count { word, slot: row.int("slot")?, n: row.int("n")? })
        })
        .collect()
}

/// From the first lost answer of one operation to the record that settled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    pub lost_at: Timestamp,
    pub proven_at: Timestamp,
}

/// Lost answers that were settled: by proof, by people, or by the answer to another try.
pub async fn recoveries(conn: &mut Conn, range: Range) -> Result<Vec<Recovery>> {
    let query = sql(r#"SELECT a.at AS proven_at, (SELECT MIN(u.at) FROM audit u WHERE u.operation = a.operation
        AND u.event = 'effect.outcome_unknown' AND u.seq < a.seq) AS lost_at FROM audit a
        WHERE a.seq >= $1 AND a.seq < $2
        AND (a.event IN ('reconcile.applied', 'reconcile.not_applied')
            OR (a.event = 'review.resolved' AND a.record LIKE '%"to":"%')
            OR (a.event IN ('effect.completed', 'effect.failed') AND a.operation IN
                (SELECT r.operation FROM audit r WHERE r.seq >= $1 AND r.event = 'effect.resent')))
        ORDER BY a.seq DESC LIMIT $3"#);
    let rows = conn.fetch_all(query.bind(range.from_seq as i64).bind(range.to_seq as i64).bind(LIMIT)).await?;
    let recovery = |row: &super::Row| {
        let proven_at = Timestamp(row.int("proven_at")?);
        Ok(row.opt_int("lost_at")?.map(|lost_at| Recovery { lost_at: Timestamp(lost_at), proven_at }))
    };
    rows.iter().filter_map(|row| recovery(row).transpose()).collect()
}

/// What was held as the same command and then approved by people as a second one.
pub async fn flagged_and_granted(conn: &mut Conn, range: Range) -> Result<i64> {
    let query = sql(r#"SELECT COUNT(*) FROM audit WHERE seq >= $1 AND seq < $2 AND event = 'approval.granted'
        AND operation IN (SELECT operation FROM audit WHERE seq >= $1 AND event = 'operation.proposed'
            AND record LIKE '%"reason":"duplicate of op\_%' ESCAPE '\')"#);
    conn.fetch_int(query.bind(range.from_seq as i64).bind(range.to_seq as i64)).await
}

/// Operations that count as succeeded and against which there is evidence.
pub async fn contradicted(conn: &mut Conn, range: Range) -> Result<i64> {
    let query = sql("SELECT COUNT(DISTINCT a.operation) FROM audit a WHERE a.seq >= $1 AND a.seq < $2 \
         AND a.event = 'evidence.contradiction' \
         AND EXISTS (SELECT 1 FROM operation o WHERE o.id = a.operation AND o.state = 'succeeded')");
    conn.fetch_int(query.bind(range.from_seq as i64).bind(range.to_seq as i64)).await
}

/// What people concluded about lost answers.
pub async fn resolutions(conn: &mut Conn, range: Range) -> Result<Vec<Resolution>> {
    let query = sql("SELECT life FROM operation WHERE id IN \
         (SELECT operation FROM audit WHERE seq >= $1 AND seq < $2 AND event = 'review.resolved') LIMIT $3");
    let rows = conn.fetch_all(query.bind(range.from_seq as i64).bind(range.to_seq as i64).bind(LIMIT)).await?;
    let resolution = |row: &super::Row| {
        let life: Life = row.json("life")?;
        Ok(life.review_case.and_then(|case| case.resolution))
    };
    rows.iter().filter_map(|row| resolution(row).transpose()).collect()
}

/// Conflicts of one kind between one pair of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    pub code: String,
    pub agent: AgentId,
    /// Whose change was met, where it came through this desk.
    pub met_agent: Option<AgentId>,
    pub n: i64,
}

/// The conflicts since then, along their key: ids are ordered by time.
fn first_conflict(since: Timestamp) -> ConflictId {
    ConflictId::from_parts(since.as_millis().max(0) as u64, 0)
}

pub async fn conflicts(conn: &mut Conn, since: Timestamp) -> Result<Vec<Met>> {
    let query = sql("SELECT code, agent, met_agent, COUNT(*) AS n \
         FROM (SELECT code, agent, met_agent FROM conflict WHERE id >= $1 ORDER BY id DESC LIMIT $2) newest \
         GROUP BY code, agent, met_agent");
    let rows = conn.fetch_all(query.bind(first_conflict(since).as_str()).bind(LIMIT)).await?;
    rows.iter()
        .map(|row| {
            let met_agent = if row.opt_text("met_agent")?.is_some() { Some(row.parsed("met_agent")?) } else { None };
            Ok(Met { code: row.text("code")?, agent: row.parsed("agent")?, met_agent, n: row.int("n")? })
        })
        .collect()
}

/// Those refused for a known event and answered by somebody since.
pub async fn answered_repeats(conn: &mut Conn, since: Timestamp) -> Result<Vec<Conflict>> {
    let query = sql("SELECT record FROM conflict WHERE id >= $1 AND code = 'business_key_conflict' \
         AND state = 'resolved' ORDER BY id DESC LIMIT $2");
    let rows = conn.fetch_all(query.bind(first_conflict(since).as_str()).bind(LIMIT)).await?;
    rows.iter().map(|row| row.json("record")).collect()
}

/// When what waits for a vote was proposed, the oldest first.
pub async fn waiting(conn: &mut Conn, now: Timestamp) -> Result<Vec<(OperationId, Timestamp)>> {
    let query =
        sql("SELECT id, created_at FROM operation WHERE state = 'pending' AND deadline_at > $1 ORDER BY id LIMIT $2");
    let rows = conn.fetch_all(query.bind(now).bind(LIMIT)).await?;
    rows.iter().map(|row| Ok((row.parsed("id")?, Timestamp(row.int("created_at")?)))).collect()
}
