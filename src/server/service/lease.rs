//! Leases: acquired, renewed and released by runs, broken by operators; and the fences that sinks ask about.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{By, Desk, claim::Worker, error::Result, ownership};
use crate::{
    model::{
        audit::{Entry, Event},
        id::{AgentId, LeaseId, RunId},
        kind::{LeaseRule, Verb},
        lease::{self as rules, Acquisition, Ending, FencingToken, Lease, LeaseRef, Progress, Refusal, Ttl},
        operation::Operation,
        problem::{Code, Problem},
        target::Target,
        time::Timestamp,
    },
    server::{
        ids,
        store::{
            self, Conn, Tx,
            committer::{Notice, Topic},
            lease::{self, Named},
            run,
        },
        web::auth::{Operator, Principal, RunIdentity},
    },
};

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    #[schema(value_type = String)]
    pub resource: Target,
    /// Seconds.
    #[serde(default)]
    pub ttl_s: Ttl,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// Seconds.
    #[serde(default)]
    pub ttl_s: Ttl,
    /// How far the holder has got: a lease whose mark has not moved for five minutes is lost.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub progress: Option<Progress>,
}

/// How a request for a lease was met.
pub enum Acquired {
    /// 201
    New(Named),
    /// 200: the caller holds it already.
    Same(Named),
}

/// Acquires a lease for a live run that may `lease` the resource.
///
/// # Errors
/// `run_stopped` · `outside_write_set` · `lease_held`.
pub async fn acquire(desk: &Desk, identity: &RunIdentity, request: LeaseRequest) -> Result<Acquired> {
    let identity = identity.clone();
    desk.commit(move |tx| Box::pin(async move { acquire_in(tx, &identity, request).await })).await
}

async fn acquire_in(
    tx: &mut Tx,
    identity: &RunIdentity,
    LeaseRequest { resource, ttl_s }: LeaseRequest,
) -> store::Result<std::result::Result<Acquired, Problem>> {
    let now = tx.now();
    let run = match may_lease(tx, identity, &resource).await? {
        Ok(run) => run,
        Err(problem) => return Ok(Err(problem)),
    };
    let named = |lease| Named { lease, run_label: run.label.clone(), agent_name: run.agent_name.clone() };
    let last = lease::last(tx, &resource).await?;
    let event = match rules::acquire(last.as_ref(), &run.id, now) {
        Err(problem) => return Ok(Err(problem)),
        Ok(Acquisition::Same(lease)) => return Ok(Ok(Acquired::Same(named(lease.clone())))),
        Ok(Acquisition::Free) => Event::LeaseAcquired,
        Ok(Acquisition::TakeOver(expired)) => {
            let reason = format!("it expired at {}", expired.expires_at);
            lease::update(tx, &expired.end(Ending::TakenOver, run.id.to_string(), Some(reason), now)).await?;
            Event::LeaseTakenOver
        }
    };
    let expires_at = rules::first_expiry(ttl_s, run.expires_at, now);
    let new = lease::New { id: ids::new(now), resource: &resource, run: &run.id, agent: &run.agent, expires_at };
    let Some(lease) = lease::take(tx, new).await? else {
        return Err(store::Error::corrupt(format!("`{resource}` was leased under the lock")));
    };
    record(tx, &identity.by(), event, &lease, None).await?;
    Ok(Ok(Acquired::New(named(lease))))
}

/// The live run behind the identity, if it may `lease` the resource.
async fn may_lease(
    tx: &mut Tx,
    identity: &RunIdentity,
    resource: &Target,
) -> store::Result<std::result::Result<run::Run, Problem>> {
    let now = tx.now();
    Ok(ownership::live(run::by_id(tx, identity.id()).await?, now).and_then(|run| {
        ownership::permitted(&run, resource, Verb::Lease, now)?;
        Ok(run)
    }))
}

/// Renews a lease that its holder has not lost.
///
/// # Errors
/// `not_found` · `run_stopped` · `outside_write_set` · `lease_lost`.
pub async fn renew(desk: &Desk, identity: &RunIdentity, id: &LeaseId, request: RenewRequest) -> Result<Named> {
    let (identity, id) = (identity.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let now = tx.now();
            let found = match own(tx, &identity, &id).await? {
                Ok(found) => found,
                Err(problem) => return Ok(Err(problem)),
            };
            let run = match may_lease(tx, &identity, &found.lease.resource).await? {
                Ok(run) => run,
                Err(problem) => return Ok(Err(problem)),
            };
            match found.lease.renew(request.ttl_s, request.progress, run.expires_at, now) {
                Ok(renewed) => {
                    lease::update(tx, &renewed).await?;
                    let progress = renewed.progress.as_ref().map(|mark| mark.as_str().to_owned());
                    record(tx, &identity.by(), Event::LeaseRenewed, &renewed, progress).await?;
                    Ok(Ok(Named { lease: renewed, ..found }))
                }
                Err(Refusal::Lost(problem)) => Ok(Err(problem)),
                Err(Refusal::Ends { how, reason, problem }) => {
                    end(tx, &By::system("desk"), &found.lease, how, Some(reason.to_owned())).await?;
                    Ok(Err(problem))
                }
            }
        })
    })
    .await
}

