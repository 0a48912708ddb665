//! Unknown outcomes: what the evidence settles, what the provider still has to be asked, and what a person has to decide.
//!
//! [`model::resend`](crate::model::resend) says what follows from the evidence; here its facts are gathered and its
//! ruling is carried out. Whoever is asked is asked outside of the committer, and nothing is concluded from time.

use futures::{StreamExt, stream};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    By, Desk,
    decide::carry_out,
    error::Result,
    evidence::{self, Source, Statement, case},
    operation::{approvers, load, owner_now, record_refusal, standing_at, voters},
    provider,
};
use crate::{
    model::{
        approval::Role,
        audit::{Actor, Event},
        destination::Found,
        evidence::{Evidence, EvidenceKind, Finding},
        fingerprint::Fingerprint,
        id::OperationId,
        operation::{
            Operation, OutcomeSource, RetryAsked, State,
            rules::{self, Done},
        },
        problem::{Code, Problem, RetryMode},
        provider::{Contract, Proofs},
        resend::{self, Doubt, Licence, Proof, Ruling, Stuck},
        time::Timestamp,
    },
    server::{
        store::{self, Conn, Tx, evidence as statements, operation, operation::Filter, provider as providers},
        web::auth::{Operator, PersonIdentity},
    },
};

/// Outcomes looked at together.
const BATCH: i64 = 200;
/// Providers asked at the same time.
const AT_ONCE: usize = 8;
/// Look-ups that found nothing out, after which a person owns the outcome.
const PATIENCE: usize = 5;
/// Seconds between two look-ups at most.
const LONGEST_BACKOFF_S: i64 = 3600;

/// Everything the rule about one unknown outcome looks at.
#[derive(Debug, Clone)]
pub struct Known {
    pub contract: Option<Contract>,
    pub proofs: Proofs,
    pub evidence: Vec<Evidence>,
    pub first_sent_at: Timestamp,
    /// The end of the last claim under which anything was sent.
    pub claim_ended_at: Timestamp,
    /// Attempts that sent something.
    pub attempts: usize,
    pub approval_in_force: bool,
}

impl Known {
    pub fn ruling(&self, now: Timestamp) -> Ruling {
        let evidence: Vec<_> = self.evidence.iter().map(proof).collect();
        let doubt = Doubt {
            contract: self.contract.as_ref(),
            proofs: self.proofs,
            evidence: &evidence,
            first_sent_at: self.first_sent_at,
            claim_ended_at: self.claim_ended_at,
            attempts: self.attempts,
            approval_in_force: self.approval_in_force,
        };
        resend::rule(doubt, now)
    }

    /// Why one more attempt cannot make a second effect, or what there is against it.
    pub fn licence(&self, now: Timestamp) -> std::result::Result<String, String> {
        match self.ruling(now) {
            Ruling::Resend(Licence::KeyHonoured) => {
                Ok("the provider honours the key, and still remembers it".to_owned())
            }
            Ruling::Resend(Licence::Absent(proof)) => {
                Ok(format!("by evidence {proof} nothing was applied, and nothing is under way any more"))
            }
            Ruling::LookUp { not_before } if now < not_before => {
                Err(format!("the provider is asked again at {not_before}"))
            }
            Ruling::LookUp { .. } => Err("the provider has to be asked first".to_owned()),
            Ruling::Applied(proof) => Err(format!("by evidence {proof} it was applied")),
            Ruling::NotApplied(_) if !self.approval_in_force => Err(Stuck::ApprovalOver.sentence().to_owned()),
            Ruling::NotApplied(_) => Err(Stuck::AttemptsUsedUp.sentence().to_owned()),
            Ruling::Review(stuck) => Err(stuck.sentence().to_owned()),
        }
    }

