//! Evidence about outcomes, and what people conclude from it.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    By, Desk,
    account::Administrator,
    decide::carry_out,
    error::Result,
    operation::{load, record_refusal, sees},
    reconcile,
};
use crate::{
    model::{
        approval::Role,
        audit::{Entry, Event, salted_digest},
        evidence::{Evidence, EvidenceKind, Finding},
        id::{CaseId, EvidenceId, OperationId},
        json,
        money::Currency,
        operation::{
            Cost, Operation, Resolution, ResolutionFinding, ReviewCase, State,
            rules::{self, Conclusion, Done},
        },
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        ids,
        store::{self, Conn, Tx, evidence, operation},
        web::auth::{PersonIdentity, Principal},
    },
};

/// Characters of a note, and of a provider's reference.
const MAX_NOTE: usize = 4_000;
const MAX_REFERENCE: usize = 500;
/// Bytes of an attached body in canonical JSON.
pub const MAX_BODY: usize = 64 * 1024;

/// What somebody states.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub finding: Finding,
    pub kind: EvidenceKind,
    /// The provider's own name for the effect.
    #[serde(default)]
    pub reference: Option<String>,
    pub observed_at: Timestamp,
    #[serde(default)]
    pub note: Option<String>,
    /// What was seen, as it was: a receipt, a reply.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Value>,
}

/// The salted digest of a body, as the log carries it.
pub fn digest(salt: &str, body: &Value) -> String {
    salted_digest(salt.as_bytes(), json::canonical(body).as_bytes())
}

/// Everything stated about one operation, oldest first.
pub async fn of(conn: &mut Conn, id: &OperationId) -> store::Result<Vec<Evidence>> {
    evidence::of_operation(conn, id).await
}

/// Records a statement. It changes no state: what follows from it is decided apart.
///
/// # Errors
/// `not_found`, `validation_failed`, `forbidden` for kinds of evidence that the caller cannot bring.
pub async fn add(
    desk: &Desk,
    principal: &Principal,
    id: &OperationId,
    statement: Statement,
) -> Result<(Operation, Evidence)> {
    let invalid = |pointer: &str, detail: String| Problem::at(Code::ValidationFailed, pointer, detail);
    if statement.reference.as_ref().is_some_and(|text| text.trim().is_empty() || text.chars().count() > MAX_REFERENCE) {
        return Err(invalid("/reference", format!("expected 1 to {MAX_REFERENCE} characters")).into());
    }
    if statement.note.as_ref().is_some_and(|text| text.chars().count() > MAX_NOTE) {
        return Err(invalid("/note", format!("expected at most {MAX_NOTE} characters")).into());
    }
    if statement.body.as_ref().is_some_and(|body| json::canonical(body).len() > MAX_BODY) {
        return Err(invalid("/body", format!("expected at most {MAX_BODY} bytes")).into());
    }
    if matches!(statement.kind, EvidenceKind::Callback | EvidenceKind::LateReport) {
        return Err(invalid("/kind", "expected lookup, receipt or statement".to_owned()).into());
    }
    let (principal, id) = (principal.clone(), id.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let op = match load(tx, &id)
                .await?
                .and_then(|op| if sees(&principal, &op) { Ok(op) } else { Err(super::operation::not_found()) })
            {
                Ok(op) => op,
                Err(problem) => return Ok(Err(problem)),
            };
            if statement.observed_at > tx.now().plus_seconds(5) {
                return Ok(Err(Problem::at(
                    Code::ValidationFailed,
                    "/observed_at",
                    "nobody has observed the future; expected a time up to now",
                )));
            }
            if !op.life.may_have_applied {
                return Ok(Err(Problem::new(Code::InvalidState, "Nothing was sent, so there is no outcome to prove")
                    .with("state", op.life.state)));
            }
            let name = match &principal {
                Principal::Person(person) => person.name().to_owned(),
                Principal::Run(run) => run.agent_name().to_owned(),
                Principal::Agent(agent) => agent.agent().name.clone(),
                Principal::Executor(executor) => executor.executor().name.clone(),
            };
            let source = Source { by: principal.by(), name, first_hand: false };
            Ok(Ok(keep(tx, &source, op, statement).await?))
        })
    })
    .await
}

/// Whose statement it is.
#[derive(Debug, Clone)]
pub struct Source {
    pub by: By,
    pub name: String,
    /// Counterfoil asked the provider, or verified its signature, itself, by the downstream key.
    pub first_hand: bool,
}