/// The lease of that id, if it is the run's.
async fn own(
    conn: &mut Conn,
    identity: &RunIdentity,
    id: &LeaseId,
) -> store::Result<std::result::Result<Named, Problem>> {
    let found = lease::find(conn, id).await?.filter(|found| found.lease.run == *identity.id());
    Ok(found.ok_or_else(|| Problem::new(Code::NotFound, "this run never had a lease of this id")))
}

/// Gives a lease back; giving it back again changes nothing.
///
/// # Errors
/// `not_found` · `lease_lost` when it was lost before.
pub async fn release(desk: &Desk, identity: &RunIdentity, id: &LeaseId) -> Result<Named> {
    let (identity, id) = (identity.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let found = match own(tx, &identity, &id).await? {
                Ok(found) => found,
                Err(problem) => return Ok(Err(problem)),
            };
            if found.lease.ended.as_ref().is_some_and(|ended| ended.how == Ending::Released) {
                return Ok(Ok(found));
            }
            if !found.lease.is_live(tx.now()) {
                return Ok(Err(found.lease.lost(tx.now())));
            }
            let lease = end(tx, &identity.by(), &found.lease, Ending::Released, None).await?;
            Ok(Ok(Named { lease, ..found }))
        })
    })
    .await
}

/// Takes a lease away from its holder, and makes its token stale at once.
///
/// # Errors
/// `not_found` · `lease_lost` when it has ended, or a successor has the resource.
pub async fn force_release(desk: &Desk, operator: &Operator, id: &LeaseId, reason: String) -> Result<Named> {
    let (by, id) = (operator.by(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let Some(found) = lease::find(tx, &id).await? else {
                return Ok(Err(Problem::new(Code::NotFound, "there is no lease of this id")));
            };
            match &found.lease.ended {
                Some(ended) if ended.how == Ending::ForceReleased => return Ok(Ok(found)),
                Some(_) => return Ok(Err(found.lease.lost(tx.now()))),
                None => {}
            }
            let lease = end(tx, &by, &found.lease, Ending::ForceReleased, Some(reason)).await?;
            Ok(Ok(Named { lease, ..found }))
        })
    })
    .await
}

/// Ends what a run still holds.
pub async fn release_all_of_run(tx: &mut Tx, by: &By, run: &RunId, reason: &str) -> store::Result<()> {
    let now = tx.now();
    for held in lease::live_of_run(tx, run, now).await? {
        end(tx, by, &held.lease, Ending::Released, Some(reason.to_owned())).await?;
    }
    Ok(())
}

async fn end(tx: &mut Tx, by: &By, lease: &Lease, how: Ending, reason: Option<String>) -> store::Result<Lease> {
    let ended = lease.end(how, by.actor.id.clone(), reason.clone(), tx.now());
    lease::update(tx, &ended).await?;
    let (event, fence) = match how {
        Ending::ForceReleased => (Event::LeaseForceReleased, lease::bump(tx, &lease.resource).await?),
        _ => (Event::LeaseReleased, lease.fencing_token.as_i64()),
    };
    record_under(tx, by, event, &ended, fence, reason).await?;
    Ok(ended)
}

async fn record(tx: &mut Tx, by: &By, event: Event, lease: &Lease, reason: Option<String>) -> store::Result<()> {
    record_under(tx, by, event, lease, lease.fencing_token.as_i64(), reason).await
}

async fn record_under(
    tx: &mut Tx,
    by: &By,
    event: Event,
    lease: &Lease,
    fence: i64,
    reason: Option<String>,
) -> store::Result<()> {
    let entry = Entry {
        resource: Some(lease.resource.clone()),
        run: Some(lease.run.clone()),
        fence: Some(fence),
        reason,
        ..by.entry(event)
    };
    let seq = tx.audit(&entry).await?;
    let notice = Notice {
        topic: Topic::Lease,
        subject: lease.id.as_str(),
        agent: Some(lease.agent.as_str()),
        state: lease.state(tx.now()),
        version: lease.version,
    };
    tx.publish(seq, notice).await
}