    /// When the provider is asked next: later and later while nothing is found out.
    fn next_look_up(&self, id: &OperationId, not_before: Timestamp) -> Timestamp {
        let asked = || self.evidence.iter().filter(|one| one.first_hand && one.kind == EvidenceKind::Lookup);
        let since = asked().filter(|one| one.observed_at >= not_before).count();
        let Some(last) = asked().map(|one| one.observed_at).max().filter(|last| since > 0 || *last > not_before) else {
            return not_before;
        };
        let backoff_s = 1_i64.checked_shl(since.min(20) as u32).unwrap_or(i64::MAX).min(LONGEST_BACKOFF_S);
        // Spread by the id, so that outcomes lost together are not all asked about in the same second.
        let spread = id.as_str().bytes().map(i64::from).sum::<i64>() % 256;
        Timestamp(last.as_millis() + backoff_s * 1000 + backoff_s * spread)
    }

    fn is_out_of_patience(&self, not_before: Timestamp) -> bool {
        let unclear = |one: &&Evidence| {
            one.first_hand
                && one.kind == EvidenceKind::Lookup
                && one.finding == Finding::Inconclusive
                && one.observed_at >= not_before
        };
        self.evidence.iter().filter(unclear).count() >= PATIENCE
    }
}

fn proof(evidence: &Evidence) -> Proof {
    Proof {
        id: evidence.id.clone(),
        finding: evidence.finding,
        kind: evidence.kind,
        first_hand: evidence.first_hand,
        bound: evidence.bound,
        observed_at: evidence.observed_at,
    }
}

/// What is known about an operation of which something was sent; `None` where nothing was.
pub async fn known(desk: &Desk, conn: &mut Conn, op: &Operation, now: Timestamp) -> store::Result<Option<Known>> {
    let sent: Vec<_> = op.life.attempts.iter().filter(|attempt| attempt.sent_at.is_some()).collect();
    let (Some(first), Some(last)) = (sent.first(), sent.last()) else { return Ok(None) };
    let (Some(first_sent_at), claim_ended_at) =
        (first.sent_at, last.ended_at.map_or(last.deadline_at, |ended| ended.min(last.deadline_at)))
    else {
        return Ok(None);
    };
    let (contract, proofs) = contract_of(conn, op).await?;
    let standing = standing_at(desk, conn, op, now).await?;
    let approval = &op.life.approval;
    let approval_in_force = approval.withdrawn_at.is_none_or(|_| approval.granted_at.is_some())
        && standing.ineligible.is_empty()
        && standing.policy_gap.is_none()
        && approval.retry_until.is_some_and(|until| now < until);
    Ok(Some(Known {
        contract,
        proofs,
        evidence: statements::of_operation(conn, op.id()).await?,
        first_sent_at,
        claim_ended_at,
        attempts: sent.len(),
        approval_in_force,
    }))
}

/// What its provider declares now, and what has been shown of it.
pub async fn contract_of(conn: &mut Conn, op: &Operation) -> store::Result<(Option<Contract>, Proofs)> {
    let stored = match &op.proposal.provider {
        Some(name) => providers::find(conn, name).await?,
        None => None,
    };
    let Some(stored) = stored else { return Ok((None, Proofs::default())) };
    let contract = provider::read(&stored)?;
    let proofs = providers::proofs(conn, &contract.name, stored.version).await?;
    Ok((Some(contract), proofs))
}

/// What a claim of an unknown outcome may rely on (row 20).
pub async fn licence(desk: &Desk, tx: &mut Tx, op: &Operation) -> store::Result<std::result::Result<String, String>> {
    let now = tx.now();
    if op.life.state != State::Unknown {
        return Ok(Err("its outcome is not in doubt".to_owned()));
    }
    let known = known(desk, tx, op, now).await?;
    Ok(known.map_or(Err("nothing was sent".to_owned()), |known| known.licence(now)))
}

