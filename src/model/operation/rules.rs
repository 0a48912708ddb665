//! Every transition of the life cycle, as a pure function: operation + command + facts + now → the next life with its
//! audit events, or a refusal. The numbers are the rows of the contract's transition table.
//!
//! Whoever runs a command first records what [`lapse`] says: deadlines are decided where they matter, by whoever looks
//! first. Should a caller forget, the command refuses; it never acts on what has lapsed.

mod unknown;

pub use unknown::*;

use serde_json::json;

use super::*;
use crate::model::{
    audit::{Entry, Event},
    conflict::{Action, ConflictResolution},
    policy::Effective,
    problem::{Code, Problem, RetryMode},
};

/// Past this, heartbeats no longer extend a claim. Milliseconds.
const CLAIM_CAP_MS: i64 = 15 * 60 * 1000;

/// The next life, and the events that record how it came about. Stored together or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub life: Life,
    pub events: Vec<Entry>,
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Store this.
    Step(Step),
    /// The same was done before: nothing to store, the answer is the same.
    Already,
    /// Store the step, and refuse all the same: the refusal is about the state the step records.
    Refused(Step, Problem),
}

type Result<T = Step> = std::result::Result<T, Problem>;

impl Step {
    fn of(op: &Operation, now: Timestamp) -> Self {
        let mut life = op.life.clone();
        life.version += 1;
        life.updated_at = now;
        Self { life, events: Vec::new() }
    }

    fn to(mut self, op: &Operation, state: State, event: Event, actor: Actor) -> Self {
        let from = self.life.state;
        self.life.state = state;
        self.events.push(Entry { from: Some(from), to: Some(state), ..entry(op, event, actor) });
        self
    }

    /// An event that moves nothing.
    fn note(mut self, entry: Entry) -> Self {
        self.events.push(entry);
        self
    }

    fn end(mut self, actor: Actor, name: Option<String>, reason: Option<String>, now: Timestamp) -> Self {
        self.life.ending = Some(Ending { by: actor, name, reason: reason.clone(), at: now });
        if let Some(last) = self.events.last_mut() {
            last.reason = reason;
        }
        self
    }

    /// The last event happened under `claim`.
    fn under(self, claim: Option<&Claim>) -> Self {
        self.last(|event| {
            event.claim = claim.map(|claim| claim.id.clone());
            event.fence = claim.map(|claim| claim.fence);
        })
    }

    /// This step and the next one as one, which is one visible change.
    fn followed_by(self, op: &Operation, next: impl FnOnce(&Operation) -> Result<Done>) -> Result {
        let Step { life, mut events } = self;
        let version = life.version;
        let here = Operation { proposal: op.proposal.clone(), life };
        match next(&here)? {
            Done::Step(step) => {
                events.extend(step.events);
                Ok(Step { life: Life { version, ..step.life }, events })
            }
            Done::Already => Ok(Step { life: here.life, events }),
            Done::Refused(_, problem) => Err(problem),
        }
    }

    /// The last event happened under `lease`.
    fn held(self, lease: Option<&LeaseRef>) -> Self {
        self.last(|event| event.reason = lease.map(ToString::to_string))
    }

    fn last(mut self, change: impl FnOnce(&mut Entry)) -> Self {
        if let Some(last) = self.events.last_mut() {
            change(last);
        }
        self
    }
}

/// The members every event of one operation carries.
pub fn entry(op: &Operation, event: Event, actor: Actor) -> Entry {
    let p = &op.proposal;
    Entry {
        operation: Some(p.id.clone()),
        run: Some(p.run.clone()),
        resource: Some(p.target.clone()),
        fingerprint: Some(p.fingerprint.clone()),
        approval: Some(op.life.approval.id.clone()),
        policy: Some(format!("{}@{}", op.life.approval.rule, op.life.approval.policy_version)),
        ..Entry::new(event, actor)
    }
}

fn claim_entry(op: &Operation, claim: &Claim, event: Event, actor: Actor) -> Entry {
    Entry { claim: Some(claim.id.clone()), fence: Some(claim.fence), ..entry(op, event, actor) }
}

// Lapses: rows 6, 17 and 24 by the clock

/// What the clock has decided by `now` and nobody has recorded yet: rows 6, 17 and 24. `None` when nothing lapsed.
pub fn lapse(op: &Operation, now: Timestamp) -> Option<Step> {
    next_lapse(op).filter(|at| now >= *at)?;
    Some(match op.life.state {
        _ if open_case(op).is_some() => escalate(op, now)?,
        State::Sent => lose_track(op, "the claim's deadline passed after it was sent", now),
        State::Accepted => lose_track(op, "the provider's in-flight bound passed", now),
        State::Claimed if op.life.may_have_applied => give_back(op, "nothing was sent again in time", now),
        _ => expire(op, now),
    })
}

/// When the clock will decide something about it next.
pub fn next_lapse(op: &Operation) -> Option<Timestamp> {
    let claim = op.life.claim.as_ref();
    match op.life.state {
        State::Pending => Some(op.life.approval.expires_at),
        State::Approved | State::Claimed if op.nothing_sent() => op.life.execution_deadline,
        State::Sent => claim.map(|claim| claim.deadline_at),
        State::Claimed => claim.map(|claim| claim.deadline_at),
        // What is under way is bounded from the end of the last claim.
        State::Accepted => claim.map(|claim| claim.deadline_at.plus_seconds(op.proposal.in_flight_s)),
        _ => open_case(op).map(|case| case.due_at),
    }
}

/// The state after [`lapse`]: what a list shows at `now`.
pub fn state_at(op: &Operation, now: Timestamp) -> State {
    lapse(op, now).map_or(op.life.state, |step| step.life.state)
}

/// Refuses what has expired, and what has lapsed otherwise without being recorded.
fn in_time(op: &Operation, now: Timestamp) -> Result<()> {
    match state_at(op, now) {
        State::Expired => Err(expired(op)),
        state if state != op.life.state => Err(outcome_unknown(op.id())),
        _ => Ok(()),
    }
}

fn expire(op: &Operation, now: Timestamp) -> Step {
    let reason = match op.life.state {
        State::Pending => "nobody decided in time",
        _ => "it was not run in time",
    };
    let mut step = Step::of(op, now).to(op, State::Expired, Event::OperationExpired, Actor::system("clock")).end(
        Actor::system("clock"),
        None,
        Some(reason.to_owned()),
        now,
    );
    end_claim(&mut step.life, AttemptResult::Unsent, now);
    step
}

