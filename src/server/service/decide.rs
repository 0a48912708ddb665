//! People's votes: approve, reject, withdraw.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    By, Desk, conflict,
    error::Result,
    operation::{approvers, load, owner_now, record_refusal, standing, voters},
    resource::managed,
    review,
};
use crate::{
    model::{
        approval::{Role, Voter, may_vote},
        audit::{Entry, Event},
        fingerprint::Fingerprint,
        id::{OperationId, PersonId},
        operation::{
            Decision, Operation, ReasonCode, State, Vote,
            rules::{self, Ballot, Done},
        },
        problem::{Code, Problem},
    },
    server::{
        store::{self, Tx, operation},
        web::auth::{PersonIdentity, Principal},
    },
};

/// Characters of a reviewer's note.
const MAX_REASON: usize = 2_000;

/// One decision, as it is sent.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VoteRequest {
    #[schema(value_type = String)]
    pub decision: Decision,
    /// Of the command that was shown.
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    /// Of the review document that was shown.
    pub review_digest: String,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub reason_code: Option<ReasonCode>,
    #[serde(default)]
    pub reason: Option<String>,
    /// The target, typed by the person: for high and critical risk.
    #[serde(default)]
    pub confirm_target: Option<String>,
}

/// The vote on record, and what it made of the operation.
#[derive(Debug, Clone)]
pub struct Voted {
    pub operation: Operation,
    pub vote: Vote,
}

/// Counts one vote.
///
/// # Errors
/// The refusals of the contract, in its order; each is on record.
pub async fn vote(desk: &Desk, person: &PersonIdentity, id: &OperationId, request: VoteRequest) -> Result<Voted> {
    if request.reason.as_ref().is_some_and(|text| text.chars().count() > MAX_REASON) {
        let detail = format!("expected at most {MAX_REASON} characters");
        return Err(Problem::at(Code::ValidationFailed, "/reason", detail).into());
    }
    let (desk_in, person, id) = (desk.clone(), person.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let voted = vote_in(&desk_in, tx, &person, &id, request).await?;
            desk_in.faults.reach("after_approval").await;
            Ok(voted)
        })
    })
    .await
}

async fn vote_in(
    desk: &Desk,
    tx: &mut Tx,
    person: &PersonIdentity,
    id: &OperationId,
    request: VoteRequest,
) -> store::Result<std::result::Result<Voted, Problem>> {
    let Some(op) = operation::find(tx, id).await? else { return Ok(Err(super::operation::not_found())) };
    let by = person.by();
    // Rights are the person's of this moment, and come before anything that tells more about the operation.
    let voters = voters(tx).await?;
    let owner = owner_now(tx, &op).await?;
    let voter = voters.iter().find(|voter| voter.id == *person.id()).cloned().unwrap_or_else(|| person.voter());
    let right = may_vote(&op, &voter, request.decision, &owner).and_then(|()| {
        let asks_password = op.life.approval.step_up && request.decision == Decision::Approve;
        if asks_password && !person.is_stepped_up(tx.now()) {
            return Err(Problem::new(Code::StepUpRequired, "This rule asks for the password again before approving"));
        }
        Ok(())
    });
    let op = match load(tx, id).await? {
        Ok(op) => op,
        Err(problem) => return Ok(Err(problem)),
    };
    let result = match right {
        Err(problem) => Err(problem),
        Ok(()) => {
            let digest = review::of(tx, &op).await?.digest();
            let ballot = Ballot {
                by: person.id().clone(),
                name: person.name().to_owned(),
                decision: request.decision,
                fingerprint: request.fingerprint.to_string(),
                review_digest: request.review_digest,
                reason_code: request.reason_code,
                reason: request.reason.filter(|text| !text.trim().is_empty()),
                confirm_target: request.confirm_target,
            };
            let eligible: Vec<_> =
                approvers(&op, &op.life.approval.groups, &voters, &owner).map(|voter| voter.id.clone()).collect();
            rules::vote(&op, &ballot, &digest, &eligible, tx.now())
        }
    };
    let completes = matches!(&result, Ok(Done::Step(step)) if step.life.state == State::Approved);
    let is_written_here = op.proposal.managed && completes;
    let result = match result {
        Ok(done) if is_written_here => rules::hindrance(&standing(desk, tx, &op).await?).map_or(Ok(done), Err),
        result => result,
    };
    let mut op = match carry_out(tx, &by, op, Event::ApprovalRefused, result).await? {
        Ok(op) => op,
        Err(problem) => return Ok(Err(problem)),
    };
    if is_written_here {
        op = match managed::carry_out(desk, tx, &by, op).await? {
            Ok(op) => op,
            Err(problem) => return Ok(Err(problem)),
        };
    }
    let vote = op.standing_votes().find(|vote| vote.by == *person.id()).cloned();
    Ok(vote.map(|vote| Voted { operation: op, vote }).ok_or_else(super::operation::not_found))
}

/// Stores what a rule decided, or puts its refusal on record.
pub(super) async fn carry_out(
    tx: &mut Tx,
    by: &By,
    op: Operation,
    refused: Event,
    result: std::result::Result<Done, Problem>,
) -> store::Result<std::result::Result<Operation, Problem>> {
    match result {
        Ok(Done::Already) => Ok(Ok(op)),
        Ok(Done::Step(step)) => Ok(Ok(operation::apply(tx, &op, by.step(step)).await?)),
        Ok(Done::Refused(step, problem)) => {
            let op = if step.life.state == State::Conflicted {
                let met = conflict::met(tx, op.proposal.target.as_str()).await?;
                conflict::end(tx, by, &op, step, &problem, met).await?
            } else {
                operation::apply(tx, &op, by.step(step)).await?
            };
            record_refusal(tx, by, &op, refused, &problem).await?;
            Ok(Err(problem))
        }
        Err(problem) => {
            record_refusal(tx, by, &op, refused, &problem).await?;
            Ok(Err(problem))
        }
    }
}