/// Stores a statement; against a settled outcome it opens a dispute (row 28).
pub async fn keep(
    tx: &mut Tx,
    source: &Source,
    op: Operation,
    statement: Statement,
) -> store::Result<(Operation, Evidence)> {
    let (now, by) = (tx.now(), &source.by);
    let salt = operation::salt(tx, op.id()).await?;
    let mut words = serde_json::json!({
        "finding": statement.finding, "kind": statement.kind, "reference": statement.reference,
        "observed_at": statement.observed_at, "note": statement.note,
    });
    if let Some(body) = &statement.body {
        words["body"] = body.clone();
    }
    let bound = source.first_hand || binds(&op, statement.reference.as_deref());
    let kept = Evidence {
        id: ids::new::<EvidenceId>(now),
        finding: statement.finding,
        kind: statement.kind,
        reference: statement.reference,
        observed_at: statement.observed_at,
        by: by.actor.clone(),
        by_name: source.name.clone(),
        digest: digest(&salt, &words),
        note: statement.note,
        body: statement.body,
        first_hand: source.first_hand,
        bound,
    };
    evidence::insert(tx, op.id(), &kept).await?;
    let added = Entry {
        response_digest: Some(kept.digest.clone()),
        provider_ref: kept.reference.clone(),
        status: Some(kept.finding.as_str().to_owned()),
        reason: Some(kept.id.to_string()),
        ..by.on(rules::entry(&op, Event::EvidenceAdded, by.actor.clone()))
    };
    tx.audit(&added).await?;
    let disputed = contradicts(&op, &kept)
        .then(|| rules::dispute(&op, case(&op, "evidence contradicts the outcome", now), by.actor.clone(), now));
    let op = match disputed.flatten() {
        Some(step) => operation::apply(tx, &op, by.step(step)).await?,
        None => op,
    };
    Ok((op, kept))
}

/// Only the downstream key and the provider's own reference of this operation bind; an equal amount or text never does.
fn binds(op: &Operation, reference: Option<&str>) -> bool {
    let claim = op.life.claim.as_ref().and_then(|claim| claim.provider_reference.as_deref());
    let outcome = op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.as_deref());
    reference.is_some_and(|reference| [Some(op.id().as_str()), claim, outcome].contains(&Some(reference)))
}

/// Bound evidence that says the opposite of how the operation ended.
fn contradicts(op: &Operation, evidence: &Evidence) -> bool {
    match (op.life.state, evidence.finding) {
        (State::Failed | State::Conflicted, Finding::Applied) => true,
        (State::Succeeded, Finding::NotApplied) => evidence.bound,
        _ => false,
    }
}

/// Erases what was attached to a statement. The statement and its digest stay, and so does the log.
///
/// # Errors
/// `validation_failed` without a reason · `not_found` for a statement that is not there, or has nothing attached.
pub async fn erase_body(desk: &Desk, admin: &Administrator, id: &EvidenceId, reason: &str) -> Result<()> {
    if reason.trim().is_empty() || reason.chars().count() > MAX_NOTE {
        let detail = format!("a reason has 1 to {MAX_NOTE} characters: why it is erased");
        return Err(Problem::at(Code::ValidationFailed, "/reason", detail).into());
    }
    let (by, id, reason) = (admin.by().clone(), id.clone(), format!("{id}: {reason}"));
    desk.commit(move |tx| {
        Box::pin(async move {
            let known = evidence::find(tx, &id).await?;
            let Some((operation, kept)) = known else {
                return Ok(Err(Problem::new(Code::NotFound, format!("there is no evidence `{id}`"))));
            };
            if !evidence::erase_body(tx, &id).await? {
                return Ok(Err(Problem::new(Code::NotFound, format!("nothing is attached to `{id}`"))));
            }
            let entry = Entry {
                operation: Some(operation),
                response_digest: Some(kept.digest),
                reason: Some(reason),
                ..by.entry(Event::AdminBodyErased)
            };
            tx.audit(&entry).await?;
            Ok(Ok(()))
        })
    })
    .await
}

/// A report that came too late to change the state: kept as evidence, and refused.
pub async fn keep_late(
    tx: &mut Tx,
    by: &By,
    name: String,
    op: Operation,
    statement: Statement,
    problem: Problem,
) -> store::Result<std::result::Result<Operation, Problem>> {
    record_refusal(tx, by, &op, Event::ReportRefused, &problem).await?;
    let source = Source { by: by.clone(), name, first_hand: false };
    let (_, kept) = keep(tx, &source, op, statement).await?;
    Ok(Err(Problem { detail: format!("{}. The report is kept as evidence `{}`", problem.detail, kept.id), ..problem }
        .with("evidence", &kept.id)))
}

pub fn case(op: &Operation, reason: &str, now: Timestamp) -> ReviewCase {
    ReviewCase {
        id: ids::new::<CaseId>(now),
        owner: op.life.approval.review_owner.clone(),
        due_at: now.plus_seconds(op.life.approval.review_due_s),
        opened_at: now,
        reason: reason.to_owned(),
        overdue_since: None,
        escalated: 0,
        seconded: None,
        retry_asked: None,
        resolution: None,
    }
}

/// What an operator concludes.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionRequest {
    #[schema(value_type = String)]
    pub finding: ResolutionFinding,
    /// Ids of the evidence it rests on.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub evidence: Vec<EvidenceId>,
    pub note: String,
    /// The effect was made more than once.
    #[serde(default)]
    pub duplicate_effect: bool,
    /// What it cost to find out and put right, in minor units of `currency`.
    #[serde(default)]
    pub cost_minor: Option<i64>,
    #[serde(default)]
    pub currency: Option<String>,
}

