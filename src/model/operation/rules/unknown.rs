//! Unknown outcomes: rows 15 and 16 by the provider's own word, and rows 18, 19 and 21 to 25 and 28.
//!
//! Time is not evidence, and nobody's own word proves that nothing happened: what counts is decided in
//! [`crate::model::resend`], and what people conclude names the evidence it rests on.

use super::*;
use crate::model::{
    evidence::{Evidence, Finding},
    provider::Contract,
};

/// Rows 18 and 19, and 15 and 16 where the provider speaks before anybody lost track: `proof` is first-hand and bound,
/// and the caller has found that it settles the outcome.
pub fn reconcile(op: &Operation, proof: &Evidence, source: OutcomeSource, now: Timestamp) -> Result<Done> {
    in_time(op, now)?;
    let actor = Actor::system("reconciler");
    let claim = op.life.claim.as_ref();
    let (status, result) = match proof.finding {
        Finding::Applied => (OutcomeStatus::Succeeded, AttemptResult::Succeeded),
        Finding::NotApplied => (OutcomeStatus::Failed, AttemptResult::Failed),
        Finding::Inconclusive => return Err(refuse_state(op, "An inconclusive statement settles nothing")),
    };
    let earlier = |attempt: &Attempt| {
        attempt.result == Some(AttemptResult::Unknown) && claim.is_none_or(|claim| attempt.claim_id != claim.id)
    };
    let step = match (op.life.state, status) {
        (State::Unknown | State::NeedsReview, OutcomeStatus::Succeeded) => {
            Step::of(op, now).to(op, State::Succeeded, Event::ReconcileApplied, actor)
        }
        (State::Unknown | State::NeedsReview, _) => {
            Step::of(op, now).to(op, State::Failed, Event::ReconcileNotApplied, actor)
        }
        (State::Sent | State::Accepted, OutcomeStatus::Succeeded) => {
            Step::of(op, now).to(op, State::Succeeded, Event::EffectCompleted, actor).under(claim)
        }
        // A refusal now says nothing about an earlier attempt nobody has an answer to.
        (State::Sent | State::Accepted, _) if op.life.attempts.iter().any(earlier) => {
            return Ok(Done::Step(lose_track(op, "the provider refused a further attempt", now)));
        }
        (State::Sent | State::Accepted, _) => {
            Step::of(op, now).to(op, State::Failed, Event::EffectFailed, actor).under(claim)
        }
        // The proof came before anything was sent again: the attempt is given back first.
        (State::Claimed, OutcomeStatus::Succeeded) if op.life.may_have_applied => {
            let back = give_back(op, "the effect was found before it was sent again", now);
            return Ok(Done::Step(back.followed_by(op, |op| reconcile(op, proof, source, now))?));
        }
        _ => return Err(invalid_state(op)),
    };
    let mut step = step.last(|event| {
        event.reason = Some(proof.id.to_string());
        event.provider_ref = proof.reference.clone();
        event.response_digest = Some(proof.digest.clone());
    });
    let known = op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.clone());
    let known = known.or_else(|| claim.and_then(|claim| claim.provider_reference.clone()));
    let reference = proof.reference.clone().filter(|text| text != op.id().as_str()).or(known);
    step.life.outcome = Some(Outcome { confirmed: true, ..outcome(status, source, reference, now) });
    step.life.retry_authorization = None;
    end_claim(&mut step.life, result, now);
    Ok(Done::Step(step))
}

/// First-hand and bound evidence for what was only reported: the state stays, and the outcome is confirmed.
pub fn confirm(op: &Operation, proof: &Evidence, now: Timestamp) -> Result<Done> {
    let agrees = match op.life.state {
        State::Succeeded => proof.finding == Finding::Applied,
        State::Failed | State::Conflicted => proof.finding == Finding::NotApplied,
        _ => false,
    };
    let Some(outcome) = op.life.outcome.as_ref().filter(|_| agrees && !op.life.disputed) else {
        return Err(invalid_state(op));
    };
    if outcome.confirmed {
        return Ok(Done::Already);
    }
    let known = outcome.provider_reference.clone();
    let reference = known.or_else(|| proof.reference.clone().filter(|text| text != op.id().as_str()));
    let mut step = Step::of(op, now).note(Entry {
        reason: Some(proof.id.to_string()),
        provider_ref: proof.reference.clone(),
        response_digest: Some(proof.digest.clone()),
        ..entry(op, Event::EvidenceConfirmation, Actor::system("reconciler"))
    });
    step.life.outcome = Some(Outcome { confirmed: true, provider_reference: reference, ..outcome.clone() });
    Ok(Done::Step(step))
}

