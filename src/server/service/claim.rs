//! Claims: an approval is spent once, by the exact write it was given for.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    By, Desk,
    decide::carry_out,
    error::Result,
    lease,
    operation::{load, standing},
    ownership,
};
use crate::{
    model::{
        audit::Event,
        conflict::Met,
        document::ClaimDoc,
        evidence::{EvidenceKind, Finding},
        fingerprint::Fingerprint,
        id::{ClaimId, CorrelationId, OperationId},
        kind::{Executor, KindName},
        lease::LeaseRef,
        operation::{
            Claimant, Operation, OutcomeStatus, ProviderResponse, State,
            rules::{self, ClaimFacts, ClaimRef, Done, Report, Reported, Standing},
        },
        problem::{Code, Problem},
        resource::Author,
    },
    server::{
        ids,
        service::{conflict, evidence, reconcile, version},
        store::{self, Tx, operation},
        web::auth::{ExecutorIdentity, RunIdentity},
    },
};

/// What people call the part of Counterfoil that sends requests.
pub const GATEWAY: &str = "Counterfoil's gateway";

/// Whoever may carry operations out.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one lives for one request; a box would only move it")]
pub enum Worker {
    Run(RunIdentity),
    Executor(ExecutorIdentity),
    /// Counterfoil itself, for one request; its records and the request share the correlation.
    Gateway(CorrelationId),
}

impl Worker {
    fn claimant(&self) -> Claimant {
        match self {
            Self::Run(run) => Claimant::Run(run.id().clone()),
            Self::Executor(executor) => Claimant::Executor(executor.id().clone()),
            Self::Gateway(_) => Claimant::Gateway,
        }
    }

    pub fn by(&self) -> By {
        match self {
            Self::Run(run) => run.by(),
            Self::Executor(executor) => executor.by(),
            Self::Gateway(correlation) => {
                By { actor: Claimant::Gateway.actor(), run: None, correlation: Some(correlation.clone()), route: None }
            }
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Run(run) => run.agent_name().to_owned(),
            Self::Executor(executor) => executor.executor().name.clone(),
            Self::Gateway(_) => GATEWAY.to_owned(),
        }
    }

    /// The run's agent proposed it, or the executor serves its kind; what the gateway serves is the kind's own word.
    fn serves(&self, op: &Operation) -> bool {
        match self {
            Self::Run(run) => *run.agent() == op.proposal.agent,
            Self::Executor(executor) => op.proposal.kind.parse::<KindName>().is_ok_and(|kind| executor.serves(&kind)),
            Self::Gateway(_) => true,
        }
    }
}

/// The operation this worker may work on, its lapse recorded.
async fn workable(
    tx: &mut Tx,
    worker: &Worker,
    id: &OperationId,
) -> store::Result<std::result::Result<Operation, Problem>> {
    Ok(load(tx, id).await?.and_then(|op| if worker.serves(&op) { Ok(op) } else { Err(super::operation::not_found()) }))
}

/// What Counterfoil carries out itself is nobody else's to claim. A run that stopped, or lost the write set, claims and
/// sends nothing.
async fn may_start(
    desk: &Desk,
    tx: &mut Tx,
    worker: &Worker,
    op: &Operation,
) -> store::Result<std::result::Result<(), Problem>> {
    let kind = desk.kind(tx, &op.proposal.kind, Some(op.proposal.kind_version)).await?;
    let itself = match (kind.map(|kind| kind.kind.executor), worker) {
        (Some(Executor::Managed), _) => Some("writes it in the transaction that approves it"),
        (Some(Executor::Gateway), Worker::Gateway(_)) => None,
        (Some(Executor::Gateway), _) => Some("sends it through its gateway"),
        (_, Worker::Gateway(_)) => Some("leaves it to an executor of its kind"),
        (Some(Executor::Agent) | None, _) => None,
    };
    if let Some(how) = itself {
        let detail = format!("Nobody claims `{}`: Counterfoil {how}", op.proposal.kind);
        return Ok(Err(Problem::new(Code::Forbidden, detail).with("kind", &op.proposal.kind)));
    }
    ownership::may_start(tx, worker, op).await
}