/// Row 17 by the clock: a timeout is unknown, not failed.
fn lose_track(op: &Operation, reason: &str, now: Timestamp) -> Step {
    let step = Step::of(op, now).to(op, State::Unknown, Event::EffectOutcomeUnknown, Actor::system("clock"));
    let mut step = step.under(op.life.claim.as_ref()).last(|event| event.reason = Some(reason.to_owned()));
    let reference = op.life.claim.as_ref().and_then(|claim| claim.provider_reference.clone());
    step.life.outcome = Some(outcome(OutcomeStatus::Unknown, OutcomeSource::System, reference, now));
    end_claim(&mut step.life, AttemptResult::Unknown, now);
    step
}

/// A further attempt that sent nothing leaves the doubt about the earlier ones.
fn give_back(op: &Operation, reason: &str, now: Timestamp) -> Step {
    let mut step = lose_track(op, reason, now);
    if let Some(attempt) = step.life.attempts.last_mut() {
        attempt.result = Some(AttemptResult::Unsent);
    }
    step
}

fn outcome(status: OutcomeStatus, source: OutcomeSource, reference: Option<String>, at: Timestamp) -> Outcome {
    Outcome {
        status,
        source,
        confirmed: false,
        provider_reference: reference,
        provider_status: None,
        response: None,
        resulting_version: None,
        at,
    }
}

/// Closes the current claim's attempt. The claim itself stays readable until the next one.
fn end_claim(life: &mut Life, result: AttemptResult, now: Timestamp) {
    if let (Some(claim), Some(attempt)) = (&life.claim, life.attempts.last_mut())
        && attempt.claim_id == claim.id
        && attempt.result.is_none()
    {
        attempt.ended_at = Some(now);
        attempt.result = Some(result);
        attempt.deadline_at = claim.deadline_at;
        attempt.sent_at = claim.sent_at;
    }
}

/// The refusal that belongs to the state the operation is in.
fn invalid_state(op: &Operation) -> Problem {
    if op.life.state == State::Expired {
        return expired(op);
    }
    refuse_state(op, format!("The operation is {}", words(op.life.state)))
}

fn refuse_state(op: &Operation, detail: impl Into<String>) -> Problem {
    let problem = Problem::new(Code::InvalidState, detail).with("state", op.life.state);
    match &op.life.conflict {
        Some(conflict) => problem.with("conflict_id", conflict).retry(RetryMode::AfterFreshRead, None),
        None if op.safe_new_key() => problem.retry(RetryMode::NewOperation, None),
        None => problem,
    }
    .safe_new_key(op.safe_new_key())
}

/// The refusal of everything that comes too late.
pub fn expired(op: &Operation) -> Problem {
    let at = op.life.ending.as_ref().map(|ending| ending.at);
    let detail = match (op.life.approval.granted_at, at) {
        (None, Some(at)) => format!("Expired at {at}. Not approved, not rejected. Nothing was done"),
        (Some(_), Some(at)) => format!("Expired at {at}: it was approved and not run in time. Nothing was done"),
        (_, None) => "The deadline has passed. Nothing was done".to_owned(),
    };
    Problem::new(Code::ApprovalExpired, detail).with("state", State::Expired).safe_new_key(!op.life.disputed)
}

/// `needs_review` → "waiting for review": a state inside a sentence.
pub fn words(state: State) -> &'static str {
    match state {
        State::NeedsReview => "unknown and under review",
        other => other.as_str(),
    }
}

// Votes: rows 4, 5 and 8

/// What a voter sends.
#[derive(Debug, Clone, PartialEq)]
pub struct Ballot {
    pub by: PersonId,
    pub name: String,
    pub decision: Decision,
    pub fingerprint: String,
    pub review_digest: String,
    pub reason_code: Option<ReasonCode>,
    pub reason: Option<String>,
    pub confirm_target: Option<String>,
}

/// Rows 4a, 4b and 5. Right and eligibility are decided before ([`crate::model::approval`]). `review_digest` is that of
/// the review document as it is now; `eligible` names everybody who may approve this operation, having voted or not.
pub fn vote(
    op: &Operation,
    ballot: &Ballot,
    review_digest: &str,
    eligible: &[PersonId],
    now: Timestamp,
) -> Result<Done> {
    in_time(op, now)?;
    if let Some(own) = op.standing_votes().find(|vote| vote.by == ballot.by) {
        return if ballot.repeats(own, op) { Ok(Done::Already) } else { Err(already_decided(own)) };
    }
    if op.life.state != State::Pending {
        return Err(decided(op));
    }
    if ballot.fingerprint != op.proposal.fingerprint.as_str() {
        return Err(mismatch(op, &ballot.fingerprint));
    }
    if ballot.review_digest != review_digest {
        return Err(Problem::new(
            Code::StaleView,
            "What was shown is older than the operation. The vote was not counted; read it again, then decide",
        )
        .with("review_digest", review_digest));
    }
    match ballot.decision {
        Decision::Approve => approve(op, ballot, now),
        Decision::Reject => reject(op, ballot, eligible, now),
    }
    .map(Done::Step)
}

impl Ballot {
    fn repeats(&self, vote: &Vote, op: &Operation) -> bool {
        self.fingerprint == op.proposal.fingerprint.as_str()
            && (self.decision, self.reason_code) == (vote.decision, vote.reason_code)
            && (&self.review_digest, &self.reason) == (&vote.review_digest, &vote.reason)
    }
}

/// The refusal of a vote on what waits for none.
fn decided(op: &Operation) -> Problem {
    match (op.life.state, op.standing_votes().last()) {
        (State::Conflicted | State::Cancelled | State::Superseded, _) => invalid_state(op),
        // The vote that decides is the last one.
        (_, Some(vote)) => already_decided(vote),
        (_, None) => {
            let Approval { rule, policy_version, granted_at, run_approval, .. } = &op.life.approval;
            let (detail, by) = match run_approval {
                Some(under) => {
                    let detail =
                        format!("{} approved this ahead of time, in run approval `{}`", under.by_name, under.id);
                    (detail, under.by.to_string())
                }
                None => (format!("The rule `{rule}` approved this without a vote"), format!("{rule}@{policy_version}")),
            };
            Problem::new(Code::AlreadyDecided, detail)
                .with("decision", Decision::Approve)
                .with("by", by)
                .with("at", granted_at)
        }
    }
}

