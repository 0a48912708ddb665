//! Documents of the HTTP API: what programs and pages read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    conflict::{Action, ConflictResolution, ConflictState},
    fingerprint::{Account, Command, Links},
    kind::Risk,
    lease::LeaseRef,
    operation::{
        AttemptResult, Claim, Claimant, CompensationStatus, Decision, HoldOverride, Operation, Outcome, ReasonCode,
        ReviewCase, State, rules,
    },
    problem::{Retry, RetryMode},
    run_approval::GrantedUnder,
    time::Timestamp,
};

/// An operation as it is read over HTTP. `version` is its entity tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationDoc {
    pub id: String,
    pub state: State,
    pub version: i64,
    pub kind: String,
    pub kind_version: i64,
    pub target: String,
    #[schema(value_type = Object)]
    pub params: Value,
    pub reason: Option<String>,
    pub consequence: String,
    pub rollback: String,
    #[schema(value_type = String)]
    pub risk: Risk,
    pub fingerprint: String,
    pub fingerprint_version: i64,
    pub short_code: String,
    /// Only to the agent that chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub source_event_id: Option<String>,
    /// Whose command it is, as the fingerprint covers it: the agent, or the person who writes by hand.
    pub account: String,
    pub agent: String,
    pub run: String,
    pub expected_version: Option<i64>,
    pub current_version: Option<i64>,
    pub duplicate_of: Option<String>,
    #[schema(value_type = Object)]
    pub links: Links,
    pub approval: ApprovalDoc,
    pub execution_deadline: Option<Timestamp>,
    pub claim: Option<ClaimSummary>,
    pub attempts: Vec<AttemptDoc>,
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<Outcome>,
    pub conflict: Option<ConflictRef>,
    /// The operation that takes its place, planned anew.
    pub replanned_by: Option<String>,
    pub compensation_status: CompensationStatus,
    /// The operation that makes good for it.
    pub compensated_by: Option<String>,
    pub review_case: Option<ReviewCaseDoc>,
    pub may_have_applied: bool,
    pub disputed: bool,
    /// An operator lets it pass whatever holds its target.
    #[serde(rename = "override")]
    pub hold_override: Option<HoldOverride>,
    #[schema(value_type = Object)]
    pub retry: Retry,
    pub safe_new_key: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub server_time: Timestamp,
    pub urls: Urls,
}

/// The conflict in which an operation ended, and what was decided about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConflictRef {
    pub id: String,
    pub state: ConflictState,
    pub resolution: Option<ResolutionDoc>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResolutionDoc {
    pub action: Action,
    /// What the agent is asked to do.
    pub instruction: Option<String>,
    pub note: Option<String>,
    pub by: String,
    pub by_name: String,
    pub at: Timestamp,
}