/// The body of a claim.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    /// The lease on the target, where the kind asks for one.
    #[serde(default)]
    pub lease: Option<LeaseRef>,
}

/// Claims an approved operation; the same claimant gets its own live claim back.
///
/// # Errors
/// The refusals of the contract, in its order; each is on record.
pub async fn claim(desk: &Desk, worker: &Worker, id: &OperationId, request: ClaimRequest) -> Result<Operation> {
    let (desk_in, worker, id) = (desk.clone(), worker.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let result = match may_start(&desk_in, tx, &worker, &op).await? {
                Err(problem) => Err(problem),
                Ok(()) => {
                    let lease = lease::shortcoming(tx, &worker, &op, request.lease.as_ref()).await?;
                    let licence = reconcile::licence(&desk_in, tx, &op).await?;
                    let facts = ClaimFacts {
                        claim: ids::new::<ClaimId>(tx.now()),
                        by: worker.claimant(),
                        ttl_s: desk_in.config.claim_ttl_s,
                        lease: request.lease,
                        licence,
                        standing: Standing { lease, ..standing(&desk_in, tx, &op).await? },
                    };
                    rules::claim(&op, request.fingerprint.as_str(), facts, tx.now())
                }
            };
            let is_claim = matches!(result, Ok(Done::Step(_)));
            let claimed = carry_out(tx, &worker.by(), op, Event::ClaimRefused, result).await?;
            if is_claim {
                desk_in.faults.reach("after_claim").await;
            }
            Ok(claimed)
        })
    })
    .await
}

/// What the claimant needs to carry it out.
pub fn document(op: &Operation) -> Option<ClaimDoc> {
    ClaimDoc::of(op)
}

/// Which claim a report is about.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SentRequest {
    #[schema(value_type = String)]
    pub claim_id: ClaimId,
    pub claim_fence: i64,
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    /// The lease on the target, where the kind asks for one.
    #[serde(default)]
    pub lease: Option<LeaseRef>,
}

/// `sent`, on record before any byte leaves.
///
/// # Errors
/// The refusals of the contract; each is on record.
pub async fn sent(desk: &Desk, worker: &Worker, id: &OperationId, request: SentRequest) -> Result<Operation> {
    let (desk_in, worker, id) = (desk.clone(), worker.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let now = tx.now();
            let result = match may_start(&desk_in, tx, &worker, &op).await? {
                Err(problem) => Err(problem),
                Ok(()) => {
                    let claimed = claim_ref(&worker, &request.claim_id, request.claim_fence);
                    let lease = lease::shortcoming(tx, &worker, &op, request.lease.as_ref()).await?;
                    let standing = Standing { lease, ..standing(&desk_in, tx, &op).await? };
                    rules::sent(&op, &claimed, request.fingerprint.as_str(), request.lease, &standing, now)
                }
            };
            let result = carry_out(tx, &worker.by(), op, Event::ReportRefused, result).await?;
            desk_in.faults.reach("after_sent").await;
            Ok(result)
        })
    })
    .await
}