fn already_decided(vote: &Vote) -> Problem {
    let how = match vote.decision {
        Decision::Approve => "approved",
        Decision::Reject => "rejected",
    };
    Problem::new(Code::AlreadyDecided, format!("{} {how} this at {}", vote.name, vote.at))
        .with("decision", vote.decision)
        .with("by", &vote.by)
        .with("by_name", &vote.name)
        .with("at", vote.at)
}

fn mismatch(op: &Operation, given: &str) -> Problem {
    Problem::new(
        Code::ApprovalMismatch,
        format!("The operation has fingerprint `{}`, not `{given}`. Nothing was spent", op.proposal.fingerprint),
    )
    .with("fingerprint", &op.proposal.fingerprint)
}

fn recorded(ballot: &Ballot, now: Timestamp) -> Vote {
    Vote {
        by: ballot.by.clone(),
        name: ballot.name.clone(),
        decision: ballot.decision,
        at: now,
        reason_code: ballot.reason_code,
        reason: ballot.reason.clone(),
        review_digest: ballot.review_digest.clone(),
        void_at: None,
    }
}

fn approve(op: &Operation, ballot: &Ballot, now: Timestamp) -> Result {
    if op.proposal.risk.needs_care() && ballot.confirm_target.as_deref() != Some(op.proposal.target.as_str()) {
        return Err(Problem::at(
            Code::ValidationFailed,
            "/confirm_target",
            format!("type the target `{}` to approve a {} operation", op.proposal.target, op.proposal.risk.as_str()),
        ));
    }
    let actor = Actor::human(&ballot.by);
    let mut step = Step::of(op, now);
    step.life.votes.push(recorded(ballot, now));
    step.events.push(Entry {
        request_digest: Some(ballot.review_digest.clone()),
        status: Some("approve".into()),
        ..entry(op, Event::ApprovalVoted, actor.clone())
    });
    let granted = op.granted() + 1;
    if granted < op.life.approval.required {
        return Ok(step);
    }
    Ok(grant(op, step, Event::ApprovalGranted, actor, now))
}

fn grant(op: &Operation, mut step: Step, event: Event, actor: Actor, now: Timestamp) -> Step {
    let approval = &mut step.life.approval;
    approval.granted_at = Some(now);
    approval.withdrawn_at = None;
    approval.retry_until = Some(now.plus_seconds(approval.retry_ttl_s));
    step.life.execution_deadline = Some(now.plus_seconds(approval.execution_ttl_s));
    step.to(op, State::Approved, event, actor)
}

fn reject(op: &Operation, ballot: &Ballot, eligible: &[PersonId], now: Timestamp) -> Result {
    let Some(code) = ballot.reason_code else {
        return Err(Problem::at(Code::ValidationFailed, "/reason_code", "a rejection names its reason"));
    };
    let actor = Actor::human(&ballot.by);
    let mut step = Step::of(op, now);
    step.life.votes.push(recorded(ballot, now));
    let voted = |person: &PersonId| step.life.votes.iter().any(|vote| vote.stands() && vote.by == *person);
    let undecided = eligible.iter().filter(|person| !voted(person)).count();
    let reachable = op.granted() + undecided as i64 >= op.life.approval.required;
    if reachable && !op.life.approval.one_reject {
        step.events.push(Entry {
            request_digest: Some(ballot.review_digest.clone()),
            status: Some("reject".into()),
            ..entry(op, Event::ApprovalVoted, actor)
        });
        return Ok(step);
    }
    Ok(step
        .to(op, State::Rejected, Event::ApprovalRejected, actor.clone())
        .end(actor, Some(ballot.name.clone()), ballot.reason.clone(), now)
        .last(|event| {
            event.reason = Some(match &ballot.reason {
                Some(words) => format!("{}: {words}", code.as_str()),
                None => code.as_str().to_owned(),
            });
            event.request_digest = Some(ballot.review_digest.clone());
        }))
}

/// Row 2: the rule grants by itself, or a run approval does, in the step after the proposal and under its version. `None`
/// for what waits for a person whatever they say: high and critical risk, and the duplicate of an open operation.
pub fn auto_grant(op: &Operation, actor: Actor, now: Timestamp) -> Option<Step> {
    let proposal = &op.proposal;
    let under = op.life.approval.run_approval.as_ref();
    let is_granted = op.life.approval.auto || under.is_some();
    let waits = !is_granted || proposal.risk.needs_care() || proposal.duplicate_of.is_some();
    if waits || op.life.state != State::Pending {
        return None;
    }
    let step = grant(op, Step::of(op, now), Event::ApprovalAutoGranted, actor, now);
    let mut step =
        step.last(|event| event.reason = under.map(|under| format!("run approval {} of {}", under.id, under.by)));
    step.life.version = op.life.version;
    Some(step)
}

/// Row 3, in the step after the proposal and under its version: the key stays bound, a replay repeats `problem`.
pub fn refuse_proposal(op: &Operation, conflict: ConflictId, problem: &Problem, now: Timestamp) -> Step {
    let mut step = refuse_write(op, conflict, problem, now);
    step.life.version = op.life.version;
    step
}

/// Rows 3 and 10: the write was refused where the state lives, and changed nothing.
fn refuse_write(op: &Operation, conflict: ConflictId, problem: &Problem, now: Timestamp) -> Step {
    let actor = Actor::system("desk");
    let step = Step::of(op, now).to(op, State::Conflicted, Event::OperationConflicted, actor.clone());
    let mut step = step.end(actor, None, Some(problem.detail.clone()), now).last(|event| {
        event.status = Some(problem.code.as_str());
        event.reason = Some(problem.code.title().to_owned());
    });
    step.life.conflict = Some(conflict);
    step
}