/// Puts on record that a program tried to decide; `id` names the operation, where the request did.
pub async fn refuse_program(desk: &Desk, program: &Principal, id: Option<OperationId>, problem: &Problem) {
    // What is refused must not fill the log.
    if program.agent().is_some_and(|agent| desk.refusals.take(agent, desk.now()).is_err()) {
        return;
    }
    let (by, problem) = (program.by(), problem.clone());
    let recorded = desk.commit(move |tx| {
        Box::pin(async move {
            let op = match &id {
                Some(id) => operation::find(tx, id).await?,
                None => None,
            };
            match op {
                Some(op) => record_refusal(tx, &by, &op, Event::ApprovalRefused, &problem).await?,
                None => {
                    let status = Some(problem.code.as_str());
                    tx.audit(&Entry { status, ..by.entry(Event::ApprovalRefused) }).await?;
                }
            }
            Ok(Ok(()))
        })
    });
    if let Err(error) = recorded.await {
        tracing::warn!(%error, "a refused decision is not on record");
    }
}

/// Withdraws the person's own vote, a rejection only while others still decide; an operator without a vote of their own
/// withdraws every standing approval.
///
/// # Errors
/// `approval_spent`, `approval_expired`, `invalid_state`, `not_eligible`.
pub async fn withdraw(desk: &Desk, person: &PersonIdentity, id: &OperationId) -> Result<Operation> {
    let (person, id) = (person.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let whose = whose_votes(&op, &person.voter());
            let result = match whose {
                Ok(whose) => rules::withdraw(&op, &whose, person.by().actor, tx.now()).map(Done::Step),
                Err(problem) => Err(problem),
            };
            carry_out(tx, &person.by(), op, Event::ApprovalRefused, result).await
        })
    })
    .await
}

fn whose_votes(op: &Operation, voter: &Voter) -> std::result::Result<Vec<PersonId>, Problem> {
    let counts = |vote: &&Vote| op.life.state == State::Pending || vote.decision == Decision::Approve;
    if op.standing_votes().filter(counts).any(|vote| vote.by == voter.id) {
        return Ok(vec![voter.id.clone()]);
    }
    match voter.role {
        Role::Operator | Role::Admin => Ok(op.standing_approvals().map(|vote| vote.by.clone()).collect()),
        _ => Err(Problem::new(Code::NotEligible, "You have no standing vote here to withdraw")),
    }
}

/// One item of a bulk decision.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkItem {
    #[schema(value_type = String)]
    pub id: OperationId,
    #[schema(value_type = String)]
    pub decision: Decision,
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    pub review_digest: String,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub reason_code: Option<ReasonCode>,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub confirm_target: Option<String>,
}

/// What became of one item.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BulkResult {
    pub id: String,
    /// HTTP status this item would have had on its own.
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Items of one bulk decision.
pub const MAX_BULK: usize = 100;

/// Decides exactly the items named, each on its own: high and critical ones never in bulk.
///
/// # Errors
/// Only when the request as a whole makes no sense; otherwise each item has its own answer.
pub async fn bulk(desk: &Desk, person: &PersonIdentity, items: Vec<BulkItem>) -> Result<Vec<BulkResult>> {
    if items.is_empty() || items.len() > MAX_BULK {
        let detail = format!("expected 1 to {MAX_BULK} decisions");
        return Err(Problem::at(Code::ValidationFailed, "/decisions", detail).into());
    }
    let decided = items.into_iter().map(|item| one_of_bulk(desk, person, item));
    futures::future::try_join_all(decided).await
}

async fn not_bulk(desk: &Desk, person: &PersonIdentity, op: Operation) -> Result<Problem> {
    let problem = Problem::new(Code::NotBulk, "High and critical operations are decided one at a time");
    let (by, refused) = (person.by(), problem.clone());
    desk.commit(move |tx| {
        Box::pin(async move { record_refusal(tx, &by, &op, Event::ApprovalRefused, &refused).await.map(Ok) })
    })
    .await?;
    Ok(problem)
}

async fn one_of_bulk(desk: &Desk, person: &PersonIdentity, item: BulkItem) -> Result<BulkResult> {
    let id = item.id;
    let found = operation::find(&mut desk.store.read().await?, &id).await?;
    let result = match found {
        Some(op) if op.proposal.risk.needs_care() => Err(not_bulk(desk, person, op).await?.into()),
        _ => {
            let request = VoteRequest {
                decision: item.decision,
                fingerprint: item.fingerprint,
                review_digest: item.review_digest,
                reason_code: item.reason_code,
                reason: item.reason,
                confirm_target: item.confirm_target,
            };
            vote(desk, person, &id, request).await
        }
    };
    let refused = |status: u16, code: Code, detail: String| BulkResult {
        id: id.to_string(),
        status,
        code: Some(code.as_str()),
        detail: Some(detail),
        state: None,
    };
    match result {
        Ok(voted) => Ok(BulkResult {
            id: id.to_string(),
            status: 200,
            code: None,
            detail: None,
            state: Some(voted.operation.life.state.to_string()),
        }),
        Err(super::error::Error::Refused(problem)) => Ok(refused(problem.code.status(), problem.code, problem.detail)),
        Err(super::error::Error::Unavailable) => {
            Ok(refused(503, Code::Unavailable, Code::Unavailable.title().to_owned()))
        }
        Err(error) => Err(error),
    }
}
