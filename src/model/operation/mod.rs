//! An operation: one intended write, and its life.
//!
//! [`Proposal`] is what was proposed and never changes; [`Life`] is what has become of it. [`rules`] is the only place
//! that turns one life into the next.

pub mod rules;
mod state;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    audit::{Actor, Hash},
    conflict::ConflictResolution,
    fingerprint::{Fingerprint, Links},
    id::{AgentId, ApprovalId, CaseId, ClaimId, ConflictId, EvidenceId, ExecutorId, OperationId, PersonId, RunId},
    kind::{LeaseRule, Phrase, Risk, Verb},
    lease::LeaseRef,
    policy::Effective,
    run_approval::GrantedUnder,
    target::Target,
    time::Timestamp,
};

pub use state::State;

/// One operation with everything the rules look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    pub proposal: Proposal,
    pub life: Life,
}

/// What was proposed: written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    pub id: OperationId,
    pub agent: AgentId,
    /// Who owned the agent when it proposed: excluded from every granting path.
    pub owner: PersonId,
    pub run: RunId,
    pub kind: String,
    pub kind_version: i64,
    /// The kind's name for people, `Release`.
    pub title: String,
    pub target: Target,
    /// The command in canonical form (RFC 8785): what the fingerprint covers, byte for byte.
    pub canonical: String,
    pub fingerprint: Fingerprint,
    pub fingerprint_version: i64,
    pub idempotency_key: String,
    /// The agent's own words; outside the fingerprint.
    pub reason: Option<String>,
    pub source_event_id: Option<String>,
    pub expected_version: Option<i64>,
    /// The version known here when it was proposed.
    pub current_version: Option<i64>,
    pub links: Links,
    /// What follows the agent's name in the headline; written by the server, like the two below.
    pub headline: Vec<Phrase>,
    pub consequence: String,
    pub rollback: String,
    pub risk: Risk,
    /// The kind is about money: two people resolve an unknown outcome.
    pub money: bool,
    /// One deployment per environment from claimed to terminal.
    pub locks_release: bool,
    /// Counterfoil itself carries it out when it is approved.
    pub managed: bool,
    /// Counterfoil itself sends it to `provider`.
    #[serde(default)]
    pub gateway: bool,
    /// Whether claim and `sent` present a lease on the target.
    #[serde(default)]
    pub lease: LeaseRule,
    pub verb: Verb,
    pub provider: Option<String>,
    /// Seconds for which an accepted effect may still be under way; past it the outcome is unknown.
    pub in_flight_s: i64,
    pub duplicate_of: Option<OperationId>,
    /// The groups that decide whatever the rule says: it goes beyond the limits of what it compensates.
    #[serde(default)]
    pub decided_by: Vec<String>,
    pub created_at: Timestamp,
}

/// What has become of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Life {
    pub state: State,
    /// Counts every visible change; the entity tag of the operation.
    pub version: i64,
    pub updated_at: Timestamp,
    pub approval: Approval,
    pub votes: Vec<Vote>,
    /// An approved operation runs before this or never.
    pub execution_deadline: Option<Timestamp>,
    pub claim: Option<Claim>,
    pub attempts: Vec<Attempt>,
    pub outcome: Option<Outcome>,
    pub conflict: Option<ConflictId>,
    /// What somebody decided about the conflict.
    #[serde(default)]
    pub conflict_resolution: Option<ConflictResolution>,
    /// The operation that takes this one's place, planned anew.
    #[serde(default)]
    pub replanned_by: Option<OperationId>,
    /// The operation that makes good for this one.
    #[serde(default)]
    pub compensation: Option<CompensationNote>,
    pub review_case: Option<ReviewCase>,
    /// Two people allow one more attempt: spent by the next claim.
    #[serde(default)]
    pub retry_authorization: Option<RetryAuthorization>,
    /// Set by the first `sent`, for good.
    pub may_have_applied: bool,
    pub disputed: bool,
    /// An operator lets it pass a doubtful outcome and a release lock on its target.
    #[serde(default)]
    pub hold_override: Option<HoldOverride>,
    /// Why it ended, for the endings that need no outcome: rejected, cancelled, superseded, expired.
    pub ending: Option<Ending>,
}