/// Row 8, by a person: `whose` names the votes to withdraw. Before the quorum is complete it only voids them.
pub fn withdraw(op: &Operation, whose: &[PersonId], actor: Actor, now: Timestamp) -> Result {
    in_time(op, now)?;
    if op.life.approval.spent_at.is_some() {
        return Err(Problem::new(Code::ApprovalSpent, "The approval is spent; what was approved is under way")
            .with("state", op.life.state));
    }
    if op.life.state.is_terminal() {
        return Err(invalid_state(op));
    }
    // Once the quorum is complete, taking back a no changes nothing.
    let counts = |vote: &Vote| op.life.state == State::Pending || vote.decision == Decision::Approve;
    if !op.standing_votes().any(|vote| counts(vote) && whose.contains(&vote.by)) {
        return Err(refuse_state(op, "There is no standing vote to withdraw"));
    }
    Ok(void_votes(op, whose, actor, "withdrawn", now))
}

/// Row 8: the run approval it was granted under is revoked, and people decide. `None` for what nobody revokes any more.
pub fn withdraw_grant(op: &Operation, actor: Actor, now: Timestamp) -> Option<Step> {
    let is_open = op.life.state == State::Approved && op.life.approval.spent_at.is_none();
    (is_open && in_time(op, now).is_ok()).then(|| {
        let mut step = void_votes(op, &[], actor, "run approval revoked", now);
        step.life.approval.run_approval = None;
        step
    })
}

/// Past the approval deadline nobody can decide again, and row 6 follows at once.
fn void_votes(op: &Operation, whose: &[PersonId], actor: Actor, reason: &str, now: Timestamp) -> Step {
    let mut step = Step::of(op, now);
    for vote in step.life.votes.iter_mut().filter(|vote| vote.stands() && whose.contains(&vote.by)) {
        vote.void_at = Some(now);
    }
    if op.life.state == State::Pending {
        step.events.push(entry(op, Event::ApprovalWithdrawn, actor));
    } else {
        step.life.execution_deadline = None;
        step.life.approval.granted_at = None;
        step.life.approval.retry_until = None;
        step.life.approval.withdrawn_at = Some(now);
        step = step.to(op, State::Pending, Event::ApprovalWithdrawn, actor);
    }
    step = step.last(|event| event.reason = Some(reason.to_owned()));
    let voided = Operation { proposal: op.proposal.clone(), life: step.life.clone() };
    if let Some(lapsed) = lapse(&voided, now) {
        step.events.extend(lapsed.events);
        step.life = Life { version: step.life.version, ..lapsed.life };
    }
    step
}

// Claims: rows 10, 11, 12 and 20

/// What the service found out, in the transaction of the claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimFacts {
    pub claim: ClaimId,
    pub by: Claimant,
    /// Seconds.
    pub ttl_s: i64,
    /// What the claimant presents.
    pub lease: Option<LeaseRef>,
    /// Of an outcome that is unknown: why one more attempt cannot make a second effect, or what there is against it.
    pub licence: std::result::Result<String, String>,
    pub standing: Standing,
}

/// Whether the approval may still be acted on, as far as other records say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Standing approvals whose voter could not give them now: lost the role or the group that the rule in force asks,
    /// or became the agent's owner.
    pub ineligible: Vec<PersonId>,
    /// The rule in force, where the other approvals do not satisfy it.
    pub policy_gap: Option<Effective>,
    /// An operation on the same target whose outcome is unknown.
    pub hold: Option<OperationId>,
    /// The deployment that has the environment.
    pub lock: Option<OperationId>,
    /// The target's version as far as it is known here.
    pub current_version: Option<i64>,
    /// What is wrong with the lease that was presented, or with presenting none.
    pub lease: Option<Problem>,
    pub paused: bool,
}

/// Rows 11, 12 and 20, with the refusals in their order.
pub fn claim(op: &Operation, fingerprint: &str, facts: ClaimFacts, now: Timestamp) -> Result<Done> {
    let life = &op.life;
    in_time(op, now)?;
    if life.state.is_terminal() {
        return Err(invalid_state(op));
    }
    if life.state == State::Pending {
        return Err(match life.approval.withdrawn_at {
            Some(at) => Problem::new(Code::ApprovalWithdrawn, format!("The approval was withdrawn at {at}")),
            None => Problem::new(Code::NotApproved, "Nobody has approved this yet; wait for the decision"),
        }
        .retry(RetryMode::AwaitDecision, Some(2))
        .with("state", life.state));
    }
    if fingerprint != op.proposal.fingerprint.as_str() {
        return Err(mismatch(op, fingerprint));
    }
    if Fingerprint::of_canonical(&op.proposal.canonical) != op.proposal.fingerprint {
        return Err(Problem::new(
            Code::ApprovalMismatch,
            "The stored command is not the one that was approved. Nothing was spent; tell whoever runs this desk",
        )
        .retry(RetryMode::Operator, None));
    }
    match (&life.claim, life.state) {
        (_, State::NeedsReview) => return Err(outcome_unknown(op.id())),
        (_, State::Unknown) => {
            if let Err(against) = &facts.licence {
                return Err(outcome_unknown(op.id()).with("no_further_attempt", against));
            }
        }
        (Some(current), State::Sent | State::Accepted) => return own_claim(current, &facts.by),
        (Some(current), _) if now < current.deadline_at => return own_claim(current, &facts.by),
        _ => {}
    }
    if let Some(refusal) = standing(op, &facts.standing, now) {
        return refusal;
    }
    Ok(Done::Step(take(op, facts, now)))
}

/// A live claim is its claimant's, who may have lost the reply.
fn own_claim(claim: &Claim, by: &Claimant) -> Result<Done> {
    if claim.by == *by { Ok(Done::Already) } else { Err(already_claimed(claim)) }
}

fn already_claimed(claim: &Claim) -> Problem {
    Problem::new(Code::AlreadyClaimed, format!("It was claimed at {}", claim.claimed_at))
        .with("claim_id", &claim.id)
        .with("deadline_at", claim.deadline_at)
}

fn outcome_unknown(of: &OperationId) -> Problem {
    Problem::new(
        Code::OutcomeUnknown,
        format!("The outcome of `{of}` is not known. Nobody may write to its target until that is resolved"),
    )
    .with("blocking_operation", of)
}

