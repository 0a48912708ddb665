//! Every transition of the life cycle, as a pure function: operation + command + facts + now → the next life with its
//! audit events, or a refusal. The numbers are the rows of the contract's transition table.
//!
//! Each command first calls [`lapse`]: deadlines are decided where they matter, by whoever looks first.

use serde_json::json;

use super::*;
use crate::model::{
    audit::{Entry, Event},
    kind::Risk,
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

// Lapses: rows 6 and 17 by the clock

/// What the clock has decided by `now` and nobody has recorded yet: rows 6 and 17. `None` when nothing lapsed.
pub fn lapse(op: &Operation, now: Timestamp) -> Option<Step> {
    let life = &op.life;
    match life.state {
        State::Pending if now >= life.approval.expires_at => Some(expire(op, now)),
        State::Approved | State::Claimed if life.execution_deadline.is_some_and(|deadline| now >= deadline) => {
            Some(expire(op, now))
        }
        State::Sent if life.claim.as_ref().is_some_and(|claim| now >= claim.deadline_at) => {
            Some(lose_track(op, Actor::system("clock"), "the claim's deadline passed after it was sent", now))
        }
        State::Accepted if life.claim.as_ref().is_some_and(|claim| now >= in_flight_until(op, claim)) => {
            Some(lose_track(op, Actor::system("clock"), "the provider's in-flight bound passed", now))
        }
        _ => None,
    }
}

fn in_flight_until(op: &Operation, claim: &Claim) -> Timestamp {
    claim.accepted_at.unwrap_or(claim.deadline_at).plus_seconds(op.proposal.in_flight_s)
}

/// Whether a list may still show the stored state at `now`: the state after [`lapse`].
pub fn state_at(op: &Operation, now: Timestamp) -> State {
    lapse(op, now).map_or(op.life.state, |step| step.life.state)
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

/// Row 17: a timeout is unknown, not failed.
fn lose_track(op: &Operation, actor: Actor, reason: &str, now: Timestamp) -> Step {
    let claim = op.life.claim.clone();
    let mut step = Step::of(op, now).to(op, State::Unknown, Event::EffectOutcomeUnknown, actor).last(|event| {
        event.reason = Some(reason.to_owned());
        event.claim = claim.as_ref().map(|c| c.id.clone());
        event.fence = claim.as_ref().map(|c| c.fence);
    });
    let reference = claim.and_then(|c| c.provider_reference);
    step.life.outcome = Some(outcome(OutcomeStatus::Unknown, OutcomeSource::System, reference, now));
    end_claim(&mut step.life, AttemptResult::Unknown, now);
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

/// The refusal that belongs to a state nothing more can be done in.
fn refuse_terminal(op: &Operation) -> Problem {
    if op.life.state == State::Expired {
        return expired(op);
    }
    let mut problem = Problem::new(Code::InvalidState, format!("The operation is {}", words(op.life.state)))
        .with("state", op.life.state)
        .safe_new_key(op.safe_new_key());
    if let Some(conflict) = &op.life.conflict {
        problem = problem.with("conflict_id", conflict).retry(RetryMode::AfterFreshRead, None);
    }
    problem
}

pub fn expired(op: &Operation) -> Problem {
    let at = op.life.ending.as_ref().map(|ending| ending.at);
    let detail = match (op.life.approval.granted_at, at) {
        (None, Some(at)) => format!("Expired at {at}. Not approved, not rejected. Nothing was done"),
        (Some(_), Some(at)) => format!("Expired at {at}: it was approved and not run in time. Nothing was done"),
        (_, None) => "The deadline has passed. Nothing was done".to_owned(),
    };
    Problem::new(Code::ApprovalExpired, detail).with("state", State::Expired).safe_new_key(true)
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

/// Rows 4a, 4b and 5. Right and eligibility are decided before ([`crate::model::approval`]); the caller has recorded
/// lapses. `review_digest` is the digest of the review document as it is now; `eligible` counts who could still vote.
pub fn vote(op: &Operation, ballot: &Ballot, review_digest: &str, eligible: i64, now: Timestamp) -> Result<Done> {
    if op.life.state == State::Expired {
        return Err(expired(op));
    }
    if let Some(own) = op.standing_votes().find(|vote| vote.by == ballot.by) {
        return if own.decision == ballot.decision && own.review_digest == ballot.review_digest {
            Ok(Done::Already)
        } else {
            Err(already_decided(own))
        };
    }
    if op.life.state != State::Pending {
        let decided = op.standing_votes().last().filter(|_| !matches!(op.life.state, State::Conflicted));
        return Err(match (op.life.state, decided) {
            (State::Cancelled | State::Superseded | State::Conflicted, _) | (_, None) => refuse_terminal(op),
            (_, Some(vote)) => already_decided(vote),
        });
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
    if op.proposal.risk >= Risk::High && ballot.confirm_target.as_deref() != Some(op.proposal.target.as_str()) {
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

fn reject(op: &Operation, ballot: &Ballot, eligible: i64, now: Timestamp) -> Result {
    let Some(code) = ballot.reason_code else {
        return Err(Problem::at(Code::ValidationFailed, "/reason_code", "a rejection names its reason"));
    };
    let actor = Actor::human(&ballot.by);
    let mut step = Step::of(op, now);
    step.life.votes.push(recorded(ballot, now));
    let rejects = op.standing_votes().filter(|vote| vote.decision == Decision::Reject).count() as i64 + 1;
    let still_reachable = eligible - rejects >= op.life.approval.required;
    if !op.life.approval.one_reject && still_reachable {
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

/// Row 2: the rule grants by itself.
pub fn auto_grant(op: &Operation, actor: Actor, now: Timestamp) -> Step {
    let mut step = grant(op, Step::of(op, now), Event::ApprovalAutoGranted, actor, now);
    step.life.version = op.life.version;
    step
}

/// Row 8, by a person: `whose` names the votes to withdraw. Before the quorum is complete it only voids them.
pub fn withdraw(op: &Operation, whose: &[PersonId], actor: Actor, now: Timestamp) -> Result {
    if op.life.state == State::Expired {
        return Err(expired(op));
    }
    if op.life.approval.spent_at.is_some() {
        return Err(Problem::new(Code::ApprovalSpent, "The approval is spent; what was approved is under way")
            .with("state", op.life.state));
    }
    if op.life.state.is_terminal() {
        return Err(refuse_terminal(op));
    }
    if !op.standing_votes().any(|vote| whose.contains(&vote.by)) {
        return Err(
            Problem::new(Code::InvalidState, "There is no standing vote to withdraw").with("state", op.life.state)
        );
    }
    Ok(void_votes(op, whose, actor, "withdrawn", now))
}

fn void_votes(op: &Operation, whose: &[PersonId], actor: Actor, reason: &str, now: Timestamp) -> Step {
    let mut step = Step::of(op, now);
    step = match op.life.state {
        State::Pending => step.note(entry(op, Event::ApprovalWithdrawn, actor)),
        _ => step.to(op, State::Pending, Event::ApprovalWithdrawn, actor),
    }
    .last(|event| event.reason = Some(reason.to_owned()));
    for vote in step.life.votes.iter_mut().filter(|vote| vote.stands() && whose.contains(&vote.by)) {
        vote.void_at = Some(now);
    }
    step.life.execution_deadline = None;
    step.life.approval.granted_at = None;
    step.life.approval.retry_until = None;
    step.life.approval.withdrawn_at = Some(now);
    if now >= step.life.approval.expires_at {
        let lapsed = Operation { proposal: op.proposal.clone(), life: step.life.clone() };
        let expiry = expire(&lapsed, now);
        step.events.extend(expiry.events);
        step.life = Life { version: step.life.version, ..expiry.life };
    }
    step
}

// Claims: rows 10, 11, 12

/// What the service found out, in the transaction of the claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimFacts {
    pub claim: ClaimId,
    pub by: Claimant,
    /// Seconds.
    pub ttl_s: i64,
    pub standing: Standing,
}

/// Whether the approval may still be acted on, as far as other records say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// Voters who lost role or group since, or became the agent's owner.
    pub ineligible: Vec<PersonId>,
    /// What the current policy asks that the approval does not have.
    pub policy_gap: Option<PolicyGap>,
    /// An operation on the same target whose outcome is unknown.
    pub hold: Option<OperationId>,
    /// The deployment that has the environment.
    pub lock: Option<OperationId>,
    /// The target's version as far as it is known here.
    pub current_version: Option<i64>,
    pub paused: bool,
}

/// What a claim must have now, by the current policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyGap {
    pub rule: String,
    pub policy_version: i64,
    pub required: i64,
    pub groups: Vec<String>,
}

/// Rows 11 and 12, with the refusals in their order. The caller has recorded lapses.
pub fn claim(op: &Operation, fingerprint: &str, facts: ClaimFacts, now: Timestamp) -> Result<Done> {
    let life = &op.life;
    if life.state.is_terminal() {
        return Err(refuse_terminal(op));
    }
    if life.state == State::Pending {
        return Err(match life.approval.withdrawn_at {
            Some(at) => Problem::new(Code::ApprovalWithdrawn, format!("The approval was withdrawn at {at}")),
            None => Problem::new(Code::NotApproved, "Nobody has approved this yet; wait for the decision"),
        }
        .retry(RetryMode::AwaitDecision, Some(2))
        .with("state", life.state));
    }
    if fingerprint != op.proposal.fingerprint.as_str()
        || Fingerprint::of_canonical(&op.proposal.canonical) != op.proposal.fingerprint
    {
        return Err(mismatch(op, fingerprint));
    }
    if let Some(current) = &life.claim {
        let live = matches!(life.state, State::Sent | State::Accepted)
            || (life.state == State::Claimed && now < current.deadline_at);
        if live {
            return if current.by == facts.by { Ok(Done::Already) } else { Err(already_claimed(current)) };
        }
    }
    if matches!(life.state, State::Unknown | State::NeedsReview) {
        return Err(outcome_unknown(op.id()));
    }
    if let Some(refusal) = standing(op, &facts.standing, now) {
        return refusal;
    }
    Ok(Done::Step(take(op, facts, now)))
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
        .with("holder", holder)
        .retry(RetryMode::SameKey, Some(5))));
    }
    if let (Some(expected), Some(current)) = (op.proposal.expected_version, facts.current_version)
        && expected != current
    {
        let step = stale(op, now);
        return Some(Ok(Done::Refused(step, stale_version(op.proposal.target.as_str(), expected, current))));
    }
    facts.paused.then(|| Err(Problem::new(Code::Paused, "The desk is paused. Nothing was claimed or sent")))
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

/// Row 10: the target moved on before anything was sent.
pub fn stale(op: &Operation, now: Timestamp) -> Step {
    let mut step = Step::of(op, now).to(op, State::Conflicted, Event::OperationConflicted, Actor::system("clock")).end(
        Actor::system("clock"),
        None,
        Some("the target changed since it was read".to_owned()),
        now,
    );
    end_claim(&mut step.life, AttemptResult::Unsent, now);
    step
}

/// Row 8, by the system: the approval no longer satisfies the current policy. Other votes stay.
fn policy_changed(op: &Operation, facts: &Standing, now: Timestamp) -> Result<Done> {
    if op.life.approval.spent_at.is_some() {
        // A spent approval cannot go back to pending; nothing was sent, so the claim simply ends there.
        return Err(policy_problem(op));
    }
    let mut step = void_votes(op, &facts.ineligible, Actor::system("desk"), "policy_changed", now);
    if let Some(gap) = &facts.policy_gap {
        let approval = &mut step.life.approval;
        approval.rule = gap.rule.clone();
        approval.policy_version = gap.policy_version;
        approval.required = gap.required;
        approval.groups = gap.groups.clone();
        approval.auto = false;
    }
    Ok(Done::Refused(step, policy_problem(op)))
}

fn policy_problem(op: &Operation) -> Problem {
    Problem::new(Code::PolicyChanged, "The current policy asks for more than was given; it waits for people again")
        .retry(RetryMode::AwaitDecision, Some(2))
        .with("rule", &op.life.approval.rule)
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
    };
    if let Some(previous) = &op.life.claim {
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
    let (id, fence) = (claim.id.clone(), claim.fence);
    step.life.claim = Some(claim);
    step.to(op, State::Claimed, Event::OperationClaimed, actor).last(|event| {
        event.claim = Some(id);
        event.fence = Some(fence);
    })
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
    let Some(claim) = &op.life.claim else {
        return Err(if op.life.state.is_terminal() {
            refuse_terminal(op)
        } else {
            Problem::new(Code::InvalidState, "Nobody has claimed this; claim it first").with("state", op.life.state)
        });
    };
    if claim.id == claimed.id && claim.fence == claimed.fence && claim.by == claimed.by {
        return Ok(claim);
    }
    let known = op.life.attempts.iter().any(|attempt| attempt.claim_id == claimed.id && attempt.by == claimed.by);
    Err(if known {
        Problem::new(Code::StaleFence, format!("Claim fence {} has been superseded by {}", claimed.fence, claim.fence))
            .with("claim_fence", claim.fence)
    } else {
        Problem::new(Code::AlreadyClaimed, "That is not your claim").with("deadline_at", claim.deadline_at)
    })
}

/// Row 13: committed before any byte leaves.
pub fn sent(op: &Operation, claimed: &ClaimRef, fingerprint: &str, facts: &Standing, now: Timestamp) -> Result<Done> {
    if op.life.state == State::Expired {
        return Err(expired(op));
    }
    let claim = current_claim(op, claimed)?;
    if fingerprint != op.proposal.fingerprint.as_str() {
        return Err(mismatch(op, fingerprint));
    }
    match op.life.state {
        State::Claimed => {}
        State::Sent | State::Accepted => return Ok(Done::Already),
        State::Unknown | State::NeedsReview => return Err(outcome_unknown(op.id())),
        _ => return Err(refuse_terminal(op)),
    }
    if now >= claim.deadline_at {
        return Err(Problem::new(
            Code::InvalidState,
            format!("The claim ended at {}; claim it again before sending", claim.deadline_at),
        )
        .with("state", op.life.state));
    }
    if op.life.approval.retry_until.is_some_and(|until| now >= until) {
        return Err(Problem::new(Code::ApprovalExpired, "The approval is no longer in force. Nothing was sent"));
    }
    if let Some(refusal) = standing(op, facts, now) {
        return refusal;
    }
    let event = if op.has_ambiguous_attempt() { Event::EffectResent } else { Event::EffectSent };
    let (id, fence) = (claim.id.clone(), claim.fence);
    let mut step = Step::of(op, now).to(op, State::Sent, event, claim.by.actor()).last(|event| {
        event.claim = Some(id);
        event.fence = Some(fence);
    });
    step.life.may_have_applied = true;
    if let Some(claim) = &mut step.life.claim {
        claim.sent_at = Some(now);
    }
    if let Some(attempt) = step.life.attempts.last_mut() {
        attempt.sent_at = Some(now);
    }
    Ok(Done::Step(step))
}

/// Row 14: the provider queued it.
pub fn accepted(op: &Operation, claimed: &ClaimRef, reference: &str, now: Timestamp) -> Result<Done> {
    let claim = current_claim(op, claimed)?;
    match op.life.state {
        State::Sent => {}
        State::Accepted if claim.provider_reference.as_deref() == Some(reference) => return Ok(Done::Already),
        State::Unknown | State::NeedsReview => return Err(outcome_unknown(op.id())),
        state if state.is_terminal() => return Err(refuse_terminal(op)),
        state => {
            return Err(Problem::new(Code::InvalidState, "Only what was sent can be accepted").with("state", state));
        }
    }
    let (id, fence) = (claim.id.clone(), claim.fence);
    let mut step = Step::of(op, now).to(op, State::Accepted, Event::EffectAccepted, claim.by.actor()).last(|event| {
        event.claim = Some(id);
        event.fence = Some(fence);
        event.provider_ref = Some(reference.to_owned());
    });
    if let Some(claim) = &mut step.life.claim {
        claim.accepted_at = Some(now);
        claim.provider_reference = Some(reference.to_owned());
    }
    Ok(Done::Step(step))
}

/// Extends a live claim to `now + ttl_s`, up to 15 minutes in all.
pub fn heartbeat(op: &Operation, claimed: &ClaimRef, ttl_s: i64, now: Timestamp) -> Result {
    let claim = current_claim(op, claimed)?;
    if !matches!(op.life.state, State::Claimed | State::Sent) {
        return Err(if op.life.state.is_terminal() {
            refuse_terminal(op)
        } else {
            Problem::new(Code::InvalidState, format!("The operation is {}", words(op.life.state)))
                .with("state", op.life.state)
        });
    }
    if now >= claim.deadline_at {
        return Err(
            Problem::new(Code::InvalidState, "The claim has ended; claim it again").with("state", op.life.state)
        );
    }
    let cap = Timestamp(claim.claimed_at.as_millis() + CLAIM_CAP_MS);
    let deadline = claim.deadline_at.max(now.plus_seconds(ttl_s)).min(cap);
    let mut step = Step::of(op, now);
    if let Some(claim) = &mut step.life.claim {
        claim.deadline_at = deadline;
    }
    if let Some(attempt) = step.life.attempts.last_mut() {
        attempt.deadline_at = deadline;
    }
    Ok(step)
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

impl Report {
    fn says_the_same_as(&self, outcome: &Outcome) -> bool {
        self.status == outcome.status
            && self.provider_reference == outcome.provider_reference
            && self.provider_status == outcome.provider_status
    }
}

/// Whether a refused report is still a statement worth keeping.
#[derive(Debug, Clone, PartialEq)]
pub enum Reported {
    Done(Done),
    /// Too late to change the state: keep it as evidence and answer with the problem.
    Late(Problem),
}

/// Rows 15, 16, 17 under a live claim; anything later is evidence.
pub fn report(op: &Operation, claimed: &ClaimRef, report: &Report, now: Timestamp) -> Result<Reported> {
    let claim = match current_claim(op, claimed) {
        Ok(claim) => claim,
        Err(problem) if problem.code == Code::StaleFence => return Ok(Reported::Late(problem)),
        Err(problem) => return Err(problem),
    };
    match op.life.state {
        State::Sent | State::Accepted => {}
        State::Claimed => {
            return Err(Problem::new(Code::InvalidState, "Nothing was sent under this claim; report `sent` first")
                .with("state", op.life.state));
        }
        State::Unknown | State::NeedsReview if report.status == OutcomeStatus::Unknown => {
            return Ok(Reported::Done(Done::Already));
        }
        State::Unknown | State::NeedsReview => return Ok(Reported::Late(outcome_unknown(op.id()))),
        _ if op.life.outcome.as_ref().is_some_and(|outcome| report.says_the_same_as(outcome)) => {
            return Ok(Reported::Done(Done::Already));
        }
        _ if op.life.may_have_applied => return Ok(Reported::Late(refuse_terminal(op))),
        _ => return Err(refuse_terminal(op)),
    }
    if report.status == OutcomeStatus::Succeeded && report.provider_reference.is_none() && report.response.is_none() {
        return Err(Problem::at(
            Code::ValidationFailed,
            "/provider_reference",
            "success is shown by a provider reference or a response; give one of them",
        ));
    }
    let source = match claim.by {
        Claimant::Run(_) => OutcomeSource::Run,
        Claimant::Executor(_) => OutcomeSource::Executor,
    };
    // A refusal now says nothing about an earlier attempt nobody has an answer to.
    let definite = !op.has_ambiguous_attempt();
    let (state, event, result) = match report.status {
        OutcomeStatus::Succeeded => (State::Succeeded, Event::EffectCompleted, AttemptResult::Succeeded),
        OutcomeStatus::Failed if definite => (State::Failed, Event::EffectFailed, AttemptResult::Failed),
        OutcomeStatus::Conflicted if definite => {
            (State::Conflicted, Event::OperationConflicted, AttemptResult::Conflicted)
        }
        _ => (State::Unknown, Event::EffectOutcomeUnknown, AttemptResult::Unknown),
    };
    let (id, fence) = (claim.id.clone(), claim.fence);
    let reference = report.provider_reference.clone().or_else(|| claim.provider_reference.clone());
    let mut step = Step::of(op, now).to(op, state, event, claim.by.actor()).last(|event| {
        event.claim = Some(id);
        event.fence = Some(fence);
        event.provider_ref = reference.clone();
        event.status = report.provider_status.clone();
        event.result_version = report.resulting_version;
        event.response_digest = report.response.as_ref().and_then(|response| response.digest.clone());
    });
    step.life.outcome = Some(Outcome {
        provider_status: report.provider_status.clone(),
        response: report.response.clone(),
        resulting_version: report.resulting_version,
        ..outcome(if state == State::Unknown { OutcomeStatus::Unknown } else { report.status }, source, reference, now)
    });
    end_claim(&mut step.life, result, now);
    Ok(Reported::Done(Done::Step(step)))
}

// Endings by people and agents: rows 7 and 9

/// Row 7: nothing was sent.
pub fn cancel(op: &Operation, actor: Actor, name: Option<String>, reason: &str, now: Timestamp) -> Result<Done> {
    if op.life.state == State::Cancelled {
        return Ok(Done::Already);
    }
    end_unsent(op, State::Cancelled, Event::OperationCancelled, actor, name, reason, now)
}

/// Row 9: a new operation of the same agent names it in `supersedes`.
pub fn supersede(op: &Operation, by: &OperationId, actor: Actor, now: Timestamp) -> Result<Done> {
    if !matches!(op.life.state, State::Pending | State::Approved) {
        return Err(refuse_terminal(op));
    }
    end_unsent(op, State::Superseded, Event::OperationSuperseded, actor, None, &format!("superseded by {by}"), now)
}

fn end_unsent(
    op: &Operation,
    state: State,
    event: Event,
    actor: Actor,
    name: Option<String>,
    reason: &str,
    now: Timestamp,
) -> Result<Done> {
    if op.life.state.is_terminal() {
        return Err(refuse_terminal(op));
    }
    if !op.life.state.is_unsent() {
        return Err(Problem::new(
            Code::InvalidState,
            format!("It was sent and is {}; what may have happened cannot be cancelled", words(op.life.state)),
        )
        .with("state", op.life.state)
        .retry(RetryMode::Operator, None));
    }
    let mut step = Step::of(op, now).to(op, state, event, actor.clone()).end(actor, name, Some(reason.to_owned()), now);
    end_claim(&mut step.life, AttemptResult::Unsent, now);
    Ok(Done::Step(step))
}

// Unknown outcomes: rows 21, 22, 25 and 28

/// Row 21, by an operator: someone owns it, with a due time.
pub fn open_review(op: &Operation, case: ReviewCase, actor: Actor, now: Timestamp) -> Result {
    if !matches!(op.life.state, State::Unknown | State::Accepted) {
        return Err(Problem::new(Code::InvalidState, format!("The operation is {}", words(op.life.state)))
            .with("state", op.life.state));
    }
    let reason = case.reason.clone();
    let mut step = Step::of(op, now)
        .to(op, State::NeedsReview, Event::ReviewOpened, actor)
        .last(|event| event.reason = Some(reason));
    step.life.review_case = Some(case);
    end_claim(&mut step.life, AttemptResult::Unknown, now);
    Ok(step)
}

/// Row 28: evidence that contradicts how it ended. The state stays; somebody has to look.
pub fn dispute(op: &Operation, case: ReviewCase, actor: Actor, now: Timestamp) -> Step {
    let mut step = Step::of(op, now);
    step.life.disputed = true;
    step.life.review_case = Some(case);
    step.events.push(entry(op, Event::EvidenceContradiction, actor));
    step
}

/// Rows 22, 25 and the end of 28. Money takes two people: the first finding waits for a second one that agrees.
/// `definite` says whether the evidence named proves the finding; the service has checked who may call this.
pub fn resolve(op: &Operation, resolution: Resolution, now: Timestamp) -> Result<Done> {
    use ResolutionFinding::*;
    let disputed = op.life.disputed && op.life.state.is_terminal();
    let case = match &op.life.review_case {
        Some(case) if op.life.state == State::NeedsReview || disputed => case,
        Some(ReviewCase { resolution: Some(done), .. })
            if done.finding == resolution.finding && done.by == resolution.by =>
        {
            return Ok(Done::Already);
        }
        _ => {
            return Err(
                Problem::new(Code::InvalidState, "There is no open case to resolve").with("state", op.life.state)
            );
        }
    };
    if resolution.finding != Abandon && resolution.evidence.is_empty() {
        return Err(Problem::at(
            Code::ValidationFailed,
            "/evidence",
            "name the evidence this rests on; record it first",
        ));
    }
    let actor = Actor::human(&resolution.by);
    let needs_two = op.proposal.money && resolution.finding != Abandon;
    if needs_two {
        match &case.seconded {
            Some(first) if first.by == resolution.by && first.finding == resolution.finding => {
                return Ok(Done::Already);
            }
            Some(first) if first.by != resolution.by && first.finding == resolution.finding => {}
            _ => return Ok(Done::Step(second(op, resolution, actor, now))),
        }
    }
    let (state, event, status) = match resolution.finding {
        Applied => (State::Succeeded, Event::ReviewResolved, Some(OutcomeStatus::Succeeded)),
        NotApplied => (State::Failed, Event::ReviewResolved, Some(OutcomeStatus::Failed)),
        Abandon => (State::Abandoned, Event::ReviewAbandoned, None),
    };
    let finding = match resolution.finding {
        Applied => "applied",
        NotApplied => "not_applied",
        Abandon => "abandon",
    };
    let note = resolution.note.clone();
    let step = Step::of(op, now);
    let mut step =
        if disputed { step.note(entry(op, event, actor)) } else { step.to(op, state, event, actor) }.last(|event| {
            event.status = Some(finding.to_owned());
            event.reason = Some(note);
        });
    step.life.disputed = false;
    if let (Some(status), false) = (status, disputed) {
        let reference = op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.clone());
        step.life.outcome =
            Some(Outcome { confirmed: true, ..outcome(status, OutcomeSource::Operator, reference, now) });
    }
    if let Some(case) = &mut step.life.review_case {
        case.resolution = Some(resolution);
    }
    Ok(Done::Step(step))
}

fn second(op: &Operation, resolution: Resolution, actor: Actor, now: Timestamp) -> Step {
    let mut step = Step::of(op, now);
    step.events.push(Entry { reason: Some(resolution.note.clone()), ..entry(op, Event::ReviewSeconded, actor) });
    if let Some(case) = &mut step.life.review_case {
        case.seconded =
            Some(Seconded { by: resolution.by, name: resolution.name, finding: resolution.finding, at: now });
    }
    step
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
