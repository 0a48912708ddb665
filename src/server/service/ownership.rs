//! What a run may write: asked at proposal, claim and write, by runs, executors and sinks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Desk, claim::Worker, error::Result};
use crate::{
    model::{
        id::RunId,
        kind::Verb,
        operation::Operation,
        problem::{Code, Problem},
        run::{RunStatus, permits},
        target::Target,
        time::Timestamp,
    },
    server::{
        store::{self, Conn, Tx, run, run::Run},
        web::auth::Principal,
    },
};

/// Whether the run behind `op` still lives and may still write its target. Every write asks in its own transaction.
///
/// # Errors
/// `run_stopped` · `outside_write_set`.
pub async fn proposer_may_write(tx: &mut Tx, op: &Operation) -> store::Result<std::result::Result<(), Problem>> {
    let (p, now) = (&op.proposal, tx.now());
    may_write(tx, &p.run, &p.target, p.verb, now).await
}

async fn may_write(
    conn: &mut Conn,
    run: &RunId,
    target: &Target,
    verb: Verb,
    now: Timestamp,
) -> store::Result<std::result::Result<(), Problem>> {
    Ok(live(run::by_id(conn, run).await?, now).and_then(|run| permitted(&run, target, verb, now)))
}

/// The run, if it still lives.
///
/// # Errors
/// `run_stopped`.
pub fn live(run: Option<Run>, now: Timestamp) -> std::result::Result<Run, Problem> {
    let stopped = || Problem::new(Code::RunStopped, "The run has stopped or expired; it writes nothing any more");
    run.filter(|run| run.status(now) == RunStatus::Live).ok_or_else(stopped)
}

/// Whether the run's write set has the target and the verb now.
///
/// # Errors
/// `outside_write_set`.
pub fn permitted(run: &Run, target: &Target, verb: Verb, now: Timestamp) -> std::result::Result<(), Problem> {
    if !permits(run.write_set.as_deref(), target.as_str(), verb, now) {
        return Err(Problem::new(Code::OutsideWriteSet, format!("The run may not `{}` `{target}`", verb.as_str()))
            .with("resource", target)
            .with("verb", verb));
    }
    Ok(())
}

/// What an executor or a sink asks before it writes.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteSetQuestion {
    #[schema(value_type = String)]
    pub run: RunId,
    #[schema(value_type = String)]
    pub resource: Target,
    pub verb: Verb,
}

/// A yes, and how long it holds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WriteSetAnswer {
    pub ok: bool,
    #[schema(value_type = String)]
    pub run: RunId,
    #[schema(value_type = String)]
    pub resource: Target,
    pub verb: Verb,
    /// Whether the run said what it would write. One that did not may propose anything.
    pub has_write_set: bool,
    pub expires_at: Timestamp,
}

/// Answers executors and people about any run, a run about its agent's.
///
/// # Errors
/// `not_found` · `run_stopped` · `outside_write_set`.
pub async fn check(desk: &Desk, principal: &Principal, question: WriteSetQuestion) -> Result<WriteSetAnswer> {
    let WriteSetQuestion { run: id, resource, verb } = question;
    let found = run::by_id(&mut desk.store.read().await?, &id).await?;
    let sees = |run: &Run| principal.agent().is_none_or(|agent| *agent == run.agent);
    let Some(run) = found.filter(sees) else {
        return Err(Problem::new(Code::NotFound, format!("there is no run `{id}` for you")).into());
    };
    let now = desk.now();
    let run = live(Some(run), now)?;
    permitted(&run, &resource, verb, now)?;
    let grants = run.write_set.iter().flatten().filter(|grant| grant.permits(resource.as_str(), verb, now));
    let latest = grants.map(|grant| grant.expires_at.unwrap_or(run.expires_at)).max();
    Ok(WriteSetAnswer {
        ok: true,
        run: id,
        resource,
        verb,
        has_write_set: run.write_set.is_some(),
        expires_at: latest.unwrap_or(run.expires_at).min(run.expires_at),
    })
}

/// A run starts what it may write itself, whichever run of its agent proposed it; an executor, what the proposing run
/// may still write.
pub async fn may_start(
    tx: &mut Tx,
    worker: &Worker,
    op: &Operation,
) -> store::Result<std::result::Result<(), Problem>> {
    let (p, now) = (&op.proposal, tx.now());
    match worker {
        Worker::Run(run) => may_write(tx, run.id(), &p.target, p.verb, now).await,
        Worker::Executor(_) | Worker::Gateway(_) => proposer_may_write(tx, op).await,
    }
}