/// People's consent to one fingerprint, and the rule that asked for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub id: ApprovalId,
    pub rule: String,
    pub policy_version: i64,
    /// Distinct humans.
    pub required: i64,
    /// A voter is in at least one of these.
    pub groups: Vec<String>,
    pub one_reject: bool,
    pub step_up: bool,
    pub expires_at: Timestamp,
    /// Seconds from the approval to the end of the execution window.
    pub execution_ttl_s: i64,
    /// Seconds from the approval during which another attempt may be licensed.
    pub retry_ttl_s: i64,
    /// Who looks into an unknown outcome first.
    pub review_owner: Option<String>,
    /// Seconds until an unknown outcome is escalated.
    pub review_due_s: i64,
    /// Who looks into it next, each time it is overdue.
    #[serde(default)]
    pub escalation: Vec<String>,
    /// The rule grants by itself.
    pub auto: bool,
    /// What a person approved of the run ahead of time grants it.
    #[serde(default)]
    pub run_approval: Option<GrantedUnder>,
    pub granted_at: Option<Timestamp>,
    pub retry_until: Option<Timestamp>,
    pub spent_at: Option<Timestamp>,
    pub spent_by: Option<Actor>,
    pub withdrawn_at: Option<Timestamp>,
    /// Where the log stood once the grant was in it.
    pub receipt: Option<Receipt>,
}

/// Size and Merkle root of the log just after a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub size: u64,
    pub root: Hash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Approve,
    Reject,
}

/// Why an approver says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    WrongTarget,
    WrongContent,
    StalePlan,
    NotNow,
    Duplicate,
    Policy,
    Other,
}

impl ReasonCode {
    pub const ALL: [(Self, &str, &str); 7] = [
        (Self::WrongTarget, "wrong_target", "Wrong target"),
        (Self::WrongContent, "wrong_content", "Wrong content"),
        (Self::StalePlan, "stale_plan", "Stale plan"),
        (Self::NotNow, "not_now", "Not now"),
        (Self::Duplicate, "duplicate", "Duplicate"),
        (Self::Policy, "policy", "Policy"),
        (Self::Other, "other", "Other"),
    ];

    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// As people read it.
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name, _)| *name == text).map(|(code, ..)| *code)
    }
}

/// A human's decision on one fingerprint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    pub by: PersonId,
    /// The name the person had then.
    pub name: String,
    pub decision: Decision,
    pub at: Timestamp,
    pub reason_code: Option<ReasonCode>,
    pub reason: Option<String>,
    /// Digest of the review document the person was shown.
    pub review_digest: String,
    /// Withdrawn, or made void by a change of policy or of rights.
    pub void_at: Option<Timestamp>,
}

impl Vote {
    pub fn stands(&self) -> bool {
        self.void_at.is_none()
    }
}

/// Who carries an operation out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum Claimant {
    Run(RunId),
    Executor(ExecutorId),
    /// Counterfoil itself, for what it holds.
    Managed,
    /// Counterfoil itself, for what it sends to a registered destination.
    Gateway,
}

impl Claimant {
    pub fn actor(&self) -> Actor {
        match self {
            Self::Run(id) => Actor::run(id),
            Self::Executor(id) => Actor::executor(id),
            Self::Managed => Actor::built_in("managed"),
            Self::Gateway => Actor::built_in("gateway"),
        }
    }
}

/// One executor's exclusive right until a deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub id: ClaimId,
    /// Rises with each claim of the operation.
    pub fence: i64,
    pub by: Claimant,
    pub claimed_at: Timestamp,
    pub deadline_at: Timestamp,
    pub sent_at: Option<Timestamp>,
    pub accepted_at: Option<Timestamp>,
    pub provider_reference: Option<String>,
    /// What the claimant presented last, and found in order.
    #[serde(default)]
    pub lease: Option<LeaseRef>,
}

/// How one claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    Succeeded,
    Failed,
    Conflicted,
    Unknown,
    /// The claim ran out, provably before anything was sent.
    Unsent,
}

/// One claim's history, kept after the claim is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub claim_id: ClaimId,
    pub claim_fence: i64,
    pub by: Claimant,
    pub claimed_at: Timestamp,
    pub deadline_at: Timestamp,
    pub sent_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub result: Option<AttemptResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    Succeeded,
    Failed,
    Conflicted,
    Unknown,
}