/// The checks that a claim and a `sent` share, in the order of the contract.
fn standing(op: &Operation, facts: &Standing, now: Timestamp) -> Option<Result<Done>> {
    let approval = &op.life.approval;
    if approval.spent_at.is_some() && approval.retry_until.is_some_and(|until| now >= until) {
        return Some(Err(Problem::new(Code::ApprovalExpired, "The approval is no longer in force. Nothing was sent")
            .with("state", op.life.state)
            .safe_new_key(false)));
    }
    if !facts.ineligible.is_empty() || facts.policy_gap.is_some() {
        return Some(policy_changed(op, facts, now));
    }
    if let Some(hold) = &facts.hold {
        return Some(Err(outcome_unknown(hold)));
    }
    if let Some(holder) = &facts.lock {
        return Some(Err(Problem::new(
            Code::ReleaseLocked,
            format!("`{holder}` is deploying to `{}`; claim again when it has ended", op.proposal.target),
        )
        .with("error", Code::ReleaseLocked)
        .with("category", Code::ReleaseLocked)
        .with("resource", &op.proposal.target)
        .with("holder", holder)
        .retry(RetryMode::SameKey, Some(5))));
    }
    if let (Some(expected), Some(current)) = (op.proposal.expected_version, facts.current_version)
        && expected != current
    {
        let problem = stale_version(op.proposal.target.as_str(), expected, current);
        return Some(match stale(op, now) {
            Some(step) => Ok(Done::Refused(step, problem)),
            None => Err(problem),
        });
    }
    if let Some(problem) = &facts.lease {
        return Some(Err(problem.clone()));
    }
    facts.paused.then(|| Err(paused()))
}

/// 412 with the versions; the service adds the changed fields it knows.
pub fn stale_version(target: &str, expected: i64, current: i64) -> Problem {
    Problem::new(
        Code::StaleVersion,
        format!("`{target}` is at version {current}; the write was planned on version {expected}. Nothing was written"),
    )
    .with("error", "stale_version")
    .with("category", "stale_version")
    .with("resource", target)
    .with("expected_etag", format!("\"{expected}\""))
    .with("current_etag", format!("\"{current}\""))
    .with("expected_version", expected)
    .with("current_version", current)
    .safe_new_key(true)
}

/// Row 10: the target moved on before anything was sent; `None` where something was, or the operation has ended.
pub fn stale(op: &Operation, now: Timestamp) -> Option<Step> {
    op.nothing_sent().then(|| {
        let actor = Actor::system("desk");
        let step = Step::of(op, now).to(op, State::Conflicted, Event::OperationConflicted, actor.clone());
        let mut step = step
            .end(actor, None, Some("the target changed since it was read".to_owned()), now)
            .last(|event| event.status = Some(Code::StaleVersion.as_str()));
        end_claim(&mut step.life, AttemptResult::Unsent, now);
        step
    })
}

/// The approval does not satisfy the current policy. Unspent it goes back to the people (row 8); spent it cannot: the
/// claim stands, nothing can be sent under it, and the execution deadline ends it.
fn policy_changed(op: &Operation, facts: &Standing, now: Timestamp) -> Result<Done> {
    let rule = facts.policy_gap.as_ref().map_or(&op.life.approval.rule, |gap| &gap.rule);
    if op.life.approval.spent_at.is_some() {
        return Err(Problem::new(
            Code::PolicyChanged,
            "The current policy asks for more than was given. Nothing was sent; cancel it and propose it again",
        )
        .retry(RetryMode::NewOperation, None)
        .safe_new_key(false)
        .with("rule", rule));
    }
    let mut step = void_votes(op, &facts.ineligible, Actor::system("desk"), "policy_changed", now);
    if let Some(gap) = &facts.policy_gap {
        step.life.approval.ask_anew(gap);
    }
    let problem = if step.life.state == State::Expired {
        expired(&Operation { proposal: op.proposal.clone(), life: step.life.clone() })
    } else {
        Problem::new(Code::PolicyChanged, "The current policy asks for more than was given; it waits for people again")
            .retry(RetryMode::AwaitDecision, Some(2))
            .with("rule", rule)
    };
    Ok(Done::Refused(step, problem))
}

fn take(op: &Operation, facts: ClaimFacts, now: Timestamp) -> Step {
    let mut step = Step::of(op, now);
    let actor = facts.by.actor();
    let fence = op.life.attempts.last().map_or(0, |attempt| attempt.claim_fence) + 1;
    let claim = Claim {
        id: facts.claim,
        fence,
        by: facts.by,
        claimed_at: now,
        deadline_at: now.plus_seconds(facts.ttl_s),
        sent_at: None,
        accepted_at: None,
        provider_reference: None,
        lease: facts.lease,
    };
    if op.life.state == State::Unknown {
        let reason = facts.licence.ok();
        step.events.push(Entry { reason, ..claim_entry(op, &claim, Event::AttemptLicensed, actor.clone()) });
        step.life.retry_authorization = None;
    } else if let Some(previous) = &op.life.claim {
        end_claim(&mut step.life, AttemptResult::Unsent, now);
        step.events.push(claim_entry(op, previous, Event::ClaimAbandoned, Actor::system("desk")));
    } else {
        step.life.approval.spent_at = Some(now);
        step.life.approval.spent_by = Some(actor.clone());
        step.events.push(claim_entry(op, &claim, Event::ApprovalSpent, actor.clone()));
    }
    step.life.attempts.push(Attempt {
        claim_id: claim.id.clone(),
        claim_fence: fence,
        by: claim.by.clone(),
        claimed_at: now,
        deadline_at: claim.deadline_at,
        sent_at: None,
        ended_at: None,
        result: None,
    });
    step.life.claim = Some(claim.clone());
    step.to(op, State::Claimed, Event::OperationClaimed, actor).under(Some(&claim)).held(claim.lease.as_ref())
}

// The claimant's reports: rows 13 to 17

/// Names one claim; a lower fence than the current one has been superseded.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRef {
    pub id: ClaimId,
    pub fence: i64,
    pub by: Claimant,
}

/// The current claim if `claimed` names it, else the refusal.
fn current_claim<'a>(op: &'a Operation, claimed: &ClaimRef) -> Result<&'a Claim> {
    let names = |id: &ClaimId, fence: i64, by: &Claimant| (id, fence, by) == (&claimed.id, claimed.fence, &claimed.by);
    let was_theirs = |attempt: &Attempt| names(&attempt.claim_id, attempt.claim_fence, &attempt.by);
    match &op.life.claim {
        Some(claim) if names(&claim.id, claim.fence, &claim.by) => Ok(claim),
        Some(claim) if op.life.attempts.iter().any(was_theirs) => Err(Problem::new(
            Code::StaleFence,
            format!("Claim fence {} has been superseded by {}", claimed.fence, claim.fence),
        )
        .with("claim_fence", claim.fence)),
        _ if op.life.state.is_terminal() => Err(invalid_state(op)),
        Some(claim) => Err(Problem::new(Code::AlreadyClaimed, "No claim of yours has this id and fence")
            .with("deadline_at", claim.deadline_at)),
        None => Err(refuse_state(op, "Nobody has claimed this; claim it first")),
    }
}