/// Carries out what the evidence about one outcome settles: rows 18, 19 and 21, and that what was only reported is so.
pub async fn settle(desk: &Desk, tx: &mut Tx, op: Operation) -> store::Result<Operation> {
    let now = tx.now();
    let Some(known) = known(desk, tx, &op, now).await? else { return Ok(op) };
    let by = By::system("reconciler");
    let step = match known.ruling(now) {
        Ruling::Resend(Licence::Absent(_)) if !op.life.state.is_terminal() => return Ok(op),
        Ruling::Applied(id) | Ruling::NotApplied(id) | Ruling::Resend(Licence::Absent(id)) => {
            let Some(proof) = known.evidence.iter().find(|one| one.id == id) else { return Ok(op) };
            let source = match proof.kind {
                EvidenceKind::Callback => OutcomeSource::Callback,
                _ => OutcomeSource::Lookup,
            };
            if op.life.state.is_terminal() {
                rules::confirm(&op, proof, now)
            } else {
                rules::reconcile(&op, proof, source, now)
            }
        }
        Ruling::Review(stuck) if op.life.state == State::Unknown => open(&op, stuck.sentence(), now),
        Ruling::LookUp { not_before } if op.life.state == State::Unknown && known.is_out_of_patience(not_before) => {
            open(&op, "the provider was asked, and its answers say nothing", now)
        }
        _ => return Ok(op),
    };
    match step {
        Ok(Done::Step(step)) => operation::apply(tx, &op, by.step(step)).await,
        // What the state does not allow is for later, or for nobody.
        Ok(Done::Already | Done::Refused(..)) | Err(_) => Ok(op),
    }
}

fn open(op: &Operation, reason: &str, now: Timestamp) -> std::result::Result<Done, Problem> {
    rules::open_review(op, case(op, reason, now), Actor::system("reconciler"), now).map(Done::Step)
}

/// Asks the provider what became of an operation, and keeps the answer as evidence.
///
/// # Errors
/// `not_found` · `invalid_state` where nothing was sent, or the provider cannot be asked.
pub async fn look_up(desk: &Desk, source: Source, id: &OperationId) -> Result<(Operation, Evidence)> {
    let refuse = |detail: &str| Problem::new(Code::InvalidState, detail).retry(RetryMode::Operator, None);
    let mut conn = desk.store.read().await?;
    let op = operation::find(&mut conn, id).await?.ok_or_else(super::operation::not_found)?;
    if !op.life.may_have_applied {
        return Err(refuse("Nothing was sent, so there is no outcome to ask about")
            .with("state", op.life.state)
            .into());
    }
    // Whatever the answer shows was so when it was asked, and may have changed since.
    let observed_at = desk.now();
    let known = known(desk, &mut conn, &op, observed_at).await?;
    drop(conn);
    let asked = known.and_then(|known| Some((known.contract?, known.claim_ended_at)));
    let (contract, claim_ended_at) =
        asked.ok_or_else(|| refuse("No provider has declared how it is asked about this"))?;
    let lag_s = contract.lookup.lag_s().unwrap_or(0);
    let may_show_later = lag_s > 0 && observed_at < claim_ended_at.plus_seconds(lag_s);
    let found = provider::ask(desk, &contract, id.as_str()).await?;
    let (finding, reference, note) = match found {
        Ok(Found::Applied { reference }) => (Finding::Applied, reference, "found by its downstream key".to_owned()),
        Ok(Found::Twice) => {
            (Finding::Applied, None, "more than one effect was found under its downstream key".to_owned())
        }
        Ok(Found::Absent) if may_show_later => {
            let words = "nothing was found under its downstream key; what was applied may not show yet";
            (Finding::Inconclusive, None, words.to_owned())
        }
        Ok(Found::Absent) => (Finding::NotApplied, None, "nothing was found under its downstream key".to_owned()),
        Ok(Found::Unclear) => (Finding::Inconclusive, None, "the answer says neither yes nor no".to_owned()),
        Err(words) => (Finding::Inconclusive, None, words),
    };
    let statement =
        Statement { finding, kind: EvidenceKind::Lookup, reference, observed_at, note: Some(note), body: None };
    let (desk_in, id) = (desk.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let (op, kept) = evidence::keep(tx, &source, op, statement).await?;
            Ok(Ok((settle(&desk_in, tx, op).await?, kept)))
        })
    })
    .await
}

fn own_question() -> Source {
    Source { by: By::system("reconciler"), name: "Counterfoil".to_owned(), first_hand: true }
}

