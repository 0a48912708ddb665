//! Who may decide, and what they were shown.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{
    diff::FieldDiff,
    fingerprint::Fingerprint,
    id::{OperationId, PersonId},
    json::canonical,
    kind::Risk,
    operation::{Decision, HoldOverride, Operation},
    policy::Effective,
    problem::{Code, Problem},
    run_approval::GrantedUnder,
};

/// What a person may do; each person has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Viewer,
    Approver,
    /// On-call.
    Operator,
    Admin,
    Auditor,
}

impl Role {
    pub const ALL: [Role; 5] = [Role::Viewer, Role::Approver, Role::Operator, Role::Admin, Role::Auditor];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Approver => "approver",
            Role::Operator => "operator",
            Role::Admin => "admin",
            Role::Auditor => "auditor",
        }
    }

    /// Viewers and auditors never vote.
    pub fn votes(self) -> bool {
        matches!(self, Role::Approver | Role::Operator | Role::Admin)
    }
}

impl std::str::FromStr for Role {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            Problem::new(Code::ValidationFailed, "a role is one of viewer, approver, operator, admin, auditor")
        })
    }
}

/// A person as far as votes are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    pub id: PersonId,
    pub role: Role,
    pub groups: Vec<String>,
}

impl Voter {
    /// Right role, and in one of the rule's groups.
    pub fn is_eligible(&self, groups: &[String]) -> bool {
        self.role.votes() && groups.iter().any(|group| self.groups.contains(group))
    }
}

/// Whether `voter` may make this decision at all. `owner_now` is who owns the agent today: *self* is the owner then or
/// now, is excluded from granting, and may reject.
///
/// # Errors
/// `self_approval`, `not_eligible`.
pub fn may_vote(op: &Operation, voter: &Voter, decision: Decision, owner_now: &PersonId) -> Result<(), Problem> {
    let is_self = voter.id == op.proposal.owner || voter.id == *owner_now;
    match (is_self, decision) {
        (true, Decision::Approve) => Err(Problem::new(
            Code::SelfApproval,
            "You own this agent: you may reject its work, not approve it. Nothing was decided",
        )),
        (true, Decision::Reject) => Ok(()),
        (false, _) if voter.is_eligible(&op.life.approval.groups) => Ok(()),
        (false, _) => Err(Problem::new(
            Code::NotEligible,
            format!(
                "The rule `{}` asks an approver, operator or admin in group {}. Nothing was decided",
                op.life.approval.rule,
                op.life.approval.groups.iter().map(|group| format!("`{group}`")).collect::<Vec<_>>().join(" or "),
            ),
        )
        .with("groups", &op.life.approval.groups)),
    }
}

/// What the rule in force finds missing in the approval of `op`, which `ahead` gave as well, ahead of time: the approvers who could not give it now, having lost
/// role or group or become the agent's owner, and the rule itself where the other approvals do not satisfy it.
pub fn shortfall(
    op: &Operation,
    in_force: Effective,
    voters: &[Voter],
    owner_now: &PersonId,
    ahead: Option<&PersonId>,
) -> (Vec<PersonId>, Option<Effective>) {
    let is_self = |id: &PersonId| *id == op.proposal.owner || id == owner_now;
    let able = |id: &PersonId| {
        let voter = voters.iter().find(|voter| voter.id == *id)?;
        (voter.is_eligible(&in_force.groups) && !is_self(id)).then_some((&voter.id, voter.groups.as_slice()))
    };
    let approvers = || op.standing_approvals().map(|vote| &vote.by);
    let lost = approvers().filter(|id| able(id).is_none()).cloned().collect();
    let is_satisfied = in_force.satisfied(approvers().chain(ahead).filter_map(able));
    (lost, (!is_satisfied).then_some(in_force))
}

/// Everything the approver was shown, as data; the votes are not part of it. Its digest is in every vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Review {
    #[schema(value_type = String)]
    pub operation: OperationId,
    /// The command under the fingerprint.
    #[schema(value_type = Object)]
    pub content: Value,
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    pub consequence: String,
    pub rollback: String,
    #[schema(value_type = String)]
    pub risk: Risk,
    pub rule: String,
    pub policy_version: i64,
    pub required: i64,
    pub groups: Vec<String>,
    /// The target's version as known now.
    pub current_version: Option<i64>,
    /// What is on the target now, where it is held or reported here and the write was planned on it.
    #[schema(value_type = Option<Object>)]
    pub current: Option<Value>,
    /// Operations with the same command that are open or may have been applied, oldest first.
    pub duplicates: Vec<Duplicate>,
    /// Conflicts recorded for this operation.
    pub conflicts: Vec<String>,
    /// The plan that this one takes the place of, and in what it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replans: Option<OldPlan>,
    /// What a person approved of the run ahead of time, where that granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_approval: Option<GrantedUnder>,
    /// An operator lets it pass whatever holds its target.
    #[serde(rename = "override", default, skip_serializing_if = "Option::is_none")]
    pub hold_override: Option<HoldOverride>,
    /// What the provider promises about a lost answer, in a sentence.
    pub guarantee: String,
}

/// The plan that people saw before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OldPlan {
    #[schema(value_type = String)]
    pub operation: OperationId,
    /// From that plan to this one; pointers into the command.
    pub changes: Vec<FieldDiff>,
}

/// Another operation a reviewer should know of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Duplicate {
    #[schema(value_type = String)]
    pub operation: OperationId,
    pub state: super::operation::State,
}

impl Review {
    /// SHA-256 over the canonical form (RFC 8785), `sha256:` + lower-case hex.
    pub fn digest(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        let hash = Sha256::digest(canonical(&value).as_bytes());
        hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
    }
}