fn claim_ended(op: &Operation, claim: &Claim) -> Problem {
    refuse_state(op, format!("The claim ended at {}; claim it again before sending", claim.deadline_at))
}

/// Row 13: committed before any byte leaves, under the lease that is presented.
pub fn sent(
    op: &Operation,
    claimed: &ClaimRef,
    fingerprint: &str,
    lease: Option<LeaseRef>,
    facts: &Standing,
    now: Timestamp,
) -> Result<Done> {
    in_time(op, now)?;
    let claim = current_claim(op, claimed)?;
    if fingerprint != op.proposal.fingerprint.as_str() {
        return Err(mismatch(op, fingerprint));
    }
    match op.life.state {
        State::Claimed => {}
        State::Sent | State::Accepted => return Ok(Done::Already),
        State::Unknown | State::NeedsReview => return Err(outcome_unknown(op.id())),
        _ => return Err(invalid_state(op)),
    }
    if now >= claim.deadline_at {
        return Err(claim_ended(op, claim));
    }
    if let Some(refusal) = standing(op, facts, now) {
        return refusal;
    }
    let event = if op.life.may_have_applied { Event::EffectResent } else { Event::EffectSent };
    let step = Step::of(op, now).to(op, State::Sent, event, claim.by.actor());
    let mut step = step.under(Some(claim)).held(lease.as_ref());
    step.life.may_have_applied = true;
    if let Some(claim) = &mut step.life.claim {
        claim.sent_at = Some(now);
        claim.lease = lease;
    }
    if let Some(attempt) = step.life.attempts.last_mut() {
        attempt.sent_at = Some(now);
    }
    Ok(Done::Step(step))
}

/// What a claimant's report came to.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one is made for each report, and taken apart at once")]
pub enum Reported {
    Done(Done),
    /// Too late to change the state: keep it as evidence and answer with the problem.
    Late(Problem),
}

/// The current claim, or what a report under another one is worth.
fn reporting_claim<'a>(op: &'a Operation, claimed: &ClaimRef) -> Result<std::result::Result<&'a Claim, Reported>> {
    match current_claim(op, claimed) {
        Ok(claim) => Ok(Ok(claim)),
        Err(problem) if problem.code == Code::StaleFence => Ok(Err(Reported::Late(problem))),
        Err(problem) => Err(problem),
    }
}

/// Row 14: the provider queued it.
pub fn accepted(op: &Operation, claimed: &ClaimRef, reference: &str, now: Timestamp) -> Result<Reported> {
    let claim = match reporting_claim(op, claimed)? {
        Ok(claim) => claim,
        Err(late) => return Ok(late),
    };
    if claim.accepted_at.is_some() && claim.provider_reference.as_deref() == Some(reference) {
        return Ok(Reported::Done(Done::Already));
    }
    match state_at(op, now) {
        State::Sent => {}
        State::Unknown | State::NeedsReview => return Ok(Reported::Late(outcome_unknown(op.id()))),
        State::Accepted => return Err(refuse_state(op, "It was accepted under another reference")),
        State::Claimed => return Err(refuse_state(op, "Only what was sent can be accepted; report `sent` first")),
        _ if op.life.may_have_applied => return Ok(Reported::Late(invalid_state(op))),
        State::Expired => return Err(expired(op)),
        _ => return Err(invalid_state(op)),
    }
    let step = Step::of(op, now).to(op, State::Accepted, Event::EffectAccepted, claim.by.actor());
    let mut step = step.under(Some(claim)).last(|event| event.provider_ref = Some(reference.to_owned()));
    if let Some(claim) = &mut step.life.claim {
        claim.accepted_at = Some(now);
        claim.provider_reference = Some(reference.to_owned());
    }
    Ok(Reported::Done(Done::Step(step)))
}

/// Extends a live claim to `now + ttl_s`, up to 15 minutes in all.
pub fn heartbeat(op: &Operation, claimed: &ClaimRef, ttl_s: i64, now: Timestamp) -> Result<Done> {
    in_time(op, now)?;
    let claim = current_claim(op, claimed)?;
    if !matches!(op.life.state, State::Claimed | State::Sent | State::Accepted) {
        return Err(invalid_state(op));
    }
    if now >= claim.deadline_at {
        return Err(claim_ended(op, claim));
    }
    let cap = Timestamp(claim.claimed_at.as_millis() + CLAIM_CAP_MS);
    let deadline = claim.deadline_at.max(now.plus_seconds(ttl_s).min(cap));
    if deadline == claim.deadline_at {
        return Ok(Done::Already);
    }
    let mut step = Step::of(op, now);
    if let Some(claim) = &mut step.life.claim {
        claim.deadline_at = deadline;
    }
    if let Some(attempt) = step.life.attempts.last_mut() {
        attempt.deadline_at = deadline;
    }
    Ok(Done::Step(step))
}

/// What the claimant says came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub status: OutcomeStatus,
    pub provider_reference: Option<String>,
    pub provider_status: Option<String>,
    pub response: Option<ProviderResponse>,
    pub resulting_version: Option<i64>,
}