/// Row 23: one person's word for another attempt, and with the second one's the attempt itself. One of the two looks
/// after unknown outcomes, the other may approve the operation. `guarantee` says why no second effect can come of it, or
/// what there is against it.
pub fn authorize_retry(
    op: &Operation,
    asked: RetryAsked,
    fingerprint: &str,
    guarantee: std::result::Result<String, String>,
    now: Timestamp,
) -> Result<Done> {
    in_time(op, now)?;
    if fingerprint != op.proposal.fingerprint.as_str() {
        return Err(mismatch(op, fingerprint));
    }
    let known = op.life.retry_authorization.as_ref();
    if known.is_some_and(|known| known.asked.by == asked.by || known.seconded.by == asked.by) {
        return Ok(Done::Already);
    }
    let case = match &op.life.review_case {
        Some(case) if op.life.state == State::NeedsReview => case,
        _ => return Err(refuse_state(op, "There is no open case to authorise another attempt in")),
    };
    if asked.note.trim().is_empty() {
        return Err(Problem::at(Code::ValidationFailed, "/note", "say why another attempt is justified"));
    }
    let reason = guarantee.map_err(|against| {
        refuse_state(op, format!("No further attempt: {against}")).retry(RetryMode::Operator, None)
    })?;
    let actor = Actor::human(&asked.by);
    let mut step = Step::of(op, now);
    let first = match &case.retry_asked {
        Some(first) if first.by == asked.by => return Ok(Done::Already),
        Some(first) if (first.operator && asked.approver) || (first.approver && asked.operator) => first.clone(),
        _ => {
            let second = Entry {
                status: Some("retry".to_owned()),
                reason: Some(asked.note.clone()),
                ..entry(op, Event::ReviewSeconded, actor)
            };
            if let Some(case) = &mut step.life.review_case {
                case.retry_asked = Some(asked);
            }
            return Ok(Done::Step(step.note(second)));
        }
    };
    let words = format!("{}; {}; {reason}", first.note, asked.note);
    let mut step =
        step.to(op, State::Unknown, Event::ReviewRetryAuthorized, actor).last(|event| event.reason = Some(words));
    step.life.retry_authorization = Some(RetryAuthorization { asked: first, seconded: asked });
    step.life.review_case = None;
    Ok(Done::Step(step))
}

/// The case that somebody owns and nobody has concluded.
pub fn open_case(op: &Operation) -> Option<&ReviewCase> {
    let is_open = op.life.state == State::NeedsReview || (op.life.disputed && op.life.state.is_terminal());
    op.life.review_case.as_ref().filter(|case| is_open && case.resolution.is_none())
}

/// Row 24: the due time of an open case has passed. Another owner is told; nothing else follows from time.
pub(super) fn escalate(op: &Operation, now: Timestamp) -> Option<Step> {
    let case = open_case(op).filter(|case| now >= case.due_at)?;
    let next = op.life.approval.escalation.get(case.escalated).cloned().unwrap_or_else(|| "admins".to_owned());
    let overdue = Entry {
        reason: Some(format!("due {}, passed on to {next}", case.due_at)),
        ..entry(op, Event::ReviewOverdue, Actor::system("clock"))
    };
    let mut step = Step::of(op, now).note(overdue);
    if let Some(case) = &mut step.life.review_case {
        case.overdue_since.get_or_insert(case.due_at);
        case.escalated += 1;
        case.owner = Some(next);
        case.due_at = now.plus_seconds(op.life.approval.review_due_s);
    }
    Some(step)
}

/// Row 21: someone owns it, with a due time. Open also to the system, once nothing is proven and nothing licensed.
pub fn open_review(op: &Operation, case: ReviewCase, actor: Actor, now: Timestamp) -> Result {
    in_time(op, now)?;
    if !matches!(op.life.state, State::Unknown | State::Accepted) {
        return Err(invalid_state(op));
    }
    let reason = case.reason.clone();
    let step = Step::of(op, now).to(op, State::NeedsReview, Event::ReviewOpened, actor);
    let mut step = step.last(|event| event.reason = Some(reason));
    step.life.review_case = Some(case);
    step.life.outcome.get_or_insert_with(|| {
        let reference = op.life.claim.as_ref().and_then(|claim| claim.provider_reference.clone());
        outcome(OutcomeStatus::Unknown, OutcomeSource::System, reference, now)
    });
    end_claim(&mut step.life, AttemptResult::Unknown, now);
    Ok(step)
}