/// Claims what is approved, or licensed once more, and puts `sent` on record in one commit: its request leaves at once. The lease is the one
/// that the proposing agent holds on the target now. A refusal is not on record: nobody has asked, and the gateway asks
/// again. `ttl_s` seconds later the claim ends.
///
/// # Errors
/// The refusals of the contract.
pub async fn claim_and_send(desk: &Desk, worker: &Worker, id: &OperationId, ttl_s: i64) -> Result<Operation> {
    let (desk_in, worker, id) = (desk.clone(), worker.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            if let Err(problem) = may_start(&desk_in, tx, &worker, &op).await? {
                return Ok(Err(problem));
            }
            let (now, agent, target) = (tx.now(), &op.proposal.agent, &op.proposal.target);
            let presented = store::lease::live(tx, Some(agent), Some(target), None, now, 1).await?.pop();
            let presented =
                presented.map(|held| LeaseRef { id: held.lease.id, fencing_token: held.lease.fencing_token });
            let lease = lease::shortcoming(tx, &worker, &op, presented.as_ref()).await?;
            let licence = reconcile::licence(&desk_in, tx, &op).await?;
            let facts = ClaimFacts {
                claim: ids::new::<ClaimId>(tx.now()),
                by: worker.claimant(),
                ttl_s,
                lease: presented,
                licence,
                standing: Standing { lease, ..standing(&desk_in, tx, &op).await? },
            };
            let result = match rules::claim_and_send(&op, facts, tx.now()) {
                Ok(Done::Already) => Err(Problem::new(Code::AlreadyClaimed, "It is under way already")),
                Err(problem) => Err(problem),
                result => carry_out(tx, &worker.by(), op, Event::ClaimRefused, result).await?,
            };
            desk_in.faults.reach("gateway_sent").await;
            Ok(result)
        })
    })
    .await
}

fn claim_ref(worker: &Worker, id: &ClaimId, fence: i64) -> ClaimRef {
    ClaimRef { id: id.clone(), fence, by: worker.claimant() }
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptedRequest {
    #[schema(value_type = String)]
    pub claim_id: ClaimId,
    pub claim_fence: i64,
    /// The provider's own name for what it queued.
    pub provider_reference: String,
}

/// The provider queued it.
///
/// # Errors
/// The refusals of the contract; each is on record.
pub async fn accepted(desk: &Desk, worker: &Worker, id: &OperationId, request: AcceptedRequest) -> Result<Operation> {
    check_text("/provider_reference", Some(&request.provider_reference))?;
    let (worker, id) = (worker.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let claimed = claim_ref(&worker, &request.claim_id, request.claim_fence);
            let result = rules::accepted(&op, &claimed, &request.provider_reference, tx.now());
            let queued = evidence::Statement {
                body: None,
                finding: Finding::Inconclusive,
                kind: EvidenceKind::LateReport,
                reference: Some(request.provider_reference),
                observed_at: tx.now(),
                note: Some("the provider had queued it".to_owned()),
            };
            reported(tx, &worker, op, result, queued).await
        })
    })
    .await
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    #[schema(value_type = String)]
    pub claim_id: ClaimId,
    pub claim_fence: i64,
}

/// Extends the claim.
///
/// # Errors
/// The refusals of the contract; each is on record.
pub async fn heartbeat(desk: &Desk, worker: &Worker, id: &OperationId, request: HeartbeatRequest) -> Result<Operation> {
    let (worker, id, ttl_s) = (worker.clone(), id.clone(), desk.config.claim_ttl_s);
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let claimed = claim_ref(&worker, &request.claim_id, request.claim_fence);
            let result = rules::heartbeat(&op, &claimed, ttl_s, tx.now());
            carry_out(tx, &worker.by(), op, Event::ReportRefused, result).await
        })
    })
    .await
}

/// The provider's reply, as the claimant saw it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseRequest {
    /// HTTP status, or the protocol's own number.
    pub status: i64,
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub body: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeRequest {
    #[schema(value_type = String)]
    pub claim_id: ClaimId,
    pub claim_fence: i64,
    #[schema(value_type = String)]
    pub status: OutcomeStatus,
    #[serde(default)]
    pub provider_reference: Option<String>,
    /// The provider's own word, `running` or `canceled`.
    #[serde(default)]
    pub provider_status: Option<String>,
    #[serde(default)]
    pub response: Option<ResponseRequest>,
    /// The version the write made of the target.
    #[serde(default)]
    pub resulting_version: Option<i64>,
    /// What the destination said about a conflict.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub conflict: Option<serde_json::Value>,
}