/// Rows 15, 16, 17 under the current claim; anything later is evidence.
pub fn report(op: &Operation, claimed: &ClaimRef, report: &Report, now: Timestamp) -> Result<Reported> {
    let claim = match reporting_claim(op, claimed)? {
        Ok(claim) => claim,
        Err(late) => return Ok(late),
    };
    let reached = conclude(op, claim, report, now);
    match state_at(op, now) {
        // A provider's refusal counts while the claim lives; later it is somebody's word.
        State::Sent | State::Accepted if now >= claim.deadline_at && is_refusal(report.status) => {
            let detail = format!("The claim ended at {}: a failure counts only under a live claim", claim.deadline_at);
            return Ok(Reported::Late(refuse_state(op, detail)));
        }
        State::Sent | State::Accepted => {}
        State::Claimed => return Err(refuse_state(op, "Nothing was sent under this claim; report `sent` first")),
        _ if op.life.outcome.as_ref().is_some_and(|known| same_answer(known, &reached)) => {
            return Ok(Reported::Done(Done::Already));
        }
        State::Unknown | State::NeedsReview => return Ok(Reported::Late(outcome_unknown(op.id()))),
        _ if op.life.may_have_applied => return Ok(Reported::Late(invalid_state(op))),
        State::Expired => return Err(expired(op)),
        _ => return Err(invalid_state(op)),
    }
    let is_shown = reached.provider_reference.is_some() || reached.response.is_some() || claim.by == Claimant::Managed;
    if reached.status == OutcomeStatus::Succeeded && !is_shown {
        return Err(Problem::at(
            Code::ValidationFailed,
            "/provider_reference",
            "success is shown by a provider reference or a response; give one of them",
        ));
    }
    let (state, event, result) = match reached.status {
        OutcomeStatus::Succeeded => (State::Succeeded, Event::EffectCompleted, AttemptResult::Succeeded),
        OutcomeStatus::Failed => (State::Failed, Event::EffectFailed, AttemptResult::Failed),
        OutcomeStatus::Conflicted => (State::Conflicted, Event::OperationConflicted, AttemptResult::Conflicted),
        OutcomeStatus::Unknown => (State::Unknown, Event::EffectOutcomeUnknown, AttemptResult::Unknown),
    };
    let mut step = Step::of(op, now).to(op, state, event, claim.by.actor()).under(Some(claim)).last(|event| {
        event.provider_ref = reached.provider_reference.clone();
        event.status = reached.provider_status.clone();
        event.result_version = reached.resulting_version;
        event.response_digest = reached.response.as_ref().and_then(|response| response.digest.clone());
    });
    step.life.outcome = Some(reached);
    end_claim(&mut step.life, result, now);
    Ok(Reported::Done(Done::Step(step)))
}

fn is_refusal(status: OutcomeStatus) -> bool {
    matches!(status, OutcomeStatus::Failed | OutcomeStatus::Conflicted)
}

/// What the report establishes. A refusal now says nothing about an earlier attempt nobody has an answer to.
fn conclude(op: &Operation, claim: &Claim, report: &Report, now: Timestamp) -> Outcome {
    let ambiguous = |attempt: &Attempt| attempt.claim_id != claim.id && attempt.result == Some(AttemptResult::Unknown);
    let status = match report.status {
        status if is_refusal(status) && op.life.attempts.iter().any(ambiguous) => OutcomeStatus::Unknown,
        status => status,
    };
    let source = match claim.by {
        Claimant::Run(_) => OutcomeSource::Run,
        Claimant::Executor(_) | Claimant::Gateway => OutcomeSource::Executor,
        Claimant::Managed => OutcomeSource::System,
    };
    let reference = report.provider_reference.clone().or_else(|| claim.provider_reference.clone());
    Outcome {
        confirmed: source != OutcomeSource::Run && status != OutcomeStatus::Unknown,
        provider_status: report.provider_status.clone(),
        response: report.response.clone(),
        resulting_version: report.resulting_version,
        ..outcome(status, source, reference, now)
    }
}

/// Whether two reports say the same. Bodies are compared by digest: the stored one may be erased.
fn same_answer(known: &Outcome, reached: &Outcome) -> bool {
    let digest =
        |outcome: &Outcome| outcome.response.as_ref().map(|response| (response.status, response.digest.clone()));
    known.status == reached.status
        && known.provider_reference == reached.provider_reference
        && known.provider_status == reached.provider_status
        && known.resulting_version == reached.resulting_version
        && digest(known) == digest(reached)
}

// What Counterfoil carries out itself

/// Rows 11 and 13 in one step, for a claimant that sends at once what it claims.
pub fn claim_and_send(op: &Operation, facts: ClaimFacts, now: Timestamp) -> Result<Done> {
    let fingerprint = op.proposal.fingerprint.as_str();
    let ClaimFacts { lease, standing, .. } = facts.clone();
    let claimed = match claim(op, fingerprint, facts, now)? {
        Done::Step(step) => step,
        other => return Ok(other),
    };
    let sent = claimed.followed_by(op, |op| match &op.life.claim {
        Some(Claim { id, fence, by, .. }) => {
            let taken = ClaimRef { id: id.clone(), fence: *fence, by: by.clone() };
            sent(op, &taken, fingerprint, lease, &standing, now)
        }
        None => Err(invalid_state(op)),
    })?;
    Ok(Done::Step(sent))
}

// Managed operations: rows 11, 13 and 15 in the approving transaction

/// What stands against a managed write for the moment. While it does, the vote that completes the quorum is not
/// counted and nothing is granted by rule: an approved write that nobody carries out could only expire.
pub fn hindrance(facts: &Standing) -> Option<Problem> {
    match &facts.hold {
        Some(hold) => Some(outcome_unknown(hold)),
        None => facts.paused.then(paused),
    }
}

fn paused() -> Problem {
    Problem::new(Code::Paused, "The desk is paused. Nothing was claimed or sent")
}

/// What the service found out about a managed write, in the transaction that approved it.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedFacts {
    pub claim: ClaimId,
    /// Seconds; the claim begins and ends in this transaction.
    pub ttl_s: i64,
    pub standing: Standing,
    /// The version that the write makes, or why it is refused: stale, an invariant, a lost write set.
    pub write: Result<i64>,
    /// Names the conflict, if it comes to one.
    pub conflict: ConflictId,
}

/// Rows 11, 13 and 15 in one step, by the rules of a claim and its reports, or row 10.
pub fn carry_out(op: &Operation, facts: ManagedFacts, now: Timestamp) -> Result<Done> {
    in_time(op, now)?;
    if op.life.state != State::Approved {
        return Err(invalid_state(op));
    }
    let version = match facts.write {
        Ok(version) => version,
        Err(problem) => return Ok(Done::Refused(refuse_write(op, facts.conflict, &problem, now), problem)),
    };
    let taken = ClaimRef { id: facts.claim, fence: 1, by: Claimant::Managed };
    let claim_facts = ClaimFacts {
        claim: taken.id.clone(),
        by: taken.by.clone(),
        ttl_s: facts.ttl_s,
        lease: None,
        licence: Err("nothing was sent".to_owned()),
        standing: facts.standing,
    };
    let sent = match claim_and_send(op, claim_facts, now)? {
        Done::Step(step) => step,
        other => return Ok(other),
    };
    let done = Report {
        status: OutcomeStatus::Succeeded,
        provider_reference: None,
        provider_status: None,
        response: None,
        resulting_version: Some(version),
    };
    let completed = sent.followed_by(op, |op| match report(op, &taken, &done, now)? {
        Reported::Done(done) => Ok(done),
        Reported::Late(problem) => Err(problem),
    })?;
    Ok(Done::Step(completed))
}

