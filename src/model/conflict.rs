//! A refused write, kept: what it expected, what it met, field by field, and the way on.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    audit::Actor,
    diff::present,
    id::{ConflictId, OperationId},
    operation::Operation,
    problem::{Code, Problem, Retry},
    resource::{Author, FieldChange},
    time::Timestamp,
};

/// A refused write as it is stored: what the agent was told, so that a replay can tell it again, and what became of it.
/// Which fields changed is not stored: the versions of the resource say it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    pub id: ConflictId,
    pub operation: OperationId,
    pub resource: String,
    pub code: Code,
    pub detail: String,
    pub retry: Retry,
    pub safe_new_key: bool,
    pub members: Map<String, Value>,
    /// The proposal itself was refused: a replay of its key repeats the problem.
    pub at_proposal: bool,
    /// What the write met.
    #[serde(default)]
    pub met: Met,
    pub at: Timestamp,
    #[serde(default)]
    pub resolution: Option<Resolution>,
}

/// What a refused write met, as far as it is known here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Met {
    /// The version of the target that refused it.
    pub version: Option<i64>,
    /// Who made that version.
    #[serde(default)]
    pub author: Author,
    /// What the destination said, where it refused the write itself.
    #[serde(default)]
    pub reported: Option<Value>,
}

/// Where a conflict stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictState {
    Open,
    Resolved,
}

impl ConflictState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
        }
    }

    pub fn of(resolution: Option<&Resolution>) -> Self {
        if resolution.is_some() { Self::Resolved } else { Self::Open }
    }
}

/// What somebody decided about a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The agent plans it anew, on a fresh read: a new operation with its own approval.
    Replan,
    /// What is there now stays, and nothing follows.
    AcceptCurrent,
    /// Nothing follows, whatever is there.
    Dismiss,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Replan, Self::AcceptCurrent, Self::Dismiss];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replan => "replan",
            Self::AcceptCurrent => "accept_current",
            Self::Dismiss => "dismiss",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

/// The decision about a conflict, which is made once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resolution {
    pub action: Action,
    /// What the agent is told to do.
    pub instruction: Option<String>,
    /// Why; for people.
    pub note: Option<String>,
    pub by: Actor,
    /// A person's name, or the agent's.
    pub by_name: String,
    pub at: Timestamp,
    /// The version of the target that it was decided on.
    pub version: Option<i64>,
}

impl Resolution {
    /// Whether `other` is the same decision, sent again.
    pub fn repeats(&self, other: &Self) -> bool {
        (self.action, &self.instruction, &self.note, &self.by)
            == (other.action, &other.instruction, &other.note, &other.by)
    }
}

impl Conflict {
    pub fn of(id: ConflictId, op: &Operation, problem: &Problem, at_proposal: bool, at: Timestamp) -> Self {
        let problem = problem.clone();
        Self {
            id,
            operation: op.id().clone(),
            resource: op.proposal.target.to_string(),
            code: problem.code,
            detail: problem.detail,
            retry: problem.retry,
            safe_new_key: problem.safe_new_key,
            members: problem.members,
            at_proposal,
            met: Met::default(),
            at,
            resolution: None,
        }
    }

    pub fn state(&self) -> ConflictState {
        ConflictState::of(self.resolution.as_ref())
    }

    /// The refusal, with the conflict and the operation named in it.
    pub fn problem(&self) -> Problem {
        let problem = Problem {
            code: self.code,
            detail: self.detail.clone(),
            retry: self.retry.clone(),
            safe_new_key: self.safe_new_key,
            members: self.members.clone(),
        };
        problem
            .with("conflict_id", &self.id)
            .with("operation", serde_json::json!({"id": self.operation, "state": "conflicted"}))
            .with("instance", format!("/api/v1/conflicts/{}", self.id))
    }
}

/// Who finds the way on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    Agent,
    Human,
}

/// One field that changed since the write was planned, and who changed it last. Without the right to read the resource
/// a reader has no values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangedField {
    /// RFC 6901, with names in place of indices where an array has a key.
    pub pointer: String,
    /// What came of it in all; what its last change did, where it changed back.
    pub change: FieldChange,
    /// When the write was planned; absent where there was no such field.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub from: Option<Value>,
    /// Now.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub to: Option<Value>,
    /// The version that changed it last.
    pub version: i64,
    pub by: Author,
    pub at: Timestamp,
    /// The refused write sets it, or removes it.
    pub in_your_write: bool,
}

/// One field in the three-way view. A side without a value has no such field; without the right to read the resource
/// there are no values at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreeWayRow {
    pub pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub as_read: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub proposed: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub now: Option<Value>,
    /// Others changed it, and the write would have left something else there.
    pub overlap: bool,
}

/// What a refused write met, field by field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Facts {
    pub expected_version: Option<i64>,
    pub current_version: Option<i64>,
    /// By pointer.
    pub changed_fields: Vec<ChangedField>,
    /// False where not every version in between is known field by field.
    pub changed_fields_complete: bool,
    /// What is there now is what the write wants.
    pub already_satisfied: bool,
    pub resolver: ResolvedBy,
    /// Overlapping fields first, then by pointer.
    pub rows: Vec<ThreeWayRow>,
}
