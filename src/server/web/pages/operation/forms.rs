//! What the page's forms do: each calls the service that the API calls, and answers with the page again.

use axum::response::{IntoResponse, Redirect, Response};
use leptos::prelude::*;
use serde::Deserialize;
use tower_sessions::Session;

use super::{Deed, Draft, Paper, Told, address, slip, strip};
use crate::{
    model::{
        evidence::{EvidenceKind, Finding},
        fingerprint::Fingerprint,
        id::{EvidenceId, OperationId},
        operation::{Decision, ReasonCode, ResolutionFinding},
        problem::{Code, Problem},
    },
    server::{
        service::{
            account, cancel as cancelling,
            case::{self, Assignment},
            decide::{self, VoteRequest},
            error::{Error, Result},
            evidence::{self, ResolutionRequest, Statement},
            hold,
            reconcile::{self, RetryRequest},
            sheet::Sheet,
        },
        web::{
            auth::{ClientAddress, Operator, Principal},
            body::{Form, Path, Query},
            pages::{
                render::{Page, Visitor},
                shell::Place,
            },
            session_store,
        },
    },
};

#[derive(Deserialize)]
pub struct Asked {
    /// What the reader has just done: a word of [`Deed`], believed as far as the operation bears it out.
    #[serde(default)]
    told: String,
}

pub async fn show(visitor: Visitor, Path(id): Path<OperationId>, Query(asked): Query<Asked>) -> Result<Page> {
    let told = Deed::parse(&asked.told).map_or(Told::Nothing, Told::Did);
    let sheet = Sheet::read(&visitor.desk, &visitor.person, &id).await?;
    Ok(Paper { sheet: &sheet, visitor: &visitor, told }.write())
}

/// Back to the page by GET, so that reloading does nothing twice.
fn done(id: &OperationId, deed: Deed) -> Response {
    Redirect::to(&format!("{}?told={}", address(id), deed.as_str())).into_response()
}

/// The page again, with the refusal and what was typed.
async fn again(visitor: &Visitor, id: &OperationId, problem: Problem, draft: Draft) -> Result<Response> {
    let sheet = Sheet::read(&visitor.desk, &visitor.person, id).await?;
    Ok(Paper { sheet: &sheet, visitor, told: Told::Refused(problem, draft) }.write().into_response())
}