// Endings by people and agents: rows 7 and 9

/// Row 7: nothing was sent.
pub fn cancel(op: &Operation, actor: Actor, name: Option<String>, reason: &str, now: Timestamp) -> Result<Done> {
    if op.life.state == State::Cancelled {
        return Ok(Done::Already);
    }
    in_time(op, now)?;
    if op.life.state.is_terminal() {
        return Err(invalid_state(op));
    }
    if !op.nothing_sent() {
        return Err(refuse_state(
            op,
            format!("The operation is {}; what may have happened cannot be cancelled", words(op.life.state)),
        )
        .retry(RetryMode::Operator, None));
    }
    Ok(Done::Step(end_unsent(op, State::Cancelled, Event::OperationCancelled, actor, name, reason, now)))
}

/// Lets an operation of which nothing was sent pass whatever holds its target, on an operator's word.
pub fn override_hold(op: &Operation, by: HoldOverride, now: Timestamp) -> Result<Done> {
    in_time(op, now)?;
    if op.life.state.is_terminal() {
        return Err(invalid_state(op));
    }
    if !op.nothing_sent() {
        return Err(refuse_state(op, format!("The operation is {}: nothing holds it back", words(op.life.state))));
    }
    if op.life.hold_override.is_some() {
        return Ok(Done::Already);
    }
    let mut step = Step::of(op, now)
        .note(Entry { reason: Some(by.reason.clone()), ..entry(op, Event::AdminHoldOverridden, Actor::human(&by.by)) });
    step.life.hold_override = Some(by);
    Ok(Done::Step(step))
}

/// Row 9: a new operation of the same agent names it in `supersedes`.
pub fn supersede(op: &Operation, by: &OperationId, actor: Actor, now: Timestamp) -> Result<Done> {
    in_time(op, now)?;
    if !matches!(op.life.state, State::Pending | State::Approved) {
        return Err(invalid_state(op));
    }
    let reason = format!("superseded by {by}");
    Ok(Done::Step(end_unsent(op, State::Superseded, Event::OperationSuperseded, actor, None, &reason, now)))
}

fn end_unsent(
    op: &Operation,
    state: State,
    event: Event,
    actor: Actor,
    name: Option<String>,
    reason: &str,
    now: Timestamp,
) -> Step {
    let mut step = Step::of(op, now).to(op, state, event, actor.clone()).end(actor, name, Some(reason.to_owned()), now);
    end_claim(&mut step.life, AttemptResult::Unsent, now);
    step
}

// What makes good for it

/// How far others have made good for it: what it says is shown on it, and moves nothing.
pub fn compensated(op: &Operation, compensation: CompensationNote, now: Timestamp) -> Step {
    let mut step = Step::of(op, now).note(Entry {
        status: Some(compensation.status.as_str().to_owned()),
        reason: Some(compensation.by.to_string()),
        ..entry(op, Event::OperationCompensation, Actor::system("desk"))
    });
    step.life.compensation = Some(compensation);
    step
}

// Conflicts: decided once, and planned anew

/// What somebody decided about the conflict in which the operation ended. The operation stays as it is; its agent is
/// told. The caller has checked who may decide what.
pub fn resolve_conflict(op: &Operation, resolution: ConflictResolution, now: Timestamp) -> Result<Done> {
    if op.life.conflict.is_none() {
        return Err(refuse_state(op, "There is no conflict to resolve"));
    }
    if let Some(made) = &op.life.conflict_resolution {
        return if made.repeats(&resolution) { Ok(Done::Already) } else { Err(resolved(made)) };
    }
    let mut step = Step::of(op, now).note(Entry {
        status: Some(resolution.action.as_str().to_owned()),
        reason: resolution.instruction.clone().or_else(|| resolution.note.clone()),
        ..entry(op, Event::ConflictResolved, resolution.by.clone())
    });
    step.life.conflict_resolution = Some(resolution);
    Ok(Done::Step(step))
}

fn resolved(made: &ConflictResolution) -> Problem {
    let words = match made.action {
        Action::Replan => "asked for a new plan",
        Action::AcceptCurrent => "accepted what is there now",
        Action::Dismiss => "dismissed this",
    };
    Problem::new(Code::AlreadyDecided, format!("{} {words} at {}", made.by_name, made.at))
        .with("action", made.action)
        .with("by", &made.by.id)
        .with("by_name", &made.by_name)
        .with("at", made.at)
}

/// Another operation of its agent takes its place, with its own approval. Only of what ended without an effect.
pub fn replan(op: &Operation, by: &OperationId, now: Timestamp) -> Result<Done> {
    if !op.life.state.is_terminal() {
        let detail =
            format!("`{}` is {}; supersede or cancel it instead of planning it anew", op.id(), words(op.life.state));
        return Err(refuse_state(op, detail));
    }
    if !op.safe_new_key() {
        let detail =
            format!("`{}` is {} and may have had an effect; it is not planned anew", op.id(), words(op.life.state));
        return Err(refuse_state(op, detail).retry(RetryMode::None, None));
    }
    if op.life.replanned_by.as_ref() == Some(by) {
        return Ok(Done::Already);
    }
    let mut step = Step::of(op, now);
    step.life.replanned_by = Some(by.clone());
    Ok(Done::Step(step))
}

/// The answer to a key that is bound to another command.
pub fn key_conflict(op: &Operation, differing: &[String]) -> Problem {
    Problem::new(
        Code::FingerprintConflict,
        format!("The key is bound to `{}`, which differs at {}", op.id(), differing.join(", ")),
    )
    .with("operation", json!({"id": op.id(), "state": op.life.state}))
    .with("differs", differing)
}