impl ResolutionDoc {
    pub fn of(resolution: &ConflictResolution) -> Self {
        Self {
            action: resolution.action,
            instruction: resolution.instruction.clone(),
            note: resolution.note.clone(),
            by: resolution.by.id.clone(),
            by_name: resolution.by_name.clone(),
            at: resolution.at,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Urls {
    #[serde(rename = "self")]
    pub self_: String,
    pub review: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDoc {
    pub id: String,
    pub required: i64,
    pub granted: i64,
    pub groups: Vec<String>,
    pub rule: String,
    pub policy_version: i64,
    /// What a person approved of the run ahead of time, where that granted it.
    pub run_approval: Option<GrantedUnder>,
    pub expires_at: Timestamp,
    pub approved_by: Vec<String>,
    pub votes: Vec<VoteDoc>,
    pub decided_at: Option<Timestamp>,
    pub retry_until: Option<Timestamp>,
    pub spent_at: Option<Timestamp>,
    pub spent_by: Option<String>,
    pub withdrawn_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VoteDoc {
    pub by: String,
    pub by_name: String,
    #[schema(value_type = String)]
    pub decision: Decision,
    pub at: Timestamp,
    #[schema(value_type = Option<String>)]
    pub reason_code: Option<ReasonCode>,
    pub reason: Option<String>,
    pub review_digest: String,
    /// When it was withdrawn or made void.
    pub void_at: Option<Timestamp>,
}

/// The current claim as others see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimSummary {
    pub id: String,
    pub claim_fence: i64,
    pub by: String,
    pub claimed_at: Timestamp,
    pub deadline_at: Timestamp,
    pub sent_at: Option<Timestamp>,
    pub provider_reference: Option<String>,
    /// What the claimant presented last.
    pub lease: Option<LeaseRef>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptDoc {
    pub claim_id: String,
    pub claim_fence: i64,
    pub by: String,
    pub claimed_at: Timestamp,
    pub deadline_at: Timestamp,
    pub sent_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    #[schema(value_type = Option<String>)]
    pub result: Option<AttemptResult>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReviewCaseDoc {
    pub id: String,
    pub owner: Option<String>,
    pub due_at: Timestamp,
    pub overdue: bool,
    pub opened_at: Timestamp,
    pub reason: String,
    /// The first of two people's finding, where two are asked.
    pub seconded_by: Option<String>,
    /// The first of two people's word for another attempt.
    pub retry_asked_by: Option<String>,
}

/// What the claimant carries out: everything it may rely on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimDoc {
    pub id: String,
    pub claim_fence: i64,
    pub deadline_at: Timestamp,
    /// What to send as the provider's idempotency key: the same on every attempt.
    pub downstream_key: String,
    pub fingerprint: String,
    pub kind: String,
    pub target: String,
    #[schema(value_type = Object)]
    pub params: Value,
    pub expected_version: Option<i64>,
    /// What was presented, where the kind is carried out under a lease: send its token to the destination.
    pub lease: Option<LeaseRef>,
    pub approval: ApprovalDoc,
}

/// For whom a document is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Sees the idempotency key.
    SameAgent,
    Others,
}

impl OperationDoc {
    /// `op` with its lapses decided; `base` is the public URL without a trailing slash.
    pub fn of(op: &Operation, audience: Audience, base: &str, now: Timestamp) -> Self {
        let (p, life) = (&op.proposal, &op.life);
        Self {
            id: p.id.to_string(),
            state: life.state,
            version: life.version,
            kind: p.kind.clone(),
            kind_version: p.kind_version,
            target: p.target.to_string(),
            params: params(op),
            reason: p.reason.clone(),
            consequence: p.consequence.clone(),
            rollback: p.rollback.clone(),
            risk: p.risk,
            fingerprint: p.fingerprint.to_string(),
            fingerprint_version: p.fingerprint_version,
            short_code: p.fingerprint.short_code(),
            idempotency_key: (audience == Audience::SameAgent).then(|| p.idempotency_key.clone()),
            source_event_id: p.source_event_id.clone(),
            account: account(op).to_string(),
            agent: p.agent.to_string(),
            run: p.run.to_string(),
            expected_version: p.expected_version,
            current_version: p.current_version,
            duplicate_of: p.duplicate_of.as_ref().map(ToString::to_string),
            links: p.links.clone(),
            approval: ApprovalDoc::of(op),
            execution_deadline: life.execution_deadline,
            claim: life.claim.as_ref().map(ClaimSummary::of),
            attempts: life.attempts.iter().map(AttemptDoc::of).collect(),
            outcome: life.outcome.clone(),
            conflict: life.conflict.as_ref().map(|id| ConflictRef {
                id: id.to_string(),
                state: ConflictState::of(life.conflict_resolution.as_ref()),
                resolution: life.conflict_resolution.as_ref().map(ResolutionDoc::of),
            }),
            replanned_by: life.replanned_by.as_ref().map(ToString::to_string),
            compensation_status: life.compensation.as_ref().map(|note| note.status).unwrap_or_default(),
            compensated_by: life.compensation.as_ref().map(|note| note.by.to_string()),
            review_case: life.review_case.as_ref().map(|case| ReviewCaseDoc::of(case, now)),
            may_have_applied: life.may_have_applied,
            disputed: life.disputed,
            hold_override: life.hold_override.clone(),
            retry: retry(op),
            safe_new_key: op.safe_new_key(),
            created_at: p.created_at,
            updated_at: life.updated_at,
            server_time: now,
            urls: Urls {
                self_: format!("{base}/api/v1/operations/{}", p.id),
                review: format!("{base}/operations/{}", p.id),
            },
        }
    }
}

/// The parameters, read back from the canonical text the fingerprint covers.
pub fn params(op: &Operation) -> Value {
    Command::parse_canonical(&op.proposal.canonical).map(|command| command.params).unwrap_or_default()
}

/// Whose command it is.
pub fn account(op: &Operation) -> Account {
    let command = Command::parse_canonical(&op.proposal.canonical);
    command.map_or_else(|_| Account::Agent(op.proposal.agent.clone()), |command| command.account)
}

/// What the agent may do next.
fn retry(op: &Operation) -> Retry {
    use State::*;
    let (mode, after_s) = match op.life.state {
        Pending => (RetryMode::AwaitDecision, Some(2)),
        Claimed | Sent | Accepted => (RetryMode::SameKey, Some(2)),
        Unknown | NeedsReview | Abandoned => (RetryMode::Operator, Some(30)),
        Conflicted if is_settled(op) => (RetryMode::None, None),
        Conflicted => (RetryMode::AfterFreshRead, None),
        Failed | Expired | Cancelled | Superseded => (RetryMode::NewOperation, None),
        Approved | Succeeded | Rejected => (RetryMode::None, None),
    };
    Retry { mode, after_s }
}

/// Nothing follows from its conflict, or what follows is under way.
fn is_settled(op: &Operation) -> bool {
    let decided = op.life.conflict_resolution.as_ref().map(|resolution| resolution.action);
    op.life.replanned_by.is_some() || decided.is_some_and(|action| action != Action::Replan)
}

impl ApprovalDoc {
    pub fn of(op: &Operation) -> Self {
        let a = &op.life.approval;
        let approving = op.standing_votes().filter(|vote| vote.decision == Decision::Approve);
        Self {
            id: a.id.to_string(),
            required: a.required,
            granted: op.granted(),
            groups: a.groups.clone(),
            rule: a.rule.clone(),
            policy_version: a.policy_version,
            run_approval: a.run_approval.clone(),
            expires_at: a.expires_at,
            approved_by: match &a.run_approval {
                Some(under) if a.granted_at.is_some() => vec![under.by.to_string()],
                _ if a.auto && a.granted_at.is_some() => vec![format!("policy:{}", a.rule)],
                _ => approving.map(|vote| vote.by.to_string()).collect(),
            },
            votes: op
                .life
                .votes
                .iter()
                .map(|vote| VoteDoc {
                    by: vote.by.to_string(),
                    by_name: vote.name.clone(),
                    decision: vote.decision,
                    at: vote.at,
                    reason_code: vote.reason_code,
                    reason: vote.reason.clone(),
                    review_digest: vote.review_digest.clone(),
                    void_at: vote.void_at,
                })
                .collect(),
            decided_at: a.granted_at,
            retry_until: a.retry_until,
            spent_at: a.spent_at,
            spent_by: a.spent_by.as_ref().map(|actor| actor.id.clone()),
            withdrawn_at: a.withdrawn_at,
        }
    }
}

fn claimant(by: &Claimant) -> String {
    match by {
        Claimant::Run(id) => id.to_string(),
        Claimant::Executor(id) => id.to_string(),
        Claimant::Managed | Claimant::Gateway => by.actor().id,
    }
}

impl ClaimSummary {
    fn of(claim: &Claim) -> Self {
        Self {
            id: claim.id.to_string(),
            claim_fence: claim.fence,
            by: claimant(&claim.by),
            claimed_at: claim.claimed_at,
            deadline_at: claim.deadline_at,
            sent_at: claim.sent_at,
            provider_reference: claim.provider_reference.clone(),
            lease: claim.lease.clone(),
        }
    }
}

impl AttemptDoc {
    fn of(attempt: &super::operation::Attempt) -> Self {
        Self {
            claim_id: attempt.claim_id.to_string(),
            claim_fence: attempt.claim_fence,
            by: claimant(&attempt.by),
            claimed_at: attempt.claimed_at,
            deadline_at: attempt.deadline_at,
            sent_at: attempt.sent_at,
            ended_at: attempt.ended_at,
            result: attempt.result,
        }
    }
}

impl ReviewCaseDoc {
    fn of(case: &ReviewCase, now: Timestamp) -> Self {
        Self {
            id: case.id.to_string(),
            owner: case.owner.clone(),
            due_at: case.due_at,
            overdue: case.is_overdue(now),
            opened_at: case.opened_at,
            reason: case.reason.clone(),
            seconded_by: case.seconded.as_ref().map(|first| first.name.clone()),
            retry_asked_by: case.retry_asked.as_ref().map(|first| first.name.clone()),
        }
    }
}

impl ClaimDoc {
    /// The operation's current claim.
    pub fn of(op: &Operation) -> Option<Self> {
        let claim = op.life.claim.as_ref()?;
        Some(Self {
            id: claim.id.to_string(),
            claim_fence: claim.fence,
            deadline_at: claim.deadline_at,
            downstream_key: op.proposal.id.to_string(),
            fingerprint: op.proposal.fingerprint.to_string(),
            kind: op.proposal.kind.clone(),
            target: op.proposal.target.to_string(),
            params: params(op),
            expected_version: op.proposal.expected_version,
            lease: claim.lease.clone(),
            approval: ApprovalDoc::of(op),
        })
    }
}

/// The state a reader is shown at `now`, before anyone has recorded the lapse.
pub fn shown_state(op: &Operation, now: Timestamp) -> State {
    rules::state_at(op, now)
}