/// Whose word the outcome is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeSource {
    Run,
    Executor,
    Callback,
    Lookup,
    Operator,
    System,
}

/// The provider's reply as the executor reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderResponse {
    pub status: i64,
    /// Salted SHA-256 of the body; the body itself can be erased.
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// What came of it, and on whose word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: OutcomeStatus,
    pub source: OutcomeSource,
    /// A run's own report is only *reported* until a look-up, a callback or an operator confirms it.
    pub confirmed: bool,
    pub provider_reference: Option<String>,
    pub provider_status: Option<String>,
    pub response: Option<ProviderResponse>,
    pub resulting_version: Option<i64>,
    pub at: Timestamp,
}

/// An unknown outcome with an owner and a due time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewCase {
    pub id: CaseId,
    pub owner: Option<String>,
    pub due_at: Timestamp,
    pub opened_at: Timestamp,
    pub reason: String,
    /// Since when it has been overdue, whoever owns it now.
    #[serde(default)]
    pub overdue_since: Option<Timestamp>,
    /// How often it was passed on for being overdue.
    #[serde(default)]
    pub escalated: usize,
    /// Money takes two people: the first one's finding, waiting for the second.
    pub seconded: Option<Seconded>,
    /// Another attempt takes two people: the first one's word, waiting for the second.
    #[serde(default)]
    pub retry_asked: Option<RetryAsked>,
    pub resolution: Option<Resolution>,
}

impl ReviewCase {
    /// Its due time has passed, for this owner or an earlier one.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.resolution.is_none() && (self.overdue_since.is_some() || now >= self.due_at)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seconded {
    pub by: PersonId,
    pub name: String,
    pub finding: ResolutionFinding,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionFinding {
    Applied,
    NotApplied,
    Abandon,
}

impl ResolutionFinding {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not_applied",
            Self::Abandon => "abandon",
        }
    }
}

/// One person's word for another attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryAsked {
    pub by: PersonId,
    /// The name the person had then.
    pub name: String,
    /// Looks after unknown outcomes.
    pub operator: bool,
    /// May approve this operation.
    pub approver: bool,
    pub note: String,
    pub at: Timestamp,
}

/// An operator and an approver, two people, for one more attempt with the same fingerprint and downstream key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryAuthorization {
    pub asked: RetryAsked,
    pub seconded: RetryAsked,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resolution {
    pub finding: ResolutionFinding,
    pub by: PersonId,
    pub name: String,
    pub evidence: Vec<EvidenceId>,
    pub note: String,
    /// The effect was made more than once.
    #[serde(default)]
    pub duplicate_effect: bool,
    /// What it cost to find out and put right.
    #[serde(default)]
    pub cost: Option<Cost>,
    pub at: Timestamp,
}

/// An amount of money in minor units (ISO 4217).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    pub minor: i64,
    #[schema(value_type = String)]
    pub currency: String,
}

/// Whether another operation has made good for this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompensationStatus {
    #[default]
    None,
    Proposed,
    Compensated,
    Failed,
}

impl CompensationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Proposed => "proposed",
            Self::Compensated => "compensated",
            Self::Failed => "failed",
        }
    }

    /// What `op` means for the operation that it makes good for.
    pub fn by(op: &Operation) -> Self {
        match op.life.state {
            _ if op.is_applied() => Self::Compensated,
            _ if op.safe_new_key() => Self::Failed,
            _ => Self::Proposed,
        }
    }
}

/// The operation that last set out to make good for another, and how far it has got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationNote {
    pub by: OperationId,
    pub status: CompensationStatus,
}

/// Why one operation may run while the outcome of another, or a deployment under way, holds its target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HoldOverride {
    #[schema(value_type = String)]
    pub by: PersonId,
    /// The name the person had then.
    pub by_name: String,
    pub reason: String,
    pub at: Timestamp,
}

/// Who ended it and in which words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    pub by: Actor,
    /// A person's name where a person ended it.
    pub name: Option<String>,
    pub reason: Option<String>,
    pub at: Timestamp,
}