async fn answer<T>(
    visitor: &Visitor,
    id: &OperationId,
    deed: Deed,
    draft: Draft,
    result: Result<T>,
) -> Result<Response> {
    match result {
        Ok(_) => Ok(done(id, deed)),
        Err(Error::Refused(problem)) if problem.code != Code::NotFound => again(visitor, id, problem, draft).await,
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
pub struct Ballot {
    fingerprint: String,
    review_digest: String,
    #[serde(default)]
    reason_code: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    confirm_target: String,
    /// Entered again on the way.
    #[serde(default)]
    password: String,
}

impl Ballot {
    fn draft(&self) -> Draft {
        Draft { reason_code: ReasonCode::parse(&self.reason_code), words: self.reason.clone(), ..Draft::default() }
    }

    fn request(self, decision: Decision) -> Result<VoteRequest> {
        let unreadable = |_| Problem::at(Code::ValidationFailed, "/fingerprint", "the form names no fingerprint");
        Ok(VoteRequest {
            decision,
            fingerprint: self.fingerprint.parse::<Fingerprint>().map_err(unreadable)?,
            review_digest: self.review_digest,
            reason_code: ReasonCode::parse(&self.reason_code).filter(|_| decision == Decision::Reject),
            reason: Some(self.reason).filter(|reason| !reason.is_empty()),
            confirm_target: Some(self.confirm_target).filter(|target| !target.is_empty()),
        })
    }
}

pub async fn reject(visitor: Visitor, Path(id): Path<OperationId>, Form(ballot): Form<Ballot>) -> Result<Response> {
    let draft = ballot.draft();
    let result = decide::vote(&visitor.desk, &visitor.person, &id, ballot.request(Decision::Reject)?).await;
    answer(&visitor, &id, Deed::Rejected, draft, result).await
}

pub async fn approve(
    mut visitor: Visitor,
    ClientAddress(client): ClientAddress,
    session: Session,
    Path(id): Path<OperationId>,
    Form(mut ballot): Form<Ballot>,
) -> Result<Response> {
    let draft = ballot.draft();
    let password = std::mem::take(&mut ballot.password);
    let typed = ballot.confirm_target.clone();
    let step = Step { fingerprint: ballot.fingerprint.clone(), review_digest: ballot.review_digest.clone(), typed };
    if !password.is_empty() {
        let person = &visitor.person;
        match account::check_password(&visitor.desk, person.name(), password, client, person.by()).await {
            Ok(_) => {
                let now = visitor.desk.now();
                session_store::step_up(&session, person, now).await?;
                visitor.person = visitor.person.stepped_up(now);
            }
            Err(Error::Refused(problem)) => {
                let words = match problem.code {
                    Code::RateLimited => "Too many tries. Nothing was decided.",
                    _ => "That is not the password. Nothing was decided.",
                };
                return Ok(step
                    .password(&visitor, &id, Some(words))
                    .await?
                    .refused(Code::StepUpRequired)
                    .into_response());
            }
            Err(error) => return Err(error),
        }
    }
    match decide::vote(&visitor.desk, &visitor.person, &id, ballot.request(Decision::Approve)?).await {
        Err(Error::Refused(problem)) if problem.code == Code::StepUpRequired => {
            Ok(step.password(&visitor, &id, None).await?.refused(problem.code).into_response())
        }
        Err(Error::Refused(problem)) if problem.errors().iter().any(|error| error.pointer == "/confirm_target") => {
            Ok(step.target(&visitor, &id).await?.refused(problem.code).into_response())
        }
        result => answer(&visitor, &id, Deed::Approved, draft, result).await,
    }
}

/// What stands between Approve and the vote, on a page of its own. It cannot be skipped: nothing was counted yet.
struct Step {
    fingerprint: String,
    review_digest: String,
    typed: String,
}

impl Step {
    async fn target(&self, visitor: &Visitor, id: &OperationId) -> Result<Page> {
        let sheet = Sheet::read(&visitor.desk, &visitor.person, id).await?;
        let paper = Paper { sheet: &sheet, visitor, told: Told::Nothing };
        let wrong = (!self.typed.is_empty()).then_some("That is not the target. Nothing was decided.");
        let field = strip::target_field(&paper, "step-error").into_any();
        Ok(self.page(&paper, "Type the target to approve", field, wrong))
    }

    async fn password(&self, visitor: &Visitor, id: &OperationId, wrong: Option<&'static str>) -> Result<Page> {
        let sheet = Sheet::read(&visitor.desk, &visitor.person, id).await?;
        let paper = Paper { sheet: &sheet, visitor, told: Told::Nothing };
        let words = format!("Password, to approve {} work", sheet.op.proposal.risk.as_str());
        let field = view! {
            <input type="hidden" name="confirm_target" value=self.typed.clone() />
            <label class="field">
                <span>{words}</span>
                <input
                    class="in"
                    type="password"
                    name="password"
                    autocomplete="current-password"
                    maxlength="1024"
                    required
                    aria-invalid=wrong.map(|_| "true")
                    aria-describedby="step-error"
                />
            </label>
        };
        Ok(self.page(&paper, "Your password again", field.into_any(), wrong))
    }

    fn page(&self, paper: &Paper, heading: &'static str, field: AnyView, wrong: Option<&'static str>) -> Page {
        let op = paper.op();
        let (id, number) = (op.id().clone(), op.proposal.fingerprint.short_code());
        paper.visitor.page(heading, Place::Desk, || {
            view! {
                <div class="head-plain">
                    <h1>{heading}</h1>
                    <p class="second">{slip::prose(&op.proposal.consequence)}</p>
                </div>
                <form class="card step-up" action=format!("{}/approve", address(&id)) method="post">
                    <input type="hidden" name="fingerprint" value=self.fingerprint.clone() />
                    <input type="hidden" name="review_digest" value=self.review_digest.clone() />
                    {field}
                    <p class="err" id="step-error" role="alert">{wrong}</p>
                    <div class="foot">
                        <button class="btn btn-sign" type="submit">
                            "Approve "<span class="no">{number}</span>
                        </button>
                        <a href=address(&id)>"Back, without deciding"</a>
                    </div>
                </form>
            }
        })
    }
}

pub async fn withdraw(visitor: Visitor, Path(id): Path<OperationId>) -> Result<Response> {
    let result = decide::withdraw(&visitor.desk, &visitor.person, &id).await;
    answer(&visitor, &id, Deed::Withdrew, Draft::default(), result).await
}

#[derive(Deserialize)]
pub struct Cancellation {
    #[serde(default)]
    reason: String,
}

pub async fn cancel(visitor: Visitor, Path(id): Path<OperationId>, Form(form): Form<Cancellation>) -> Result<Response> {
    let draft = Draft { words: form.reason.clone(), ..Draft::default() };
    let principal = Principal::Person(visitor.person.clone());
    let result = cancelling::cancel(&visitor.desk, &principal, &id, form.reason).await;
    answer(&visitor, &id, Deed::Cancelled, draft, result).await
}

#[derive(Deserialize)]
pub struct Found {
    finding: Finding,
    kind: EvidenceKind,
    #[serde(default)]
    reference: String,
    #[serde(default)]
    note: String,
}

/// Records evidence.
pub async fn state(visitor: Visitor, Path(id): Path<OperationId>, Form(form): Form<Found>) -> Result<Response> {
    let draft = Draft { words: form.note.clone(), reference: form.reference.clone(), ..Draft::default() };
    let given = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let statement = Statement {
        body: None,
        finding: form.finding,
        kind: form.kind,
        reference: given(form.reference),
        observed_at: visitor.now,
        note: given(form.note),
    };
    let principal = Principal::Person(visitor.person.clone());
    let result = evidence::add(&visitor.desk, &principal, &id, statement).await;
    answer(&visitor, &id, Deed::Stated, draft, result).await
}

/// Asks the provider what became of it.
pub async fn look_up(visitor: Visitor, operator: Operator, Path(id): Path<OperationId>) -> Result<Response> {
    let result = reconcile::ask_now(&visitor.desk, &operator, &id).await;
    answer(&visitor, &id, Deed::LookedUp, Draft::default(), result).await
}

#[derive(Deserialize)]
pub struct OneMoreTry {
    fingerprint: String,
    #[serde(default)]
    note: String,
}

pub async fn authorize_retry(
    visitor: Visitor,
    Path(id): Path<OperationId>,
    Form(form): Form<OneMoreTry>,
) -> Result<Response> {
    let draft = Draft { words: form.note.clone(), ..Draft::default() };
    let unreadable = |_| Problem::at(Code::ValidationFailed, "/fingerprint", "the form names no fingerprint");
    let request =
        RetryRequest { fingerprint: form.fingerprint.parse::<Fingerprint>().map_err(unreadable)?, note: form.note };
    let result = reconcile::authorize_retry(&visitor.desk, &visitor.person, &id, request).await;
    answer(&visitor, &id, Deed::Authorised, draft, result).await
}

#[derive(Deserialize)]
pub struct HandOver {
    #[serde(default)]
    owner: String,
    /// Seconds from now; empty leaves the due time.
    #[serde(default)]
    due_in_s: String,
}

pub async fn assign(
    visitor: Visitor,
    operator: Operator,
    Path(id): Path<OperationId>,
    Form(form): Form<HandOver>,
) -> Result<Response> {
    let due_in_s = form.due_in_s.parse::<i64>().ok();
    let assignment = Assignment {
        owner: Some(form.owner).filter(|owner| !owner.is_empty()),
        due_at: due_in_s.map(|seconds| visitor.now.plus_seconds(seconds.clamp(0, i64::from(i32::MAX)))),
    };
    let result = case::assign(&visitor.desk, &operator, &id, assignment).await;
    answer(&visitor, &id, Deed::Assigned, Draft::default(), result).await
}

/// Lets an operation pass what holds its target.
pub async fn lift(
    visitor: Visitor,
    operator: Operator,
    Path(id): Path<OperationId>,
    Form(form): Form<Cancellation>,
) -> Result<Response> {
    let draft = Draft { words: form.reason.clone(), ..Draft::default() };
    let result = match form.reason.trim() {
        "" => Err(Problem::at(Code::ValidationFailed, "/reason", "say why it may pass").into()),
        _ => hold::override_hold(&visitor.desk, &operator, &id, form.reason).await,
    };
    answer(&visitor, &id, Deed::Lifted, draft, result).await
}

#[derive(Deserialize)]
pub struct Settled {
    finding: ResolutionFinding,
    /// The evidence it rests on; none to abandon.
    #[serde(default)]
    evidence: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    duplicate_effect: bool,
    #[serde(default)]
    cost_minor: String,
    #[serde(default)]
    currency: String,
}

pub async fn resolve(visitor: Visitor, Path(id): Path<OperationId>, Form(form): Form<Settled>) -> Result<Response> {
    let draft = Draft { words: form.note.clone(), ..Draft::default() };
    let named = form.evidence.parse::<EvidenceId>().ok();
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let request = ResolutionRequest {
        finding: form.finding,
        evidence: named.into_iter().collect(),
        note: form.note,
        duplicate_effect: form.duplicate_effect,
        // What is no number is refused by the rule about costs.
        cost_minor: given(&form.cost_minor).map(|minor| minor.parse().unwrap_or(-1)),
        currency: given(&form.currency).map(|currency| currency.to_uppercase()),
    };
    let result = evidence::resolve(&visitor.desk, &visitor.person, &id, request).await;
    answer(&visitor, &id, Deed::Resolved, draft, result).await
}