/// A look-up that an operator asks for.
///
/// # Errors
/// Those of [`look_up`].
pub async fn ask_now(desk: &Desk, operator: &Operator, id: &OperationId) -> Result<(Operation, Evidence)> {
    look_up(desk, Source { by: operator.by(), name: operator.name().to_owned(), first_hand: true }, id).await
}

/// Looks at every outcome nobody is sure of: settles what the evidence settles, and asks whom it is time to
/// ask. How many it did something about.
pub async fn step(desk: &Desk) -> Result<usize> {
    let mut filter = Filter { states: vec![State::Unknown, State::NeedsReview], limit: BATCH, ..Filter::default() };
    let mut done = 0;
    loop {
        let batch = operation::list(&mut desk.store.read().await?, &filter).await?;
        let is_last = (batch.len() as i64) < BATCH;
        filter.before = batch.last().map(|op| op.id().clone());
        let looked: Vec<_> = stream::iter(batch).map(|op| attend(desk, op)).buffer_unordered(AT_ONCE).collect().await;
        for looked in looked {
            done += usize::from(looked?);
        }
        if is_last {
            break;
        }
    }
    Ok(done)
}

async fn attend(desk: &Desk, op: Operation) -> Result<bool> {
    let now = desk.now();
    let version = op.life.version;
    let known = known(desk, &mut desk.store.read().await?, &op, now).await?;
    let Some(known) = known else { return Ok(false) };
    let id = op.id().clone();
    match known.ruling(now) {
        Ruling::LookUp { not_before } if now >= known.next_look_up(&id, not_before) => {
            look_up(desk, own_question(), &id).await?;
            return Ok(true);
        }
        Ruling::Resend(_) => return Ok(false),
        Ruling::LookUp { .. } | Ruling::Review(_) if op.life.state != State::Unknown => return Ok(false),
        _ => {}
    }
    let desk_in = desk.clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let op = settle(&desk_in, tx, op).await?;
            Ok(Ok(op.life.version != version))
        })
    })
    .await
}

/// Two people's word for one more attempt.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    pub note: String,
}

/// Characters of a note.
const MAX_NOTE: usize = 4_000;

/// One person's word for another attempt (row 23); with the second one's it may be claimed again.
///
/// # Errors
/// `forbidden` · `self_approval` · `approval_mismatch` · `invalid_state`, with what there is against it.
pub async fn authorize_retry(
    desk: &Desk,
    person: &PersonIdentity,
    id: &OperationId,
    request: RetryRequest,
) -> Result<Operation> {
    if request.note.trim().is_empty() || request.note.chars().count() > MAX_NOTE {
        let detail = format!("a note has 1 to {MAX_NOTE} characters: why another attempt is justified");
        return Err(Problem::at(Code::ValidationFailed, "/note", detail).into());
    }
    let (desk_in, person, id) = (desk.clone(), person.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id).await? {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            let (now, by) = (tx.now(), person.by());
            let owner = owner_now(tx, &op).await?;
            let voters = voters(tx).await?;
            let asked = RetryAsked {
                by: person.id().clone(),
                name: person.name().to_owned(),
                operator: matches!(person.role(), Role::Operator | Role::Admin),
                approver: approvers(&op, &op.life.approval.groups, &voters, &owner).any(|one| one.id == *person.id()),
                note: request.note,
                at: now,
            };
            let refused = if *person.id() == op.proposal.owner || *person.id() == owner {
                Some(Problem::new(Code::SelfApproval, "You own this agent: others decide about another attempt"))
            } else if !asked.operator && !asked.approver {
                Some(Problem::new(Code::NotEligible, "An operator and an eligible approver authorise another attempt"))
            } else {
                None
            };
            if let Some(problem) = refused {
                record_refusal(tx, &by, &op, Event::ApprovalRefused, &problem).await?;
                return Ok(Err(problem));
            }
            let known = known(&desk_in, tx, &op, now).await?;
            let guarantee = known.map_or(Err("nothing was sent".to_owned()), |known| known.licence(now));
            let result = rules::authorize_retry(&op, asked, request.fingerprint.as_str(), guarantee, now);
            carry_out(tx, &by, op, Event::ApprovalRefused, result).await
        })
    })
    .await
}