impl Approval {
    /// What `rule` asks of something proposed at `now`.
    pub fn new(id: ApprovalId, rule: Effective, now: Timestamp) -> Self {
        let expires_at = now.plus_seconds(rule.approval_ttl.as_seconds());
        Self {
            id,
            rule: rule.rule,
            policy_version: rule.policy_version,
            required: rule.approvals,
            groups: rule.groups,
            one_reject: rule.one_reject,
            step_up: rule.step_up,
            expires_at,
            execution_ttl_s: rule.execution_ttl.as_seconds(),
            retry_ttl_s: rule.retry_ttl.as_seconds(),
            review_owner: rule.review_owner,
            review_due_s: rule.review_due.as_seconds(),
            escalation: rule.escalation,
            auto: rule.auto,
            run_approval: None,
            granted_at: None,
            retry_until: None,
            spent_at: None,
            spent_by: None,
            withdrawn_at: None,
            receipt: None,
        }
    }

    /// Asks what `rule` asks now. The time to decide does not start again.
    fn ask_anew(&mut self, rule: &Effective) {
        let (expires_at, withdrawn_at) = (self.expires_at, self.withdrawn_at);
        *self = Self { expires_at, withdrawn_at, ..Self::new(self.id.clone(), rule.clone(), expires_at) };
    }
}

impl Life {
    /// The life of what was just proposed.
    pub fn new(approval: Approval, now: Timestamp) -> Self {
        Self {
            state: State::Pending,
            version: 1,
            updated_at: now,
            approval,
            votes: Vec::new(),
            execution_deadline: None,
            claim: None,
            attempts: Vec::new(),
            outcome: None,
            conflict: None,
            conflict_resolution: None,
            replanned_by: None,
            compensation: None,
            review_case: None,
            retry_authorization: None,
            may_have_applied: false,
            disputed: false,
            hold_override: None,
            ending: None,
        }
    }
}

impl Operation {
    pub fn id(&self) -> &OperationId {
        &self.proposal.id
    }

    pub fn state(&self) -> State {
        self.life.state
    }

    /// The decisions that still stand, in the order they were made.
    pub fn standing_votes(&self) -> impl Iterator<Item = &Vote> {
        self.life.votes.iter().filter(|vote| vote.stands())
    }

    /// The approvals among them.
    pub fn standing_approvals(&self) -> impl Iterator<Item = &Vote> {
        self.standing_votes().filter(|vote| vote.decision == Decision::Approve)
    }

    /// Distinct humans who approve; one standing vote each is a rule, so counting votes counts humans.
    pub fn granted(&self) -> i64 {
        self.standing_approvals().count() as i64
    }

    /// Whether provably no byte has left, under this claim or an earlier one.
    pub fn nothing_sent(&self) -> bool {
        matches!(self.life.state, State::Pending | State::Approved | State::Claimed) && !self.life.may_have_applied
    }

    /// Whether the same action may be proposed under a new key without risk of a second effect.
    pub fn safe_new_key(&self) -> bool {
        use State::*;
        matches!(self.life.state, Failed | Conflicted | Rejected | Expired | Cancelled | Superseded)
            && !self.life.disputed
            && !self.found_applied()
    }

    /// Whether its effect may exist: what business keys, sums, duplicates and holds must assume.
    pub fn possibly_applied(&self) -> bool {
        self.life.disputed
            || self.found_applied()
            || matches!(self.life.state, State::Succeeded | State::Abandoned)
            || (!self.life.state.is_terminal() && self.life.may_have_applied)
    }

    /// Whether its effect is there, as far as anybody knows, and nothing speaks against it.
    pub fn is_applied(&self) -> bool {
        let finding = self.life.review_case.as_ref().and_then(|case| case.resolution.as_ref()).map(|r| r.finding);
        !self.life.disputed
            && match finding {
                Some(finding) => finding == ResolutionFinding::Applied,
                None => self.life.state == State::Succeeded,
            }
    }

    /// An operator found the effect, be it after the operation had ended otherwise: an ending never changes.
    fn found_applied(&self) -> bool {
        let resolution = self.life.review_case.as_ref().and_then(|case| case.resolution.as_ref());
        resolution.is_some_and(|resolution| resolution.finding == ResolutionFinding::Applied)
    }
}