/// What came of it. Too late to change the state, it is kept as evidence.
///
/// # Errors
/// The refusals of the contract; each is on record.
pub async fn outcome(desk: &Desk, worker: &Worker, id: &OperationId, request: OutcomeRequest) -> Result<Operation> {
    check_text("/provider_reference", request.provider_reference.as_ref())?;
    check_text("/provider_status", request.provider_status.as_ref())?;
    if request.resulting_version.is_some_and(|v| v < 0) {
        return Err(Problem::at(Code::ValidationFailed, "/resulting_version", "expected a version, 0 or more").into());
    }
    let (desk_in, worker, id) = (desk.clone(), worker.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match workable(tx, &worker, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            desk_in.faults.reach("before_outcome").await;
            outcome_in(tx, &worker, op, request).await
        })
    })
    .await
}

async fn outcome_in(
    tx: &mut Tx,
    worker: &Worker,
    op: Operation,
    request: OutcomeRequest,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let claimed = claim_ref(worker, &request.claim_id, request.claim_fence);
    let salt = operation::salt(tx, op.id()).await?;
    let report = Report {
        status: request.status,
        provider_reference: request.provider_reference,
        provider_status: request.provider_status,
        response: request.response.map(|response| ProviderResponse {
            status: response.status,
            digest: response.body.as_ref().map(|body| evidence::digest(&salt, body)),
            body: response.body,
        }),
        resulting_version: request.resulting_version,
    };
    let result = rules::report(&op, &claimed, &report, tx.now());
    let moved = matches!(result, Ok(Reported::Done(Done::Step(_))));
    let stated = evidence::Statement {
        body: None,
        finding: match report.status {
            OutcomeStatus::Succeeded => Finding::Applied,
            OutcomeStatus::Failed | OutcomeStatus::Conflicted => Finding::NotApplied,
            OutcomeStatus::Unknown => Finding::Inconclusive,
        },
        kind: EvidenceKind::LateReport,
        reference: report.provider_reference.clone(),
        observed_at: tx.now(),
        note: report.provider_status.clone(),
    };
    let stored = match result {
        Ok(Reported::Done(Done::Step(step))) if step.life.state == State::Conflicted => {
            let met = Met { reported: request.conflict, ..conflict::met(tx, op.proposal.target.as_str()).await? };
            let problem = conflict::refused_by_destination(&op);
            Ok(conflict::end(tx, &worker.by(), &op, step, &problem, met).await?)
        }
        result => reported(tx, worker, op, result, stated).await?,
    };
    if let (true, Ok(op), Some(resulting)) = (moved, &stored, report.resulting_version)
        && op.life.state == State::Succeeded
    {
        let author = Author {
            run: Some(op.proposal.run.clone()),
            operation: Some(op.id().clone()),
            agent: Some(op.proposal.agent.clone()),
            approval: Some(op.life.approval.id.clone()),
            person: None,
        };
        version::observe(tx, &worker.by(), op.proposal.target.as_str(), resulting, &author).await?;
    }
    Ok(stored)
}

/// Stores what a report changed; one that came too late is kept as `stated`.
async fn reported(
    tx: &mut Tx,
    worker: &Worker,
    op: Operation,
    result: std::result::Result<Reported, Problem>,
    stated: evidence::Statement,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let by = worker.by();
    match result {
        Ok(Reported::Late(problem)) => evidence::keep_late(tx, &by, worker.name(), op, stated, problem).await,
        Ok(Reported::Done(done)) => carry_out(tx, &by, op, Event::ReportRefused, Ok(done)).await,
        Err(problem) => carry_out(tx, &by, op, Event::ReportRefused, Err(problem)).await,
    }
}

fn check_text(pointer: &str, text: Option<&String>) -> std::result::Result<(), Problem> {
    match text {
        Some(text) if text.trim().is_empty() || text.chars().count() > 500 => {
            Err(Problem::at(Code::ValidationFailed, pointer, "expected 1 to 500 characters"))
        }
        _ => Ok(()),
    }
}
