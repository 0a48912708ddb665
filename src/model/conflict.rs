//! A refused write, kept with its facts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    id::{ConflictId, OperationId},
    operation::Operation,
    problem::{Code, Problem, Retry},
    time::Timestamp,
};

/// What an agent was told when its write was refused, so that a replay can tell it again.
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
    pub at: Timestamp,
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
            at,
        }
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