/// What is wrong with the lease that a claimant presents for `op`, if anything is. An executor works under a lease of
/// the proposing agent.
pub async fn shortcoming(
    tx: &mut Tx,
    worker: &Worker,
    op: &Operation,
    presented: Option<&LeaseRef>,
) -> store::Result<Option<Problem>> {
    let target = &op.proposal.target;
    let Some(presented) = presented else {
        let is_needed = op.proposal.lease == LeaseRule::Required;
        return Ok(is_needed.then(|| rules::missing(target)));
    };
    let is_theirs = |lease: &Lease| match worker {
        Worker::Run(run) => lease.run == *run.id(),
        Worker::Executor(_) | Worker::Gateway(_) => lease.agent == op.proposal.agent,
    };
    let found = lease::find(tx, &presented.id).await?.map(|found| found.lease).filter(is_theirs);
    let highest = lease::highest(tx, target).await?;
    Ok(rules::check_presented(target, presented, found.as_ref(), highest, tx.now()).err())
}

/// Live leases, the newest first: all of them for people, its own for a program.
///
/// # Errors
/// `forbidden` for executors, which hold none.
pub async fn list(
    desk: &Desk,
    principal: &Principal,
    resource: Option<&Target>,
    before: Option<&LeaseId>,
    limit: i64,
) -> Result<Vec<LeaseView>> {
    let agent = match principal {
        Principal::Person(_) => None,
        Principal::Executor(_) => return Err(Problem::new(Code::Forbidden, "an executor holds no leases").into()),
        own => own.agent(),
    };
    let now = desk.now();
    let found = lease::live(&mut desk.store.read().await?, agent, resource, before, now, limit).await?;
    Ok(found.into_iter().map(|named| LeaseView::new(named, now)).collect())
}

/// One lease, whatever has become of it.
///
/// # Errors
/// `not_found`.
pub async fn get(desk: &Desk, id: &LeaseId) -> Result<LeaseView> {
    let found = lease::find(&mut desk.store.read().await?, id).await?;
    let found = found.ok_or_else(|| Problem::new(Code::NotFound, "there is no lease of this id"))?;
    Ok(LeaseView::new(found, desk.now()))
}

/// What one run holds.
pub async fn of_run(desk: &Desk, run: &RunId) -> Result<Vec<LeaseView>> {
    let now = desk.now();
    let found = lease::live_of_run(&mut desk.store.read().await?, run, now).await?;
    Ok(found.into_iter().map(|named| LeaseView::new(named, now)).collect())
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FenceRequest {
    #[schema(value_type = String)]
    pub resource: Target,
    pub fencing_token: FencingToken,
}

/// Whether a sink may carry out a write that comes with this token; the highest one it may.
///
/// # Errors
/// `stale_fence`, on record · `validation_failed` for a token that nobody was given.
pub async fn check_fence(desk: &Desk, worker: &Worker, request: FenceRequest) -> Result<i64> {
    let FenceRequest { resource, fencing_token } = request;
    let highest = lease::highest(&mut desk.store.read().await?, &resource).await?;
    match rules::check_fence(&resource, fencing_token, highest, "/fencing_token") {
        Ok(()) => Ok(highest),
        Err(problem) if problem.code == Code::StaleFence => {
            let entry = Entry {
                resource: Some(resource),
                fence: Some(fencing_token.as_i64()),
                status: Some(problem.code.as_str()),
                reason: Some(format!("{highest} has been handed out since")),
                ..worker.by().entry(Event::FenceRejected)
            };
            desk.commit(move |tx| Box::pin(async move { tx.audit(&entry).await.map(|_| Err(problem)) })).await
        }
        Err(problem) => Err(problem.into()),
    }
}

/// The lease as JSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LeaseView {
    #[schema(value_type = String)]
    pub id: LeaseId,
    #[schema(value_type = String)]
    pub resource: Target,
    pub fencing_token: FencingToken,
    /// `live`, `expired`, `released`, `taken_over`, `force_released`, `stalled` or `restored`.
    pub state: &'static str,
    pub version: i64,
    #[schema(value_type = String)]
    pub run: RunId,
    pub run_label: String,
    #[schema(value_type = String)]
    pub agent: AgentId,
    pub agent_name: String,
    pub acquired_at: Timestamp,
    pub expires_at: Timestamp,
    /// Seconds since it was acquired.
    pub age_s: i64,
    pub progress: Option<String>,
    /// When the progress mark last moved.
    pub progressed_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub ended_by: Option<String>,
    pub end_reason: Option<String>,
}

impl LeaseView {
    pub fn new(Named { lease, run_label, agent_name }: Named, now: Timestamp) -> Self {
        let state = lease.state(now);
        let ended = lease.ended;
        Self {
            id: lease.id,
            resource: lease.resource,
            fencing_token: lease.fencing_token,
            state,
            version: lease.version,
            run: lease.run,
            run_label,
            agent: lease.agent,
            agent_name,
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
            age_s: (now - lease.acquired_at) / 1000,
            progress: lease.progress.map(|mark| mark.as_str().to_owned()),
            progressed_at: lease.progressed_at,
            ended_at: ended.as_ref().map(|ended| ended.at),
            ended_by: ended.as_ref().map(|ended| ended.by.clone()),
            end_reason: ended.and_then(|ended| ended.reason),
        }
    }
}
