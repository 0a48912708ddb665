//! Change sets: ordered writes, each proposed once the one before is done, with what undoes them named beforehand.
//!
//! Every write is an ordinary operation with its own policy and approval. The set only knows which one is next.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    fingerprint::Fingerprint,
    id::{AgentId, ChangeSetId, OperationId, RunId},
    json,
    operation::{Operation, State},
    problem::{Code, Problem},
    target::Target,
    time::Timestamp,
};

/// Steps of one set.
pub const MAX_STEPS: usize = 50;

const SCHEMA: &str = "counterfoil/change-set/v1";

/// Where a set stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SetState {
    /// Its steps are done one after the other.
    Open,
    /// All of them are.
    Done,
    /// What was done is undone, the last step first.
    Compensating,
    Compensated,
    /// Something that was done cannot be undone as planned: a person decides.
    Stuck,
}

impl SetState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Compensating => "compensating",
            Self::Compensated => "compensated",
            Self::Stuck => "stuck",
        }
    }
}

/// One step as it is planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    pub kind: String,
    #[schema(value_type = Object)]
    pub params: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The version of the target the step is planned on; left out where an earlier step writes the same target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
    /// The agent's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Compensation>,
}

/// What undoes a step, on the version that the set itself has made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    pub kind: String,
    #[schema(value_type = Object)]
    pub params: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What the key of a set is bound to.
pub fn fingerprint(title: &str, steps: &[Planned]) -> Fingerprint {
    Fingerprint::of_canonical(&json::canonical(&json!({"schema": SCHEMA, "title": title, "steps": steps})))
}

/// A command's operations: one at a time, another one where the one before ended without an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// Of the operation, or of the one to be proposed.
    pub round: i64,
    pub operation: Option<OperationId>,
    /// The operation before it, in whose place it stands.
    pub replans: Option<OperationId>,
}

impl Tries {
    /// Nothing is proposed yet.
    pub fn first() -> Self {
        Self { round: 1, operation: None, replans: None }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub plan: Planned,
    pub write: Tries,
    pub undo: Tries,
}

/// Why the next operation could not be proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    #[schema(value_type = String)]
    pub code: Code,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeSet {
    pub id: ChangeSetId,
    pub agent: AgentId,
    /// The run in whose name the next operation is proposed.
    pub run: RunId,
    pub title: String,
    pub state: SetState,
    /// Counts every change of the set itself; its operations have their own.
    pub version: i64,
    pub steps: Vec<Step>,
    pub refused: Option<Refused>,
    /// Why it is undone.
    pub reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The write of a step, or what undoes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Write,
    Compensation,
}

/// One of a set's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// From 0.
    pub step: usize,
    pub part: Part,
}

/// How far an operation has got, as far as what follows it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    Applied,
    /// People decide.
    Decision,
    /// It is approved.
    Execution,
    /// It was sent.
    Outcome,
    /// Nobody knows what came of it, or statements about it contradict each other.
    Unknown,
    /// It ended without an effect.
    Missing,
}

impl Progress {
    /// Of an operation with its lapses decided.
    pub fn of(op: &Operation) -> Self {
        use State::*;
        match op.life.state {
            _ if op.is_applied() => Self::Applied,
            _ if op.safe_new_key() => Self::Missing,
            _ if op.life.disputed => Self::Unknown,
            Pending => Self::Decision,
            Approved | Claimed if op.nothing_sent() => Self::Execution,
            Sent | Accepted => Self::Outcome,
            _ => Self::Unknown,
        }
    }
}

/// What a set does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Propose(Place),
    Wait(Place, Progress),
    Done,
    Compensated,
    /// The step cannot be undone as planned.
    Stuck(Place, &'static str),
    /// It has ended, or a person decides.
    Nothing,
}

/// The operations of one set, with their lapses decided.
pub type Operations = HashMap<OperationId, Operation>;

impl ChangeSet {
    pub fn place(&self, place: Place) -> &Tries {
        let step = &self.steps[place.step];
        match place.part {
            Part::Write => &step.write,
            Part::Compensation => &step.undo,
        }
    }

    pub fn place_mut(&mut self, place: Place) -> &mut Tries {
        let step = &mut self.steps[place.step];
        match place.part {
            Part::Write => &mut step.write,
            Part::Compensation => &mut step.undo,
        }
    }

    /// The ids of all its operations.
    pub fn operations(&self) -> impl Iterator<Item = &OperationId> {
        self.steps.iter().flat_map(|step| [&step.write, &step.undo]).filter_map(|tries| tries.operation.as_ref())
    }

    /// Where one of its operations stands.
    pub fn place_of(&self, id: &OperationId) -> Option<Place> {
        let steps = 0..self.steps.len();
        let places = steps.flat_map(|step| [Part::Write, Part::Compensation].map(|part| Place { step, part }));
        places.into_iter().find(|place| self.place(*place).operation.as_ref() == Some(id))
    }

    /// The idempotency key under which the operation of a place is proposed: the same however often it is tried, so that
    /// it is proposed once.
    pub fn key(&self, place: Place) -> String {
        let part = match place.part {
            Part::Write => "write",
            Part::Compensation => "undo",
        };
        format!("{}:{}:{part}:{}", self.id, place.step + 1, self.place(place).round)
    }

    fn progress(&self, place: Place, ops: &Operations) -> Option<Progress> {
        let id = self.place(place).operation.as_ref()?;
        // What cannot be looked at is not proven.
        Some(ops.get(id).map_or(Progress::Unknown, Progress::of))
    }

    /// What is next, given where its operations stand.
    pub fn next(&self, ops: &Operations) -> Next {
        match self.state {
            SetState::Open => self.forward(ops),
            SetState::Compensating => self.backward(ops),
            SetState::Done | SetState::Compensated | SetState::Stuck => Next::Nothing,
        }
    }