/// Hands an open case to somebody else, or moves its due time. Neither decides anything.
pub fn assign(
    op: &Operation,
    owner: Option<String>,
    due_at: Option<Timestamp>,
    actor: Actor,
    now: Timestamp,
) -> Result<Done> {
    in_time(op, now)?;
    let case = open_case(op).ok_or_else(|| refuse_state(op, "There is no open case to hand over"))?;
    let next = ReviewCase {
        owner: owner.or_else(|| case.owner.clone()),
        due_at: due_at.unwrap_or(case.due_at),
        overdue_since: case.overdue_since.filter(|_| due_at.is_none()),
        ..case.clone()
    };
    if next == *case {
        return Ok(Done::Already);
    }
    let reason = format!("owner {}, due {}", next.owner.as_deref().unwrap_or("nobody"), next.due_at);
    let mut step = Step::of(op, now).note(Entry { reason: Some(reason), ..entry(op, Event::ReviewAssigned, actor) });
    step.life.review_case = Some(next);
    Ok(Done::Step(step))
}

/// Row 28: evidence that contradicts how it ended. The state stays; somebody has to look. `None` where nothing has
/// ended yet, or somebody looks already.
pub fn dispute(op: &Operation, case: ReviewCase, actor: Actor, now: Timestamp) -> Option<Step> {
    if !op.life.state.is_terminal() || op.life.disputed {
        return None;
    }
    let mut step = Step::of(op, now);
    step.life.disputed = true;
    step.life.review_case = Some(case);
    step.events.push(entry(op, Event::EvidenceContradiction, actor));
    Some(step)
}

/// How many people it takes to say what became of a lost answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    One,
    /// Two who agree: money always, and wherever the provider's declaration asks for it.
    Two,
}

impl Conclusion {
    pub fn of(op: &Operation, contract: Option<&Contract>) -> Self {
        if op.proposal.money || contract.is_some_and(|contract| contract.two_people) { Self::Two } else { Self::One }
    }
}

/// Rows 22, 25 and the end of 28. Where it takes two people, the first finding waits for a second one that agrees. The
/// caller has checked who may conclude what, and that the evidence named says so.
pub fn resolve(op: &Operation, resolution: Resolution, people: Conclusion, now: Timestamp) -> Result<Done> {
    use ResolutionFinding::*;
    let disputed = op.life.disputed && op.life.state.is_terminal();
    let case = match &op.life.review_case {
        Some(case) if op.life.state == State::NeedsReview || disputed => case,
        Some(ReviewCase { resolution: Some(done), .. })
            if done.finding == resolution.finding && done.by == resolution.by =>
        {
            return Ok(Done::Already);
        }
        _ => return Err(refuse_state(op, "There is no open case to resolve")),
    };
    if disputed && resolution.finding == Abandon {
        let detail = format!("It has ended as {}; find out whether it was applied", words(op.life.state));
        return Err(refuse_state(op, detail).retry(RetryMode::Operator, None));
    }
    if resolution.note.trim().is_empty() {
        return Err(Problem::at(Code::ValidationFailed, "/note", "say what was found, and where"));
    }
    if resolution.finding != Abandon && resolution.evidence.is_empty() {
        let detail = "name the evidence this rests on; record it first";
        return Err(Problem::at(Code::ValidationFailed, "/evidence", detail));
    }
    let actor = Actor::human(&resolution.by);
    if people == Conclusion::Two && resolution.finding != Abandon {
        match case.seconded.as_ref().filter(|first| first.finding == resolution.finding) {
            None => return Ok(Done::Step(second(op, resolution, actor, now))),
            Some(first) if first.by == resolution.by => return Ok(Done::Already),
            Some(_) => {}
        }
    }
    let (state, event, status) = match resolution.finding {
        Applied => (State::Succeeded, Event::ReviewResolved, Some(OutcomeStatus::Succeeded)),
        NotApplied => (State::Failed, Event::ReviewResolved, Some(OutcomeStatus::Failed)),
        Abandon => (State::Abandoned, Event::ReviewAbandoned, None),
    };
    let step = Step::of(op, now);
    let step = if disputed { step.note(entry(op, event, actor)) } else { step.to(op, state, event, actor) };
    let mut step = step.last(|event| {
        event.status = Some(resolution.finding.as_str().to_owned());
        event.reason = Some(resolution.note.clone());
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
    let mut step = Step::of(op, now).note(Entry {
        status: Some(resolution.finding.as_str().to_owned()),
        reason: Some(resolution.note),
        ..entry(op, Event::ReviewSeconded, actor)
    });
    if let Some(case) = &mut step.life.review_case {
        case.seconded =
            Some(Seconded { by: resolution.by, name: resolution.name, finding: resolution.finding, at: now });
    }
    step
}