/// Resolves an unknown outcome. Money takes two people, as does what its provider declares so; abandoning takes an admin.
///
/// # Errors
/// `forbidden`, `invalid_state`, `validation_failed`.
pub async fn resolve(
    desk: &Desk,
    person: &PersonIdentity,
    id: &OperationId,
    request: ResolutionRequest,
) -> Result<Operation> {
    if request.note.trim().is_empty() || request.note.chars().count() > MAX_NOTE {
        let detail = format!("a note has 1 to {MAX_NOTE} characters: what was found, and where");
        return Err(Problem::at(Code::ValidationFailed, "/note", detail).into());
    }
    let cost = cost(&request)?;
    let (person, id) = (person.clone(), id.clone());
    desk.commit(move |tx| Box::pin(async move { resolve_in(tx, &person, &id, request, cost).await })).await
}

async fn resolve_in(
    tx: &mut Tx,
    person: &PersonIdentity,
    id: &OperationId,
    request: ResolutionRequest,
    cost: Option<Cost>,
) -> store::Result<std::result::Result<Operation, Problem>> {
    let by = person.by();
    let mut op = match load(tx, id).await? {
        Ok(op) => op,
        Err(problem) => return Ok(Err(problem)),
    };
    let needed = match request.finding {
        ResolutionFinding::Abandon => (person.role() == Role::Admin, "Only an admin abandons an outcome without proof"),
        _ => (matches!(person.role(), Role::Operator | Role::Admin), "An operator or an admin resolves this"),
    };
    if let (false, words) = needed {
        let problem = Problem::new(Code::Forbidden, words);
        record_refusal(tx, &by, &op, Event::ReportRefused, &problem).await?;
        return Ok(Err(problem));
    }
    let stated = evidence::of_operation(tx, id).await?;
    let wanted = match request.finding {
        ResolutionFinding::Applied => Some(Finding::Applied),
        ResolutionFinding::NotApplied => Some(Finding::NotApplied),
        ResolutionFinding::Abandon => None,
    };
    for (i, named) in request.evidence.iter().enumerate() {
        let fits = stated.iter().any(|e| e.id == *named && wanted.is_none_or(|finding| e.finding == finding));
        if !fits {
            return Ok(Err(Problem::at(
                Code::ValidationFailed,
                format!("/evidence/{i}"),
                "this is no evidence of this operation with that finding",
            )));
        }
    }
    let rests_on = |named: &EvidenceId| stated.iter().any(|evidence| evidence.id == *named && evidence.bound);
    if request.finding == ResolutionFinding::Applied && !request.evidence.iter().any(rests_on) {
        let detail = "nothing named here carries the downstream key or the provider's reference of this operation; a \
                      record of the same amount is no proof";
        let problem = Problem::at(Code::ValidationFailed, "/evidence", detail);
        let named = request.evidence.iter().map(|id| format!("{id} ")).collect::<String>();
        let refused = Entry {
            status: Some(problem.code.as_str()),
            reason: Some(format!("{named}carries no key or reference of this operation, so it is no proof")),
            ..by.on(rules::entry(&op, Event::ReportRefused, by.actor.clone()))
        };
        tx.audit(&refused).await?;
        return Ok(Err(problem));
    }
    if op.life.state == State::Unknown {
        let opened =
            rules::open_review(&op, case(&op, "an operator looked into it", tx.now()), by.actor.clone(), tx.now());
        match opened {
            Ok(step) => op = operation::apply(tx, &op, by.step(step)).await?,
            Err(problem) => return Ok(Err(problem)),
        }
    }
    let contract = reconcile::contract_of(tx, &op).await?.0;
    let people = Conclusion::of(&op, contract.as_ref());
    let resolution = Resolution {
        finding: request.finding,
        by: person.id().clone(),
        name: person.name().to_owned(),
        evidence: request.evidence,
        note: request.note,
        duplicate_effect: request.duplicate_effect,
        cost,
        at: tx.now(),
    };
    let result: std::result::Result<Done, Problem> = rules::resolve(&op, resolution, people, tx.now());
    carry_out(tx, &by, op, Event::ReportRefused, result).await
}

fn cost(request: &ResolutionRequest) -> Result<Option<Cost>> {
    match (request.cost_minor, &request.currency) {
        (None, None) => Ok(None),
        (Some(minor), Some(currency)) if minor >= 0 && Currency::parse(currency).is_some() => {
            Ok(Some(Cost { minor, currency: currency.clone() }))
        }
        _ => {
            let detail = "a cost is a whole number of minor units, 0 or more, with its `currency` (ISO 4217)";
            Err(Problem::at(Code::ValidationFailed, "/cost_minor", detail).into())
        }
    }
}