    fn forward(&self, ops: &Operations) -> Next {
        for step in 0..self.steps.len() {
            let place = Place { step, part: Part::Write };
            match self.progress(place, ops) {
                Some(Progress::Applied) => {}
                Some(progress) => return Next::Wait(place, progress),
                None => return Next::Propose(place),
            }
        }
        Next::Done
    }

    fn backward(&self, ops: &Operations) -> Next {
        for step in (0..self.steps.len()).rev() {
            let (write, undo) = (Place { step, part: Part::Write }, Place { step, part: Part::Compensation });
            match self.progress(write, ops) {
                None | Some(Progress::Missing) => continue,
                Some(_) if self.is_left_in_doubt(write, ops) => {
                    return Next::Stuck(write, "nobody knows whether it was done");
                }
                Some(Progress::Applied) if !self.is_own(write, ops) => continue,
                Some(Progress::Applied) => {}
                Some(progress) => return Next::Wait(write, progress),
            }
            match self.progress(undo, ops) {
                Some(Progress::Applied) => {}
                Some(Progress::Missing) => return Next::Stuck(undo, "its compensation ended without an effect"),
                Some(_) if self.is_left_in_doubt(undo, ops) => {
                    return Next::Stuck(undo, "nobody knows whether it was undone");
                }
                Some(progress) => return Next::Wait(undo, progress),
                None if self.steps[step].plan.compensation.is_none() => {
                    return Next::Stuck(undo, "it names no compensation");
                }
                None => return Next::Propose(undo),
            }
        }
        Next::Compensated
    }

    /// Why a stuck set cannot be undone as planned.
    pub fn stuck_because(&self, ops: &Operations) -> Option<String> {
        match self.backward(ops) {
            Next::Stuck(place, why) if self.state == SetState::Stuck => Some(format!("step {}: {why}", place.step + 1)),
            _ => None,
        }
    }

    fn find<'o>(&self, place: Place, ops: &'o Operations) -> Option<&'o Operation> {
        self.place(place).operation.as_ref().and_then(|id| ops.get(id))
    }

    /// It has ended, and nobody looks into it any more.
    fn is_left_in_doubt(&self, place: Place, ops: &Operations) -> bool {
        let is_left = |op: &Operation| op.life.state.is_terminal() && !op.life.disputed;
        self.find(place, ops).is_some_and(|op| is_left(op) && Progress::of(op) == Progress::Unknown)
    }

    /// Whether the set itself proposed it: an event may have had its operation before.
    fn is_own(&self, place: Place, ops: &Operations) -> bool {
        let key = self.key(place);
        self.find(place, ops).is_some_and(|op| op.proposal.agent == self.agent && op.proposal.idempotency_key == key)
    }

    /// The next operation of a place is another one.
    fn again(&mut self, place: Place, ops: &Operations) {
        let own = self.place(place).operation.clone().filter(|_| self.is_own(place, ops));
        let tries = self.place_mut(place);
        *tries = Tries { round: tries.round + 1, operation: None, replans: own.or(tries.replans.take()) };
    }

    /// The version that the set's last write made of `target`, as far as it was reported.
    pub fn version_made(&self, target: &Target, ops: &Operations) -> Option<i64> {
        let made = self.operations().filter_map(|id| ops.get(id)).filter(|op| op.proposal.target == *target);
        made.filter_map(|op| op.life.outcome.as_ref()?.resulting_version).max()
    }

    /// Starts to undo what was done. What ended without an effect is tried once more.
    pub fn turn_back(&mut self, reason: String, ops: &Operations) {
        self.state = SetState::Compensating;
        self.reason = Some(reason);
        self.refused = None;
        for step in 0..self.steps.len() {
            let undo = Place { step, part: Part::Compensation };
            if self.progress(undo, ops) == Some(Progress::Missing) {
                self.again(undo, ops);
            }
        }
    }

    /// Makes ready for the next operation of a step that is missing, with another plan where one is given. `None` when
    /// there is nothing to do again: the step is under way, or nothing is left to do.
    ///
    /// # Errors
    /// `invalid_state` when the set waits for nobody, or when another step than the missing one would be planned anew.
    pub fn redo(&mut self, changed: Option<(usize, Planned)>, ops: &Operations) -> Result<Option<Place>, Problem> {
        let (place, is_missing) = match self.next(ops) {
            Next::Propose(place) => (Some(place), true),
            Next::Wait(place, progress) => (Some(place), progress == Progress::Missing && place.part == Part::Write),
            Next::Done | Next::Compensated | Next::Stuck(..) => (None, false),
            Next::Nothing => {
                let detail = format!("The change set is {}; nothing of it is done again", self.state.as_str());
                return Err(Problem::new(Code::InvalidState, detail).with("state", self.state));
            }
        };
        if let Some((step, plan)) = changed {
            let is_meant = is_missing && place == Some(Place { step, part: Part::Write });
            if !is_meant && plan != self.steps[step].plan {
                let detail = format!("Step {} is not missing; only a missing step is planned anew", step + 1);
                return Err(Problem::new(Code::InvalidState, detail).with("state", self.state));
            }
            self.steps[step].plan = plan;
        }
        let Some(place) = place.filter(|_| is_missing) else { return Ok(None) };
        // Under a key that the agent has used for something else, nothing is proposed any more.
        let is_taken = self.refused.take().is_some_and(|refused| refused.code == Code::FingerprintConflict);
        if is_taken || self.place(place).operation.is_some() {
            self.again(place, ops);
        }
        Ok(Some(place))
    }
}
