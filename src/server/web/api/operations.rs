//! Operations: proposed, watched, decided, claimed and reported.

use std::time::Duration;

use axum::{
    Json,
    extract::{RawQuery, State},
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::runs::Reason;
use crate::{
    model::{
        approval::Review,
        document::{Audience, ClaimDoc, OperationDoc},
        etag,
        evidence::Evidence,
        id::OperationId,
        operation::Operation,
        problem::{Code, Problem},
    },
    server::{
        service::{
            Desk, cancel, claim,
            claim::Worker,
            conflict,
            decide::{self, BulkItem, VoteRequest},
            error::{Error, Result},
            evidence, hold, operation,
            operation::ListQuery,
            propose::{self, Headers, NewOperation, Proposed},
            reconcile::{self, RetryRequest},
            review,
        },
        web::{
            auth::{Operator, PersonIdentity, Principal, RunIdentity},
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

/// Longest wait of one poll. Seconds.
const MAX_WAIT_S: u64 = 60;
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, propose_one))
        .routes(routes!(by_key))
        .routes(routes!(read))
        .routes(routes!(read_review))
        .routes(routes!(claim_one))
        .routes(routes!(sent))
        .routes(routes!(accepted))
        .routes(routes!(heartbeat))
        .routes(routes!(outcome))
        .routes(routes!(cancel_one))
        .routes(routes!(decide_one, withdraw))
        .routes(routes!(list_evidence, add_evidence))
        .routes(routes!(resolve))
        .routes(routes!(look_up))
        .routes(routes!(authorize_retry))
        .routes(routes!(override_hold))
        .routes(routes!(decide_many))
}

// What replies look like, for the description of the API.

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
pub(super) struct OperationReply {
    operation: OperationDoc,
    /// To people: digest of the review document as it is now.
    review_digest: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ProposedReply {
    /// `created`, `in_progress`, `replayed` or `existing`.
    disposition: String,
    #[schema(value_type = Object)]
    operation: Value,
    provider_reference: Option<String>,
    content_differs: Option<bool>,
    /// JSON pointers into the body.
    differs: Option<Vec<String>>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct OperationPage {
    operations: Vec<OperationDoc>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ReviewReply {
    review: Review,
    review_digest: String,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ClaimReply {
    claim: ClaimDoc,
    operation: OperationDoc,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct VotedReply {
    #[schema(value_type = Object)]
    vote: Value,
    operation: OperationDoc,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct EvidenceList {
    evidence: Vec<Evidence>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct EvidenceReply {
    evidence: Evidence,
    operation: OperationDoc,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct BulkReply {
    results: Vec<decide::BulkResult>,
}

pub(super) fn document(desk: &Desk, principal: &Principal, op: &Operation) -> OperationDoc {
    let own = principal.agent() == Some(&op.proposal.agent);
    let audience = if own { Audience::SameAgent } else { Audience::Others };
    OperationDoc::of(op, audience, &desk.config.public_url, desk.now())
}

pub(super) fn with_etag(op: &Operation, body: Value) -> Response {
    ([(ETAG, etag::of(op.life.version))], Json(body)).into_response()
}

pub(super) fn lines(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes())
}

#[utoipa::path(
    post,
    path = "/operations",
    tag = "operations",
    request_body = NewOperation,
    params(("Idempotency-Key" = String, Header, description = "16 to 255 of A-Z a-z 0-9 . _ ~ : -"), ("If-Match" = Option<String>, Header, description = "The entity tag the write was planned on")),
    responses((status = 201, description = "Created", body = ProposedReply), (status = 202, description = "Known, and still open", body = ProposedReply), (status = 200, description = "Done", body = ProposedReply)),
)]
async fn propose_one(
    desk: Desk,
    run: RunIdentity,
    headers: HeaderMap,
    body: std::result::Result<StrictJson<NewOperation>, Error>,
) -> Result<Response> {
    let key = propose::read_key(lines(&headers, "idempotency-key"))?;
    let headers = Headers {
        key,
        if_match: etag::parse(lines(&headers, IF_MATCH))?,
        if_none_match: etag::parse(lines(&headers, IF_NONE_MATCH))?,
    };
    let StrictJson(body) = body?;
    let proposed = propose::propose(&desk, &propose::Proposer::run(&run), headers, body).await;
    let principal = Principal::Run(run);
    let proposed = conflict::told(&desk, &principal, None, proposed).await?;
    Ok(match proposed {
        Proposed::Created(op) => {
            let document = document(&desk, &principal, &op);
            let location = [(LOCATION, document.urls.self_.clone())];
            let body = json!({"disposition": "created", "operation": document});
            (StatusCode::CREATED, location, with_etag(&op, body)).into_response()
        }
        Proposed::InProgress(op) => {
            let body = json!({"disposition": "in_progress", "operation": document(&desk, &principal, &op)});
            let headers = [(RETRY_AFTER, "2".to_owned()), (REPLAYED, "true".to_owned())];
            (StatusCode::ACCEPTED, headers, with_etag(&op, body)).into_response()
        }
        Proposed::Replayed(op) => {
            let body = json!({"disposition": "replayed", "operation": document(&desk, &principal, &op)});
            ([(REPLAYED, "true")], with_etag(&op, body)).into_response()
        }
        Proposed::Existing { operation, differs } => existing(&desk, &principal, &operation, &differs),
    })
}

/// Another agent's operation for the same event is named, and not shown.
fn existing(desk: &Desk, principal: &Principal, op: &Operation, differs: &[String]) -> Response {
    let own = principal.agent() == Some(&op.proposal.agent);
    let operation = match own {
        true => json!(document(desk, principal, op)),
        false => json!({"id": op.id(), "state": op.life.state}),
    };
    let reference = op.life.outcome.as_ref().and_then(|outcome| outcome.provider_reference.clone()).filter(|_| own);
    let body = json!({
        "disposition": "existing",
        "operation": operation,
        "provider_reference": reference,
        "content_differs": !differs.is_empty(),
        "differs": differs,
    });
    if own { with_etag(op, body) } else { Json(body).into_response() }
}

/// How a reader asks to be told of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// Seconds.
    wait: Option<u64>,
}

/// `Prefer: wait=30` (RFC 7240 §4.3).
fn preferred_wait(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.find_map(|preference| preference.trim().strip_prefix("wait=")?.trim().parse().ok())
}

#[utoipa::path(
    get,
    path = "/operations/{id}",
    tag = "operations",
    params(("id" = String, Path), ("wait" = Option<u64>, Query, description = "Seconds to wait for a change, 60 at most"), ("If-None-Match" = Option<String>, Header, description = "The version already known"), ("Prefer" = Option<String>, Header, description = "`wait=30`")),
    responses((status = 200, description = "Done", body = OperationReply), (status = 304, description = "Nothing has changed")),
)]
async fn read(
    State(state): State<AppState>,
    principal: Principal,
    Path(id): Path<OperationId>,
    Query(query): Query<Wait>,
    headers: HeaderMap,
) -> Result<Response> {
    let desk = &state.desk;
    let known = etag::parse(lines(&headers, IF_NONE_MATCH))?;
    let mut op = operation::get(desk, &principal, &id).await?;
    let names = |op: &Operation| known.as_ref().is_some_and(|tags| tags.names(op.life.version));
    if names(&op) {
        let wait = query.wait.or_else(|| preferred_wait(&headers)).unwrap_or(0).min(MAX_WAIT_S);
        let wait = Duration::from_secs(wait);
        op = operation::wait(desk, &principal, &id, op.life.version, wait, state.stop.cancelled()).await?;
    }
    if names(&op) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag::of(op.life.version))]).into_response());
    }
    let mut body = json!({"operation": document(desk, &principal, &op)});
    if let Principal::Person(_) = principal {
        body["review_digest"] = review::of(&mut desk.store.read().await?, &op).await?.digest().into();
    }
    Ok(with_etag(&op, body))
}

#[utoipa::path(
    get,
    path = "/operations/{id}/review",
    tag = "operations",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = ReviewReply)),
)]
async fn read_review(desk: Desk, person: PersonIdentity, Path(id): Path<OperationId>) -> Result<Response> {
    let (op, review) = review::get(&desk, &person, &id).await?;
    Ok(with_etag(&op, json!({"review_digest": review.digest(), "review": review})))
}

#[utoipa::path(
    get,
    path = "/operations/by-key/{key}",
    tag = "operations",
    params(("key" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn by_key(desk: Desk, principal: Principal, Path(key): Path<String>) -> Result<Response> {
    let Some(agent) = principal.agent() else {
        return Err(Problem::new(Code::Forbidden, "Keys are an agent's own; send its token or a run's").into());
    };
    let key = propose::read_key([key.as_bytes()])?;
    let op = operation::by_key(&desk, agent, &key).await?;
    if !operation::sees(&principal, &op) {
        return Ok(Json(json!({"operation": {"id": op.id(), "state": op.life.state}})).into_response());
    }
    Ok(with_etag(&op, json!({"operation": document(&desk, &principal, &op)})))
}

#[utoipa::path(
    get,
    path = "/operations",
    tag = "operations",
    params(ListQuery),
    responses((status = 200, description = "Done", body = OperationPage)),
)]
async fn list(
    desk: Desk,
    principal: Principal,
    Query(query): Query<ListQuery>,
    RawQuery(raw): RawQuery,
) -> Result<Response> {
    let page = operation::list(&desk, &principal, query).await?;
    let operations: Vec<_> = page.operations.iter().map(|op| document(&desk, &principal, op)).collect();
    let body = json!({"operations": operations, "next_cursor": page.next_cursor});
    Ok(super::list_page(&desk, "operations", raw.as_deref(), page.next_cursor, body))
}

/// Runs and executors carry operations out; nobody else does.
impl axum::extract::FromRequestParts<AppState> for Worker {
    type Rejection = Error;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &AppState,
    ) -> std::result::Result<Self, Error> {
        match Principal::from_request_parts(parts, state).await? {
            Principal::Run(run) => Ok(Worker::Run(run)),
            Principal::Executor(executor) => Ok(Worker::Executor(executor)),
            _ => Err(Problem::new(Code::Forbidden, "A run or an executor carries operations out").into()),
        }
    }
}

/// Whoever decides: people alone. A program that tries is refused, and that is on record.
struct Decider(PersonIdentity);

impl axum::extract::FromRequestParts<AppState> for Decider {
    type Rejection = Error;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &AppState,
    ) -> std::result::Result<Self, Error> {
        match <PersonIdentity as axum::extract::FromRequestParts<_>>::from_request_parts(parts, state).await {
            Err(Error::Refused(problem)) if problem.code == Code::HumansOnly => {
                let program = Principal::from_request_parts(parts, state).await?;
                let id = Path::<OperationId>::from_request_parts(parts, state).await.ok();
                decide::refuse_program(&state.desk, &program, id.map(|Path(id)| id), &problem).await;
                Err(problem.into())
            }
            other => other.map(Self),
        }
    }
}

fn principal_of(worker: Worker) -> Principal {
    match worker {
        Worker::Run(run) => Principal::Run(run),
        Worker::Executor(executor) => Principal::Executor(executor),
        Worker::Gateway(_) => unreachable!("no credential is the gateway's"),
    }
}

/// What a refused worker may know about the conflict that it met.
async fn told(desk: &Desk, worker: &Worker, id: &OperationId, result: Result<Operation>) -> Result<Operation> {
    conflict::told(desk, &principal_of(worker.clone()), Some(id), result).await
}

fn reply(desk: &Desk, worker: Worker, op: &Operation) -> Response {
    with_etag(op, json!({"operation": document(desk, &principal_of(worker), op)}))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/claim",
    tag = "operations",
    request_body = claim::ClaimRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = ClaimReply)),
)]
async fn claim_one(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::ClaimRequest>,
) -> Result<Response> {
    let op = told(&desk, &worker, &id, claim::claim(&desk, &worker, &id, body).await).await?;
    let claim = claim::document(&op);
    let operation = document(&desk, &principal_of(worker), &op);
    Ok(with_etag(&op, json!({"claim": claim, "operation": operation})))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/sent",
    tag = "operations",
    request_body = claim::SentRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn sent(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::SentRequest>,
) -> Result<Response> {
    let op = told(&desk, &worker, &id, claim::sent(&desk, &worker, &id, body).await).await?;
    Ok(reply(&desk, worker, &op))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/accepted",
    tag = "operations",
    request_body = claim::AcceptedRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn accepted(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::AcceptedRequest>,
) -> Result<Response> {
    let op = told(&desk, &worker, &id, claim::accepted(&desk, &worker, &id, body).await).await?;
    Ok(reply(&desk, worker, &op))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/heartbeat",
    tag = "operations",
    request_body = claim::HeartbeatRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn heartbeat(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::HeartbeatRequest>,
) -> Result<Response> {
    let op = told(&desk, &worker, &id, claim::heartbeat(&desk, &worker, &id, body).await).await?;
    Ok(reply(&desk, worker, &op))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/outcome",
    tag = "operations",
    request_body = claim::OutcomeRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn outcome(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::OutcomeRequest>,
) -> Result<Response> {
    let op = told(&desk, &worker, &id, claim::outcome(&desk, &worker, &id, body).await).await?;
    Ok(reply(&desk, worker, &op))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    reason: String,
}

#[utoipa::path(
    post,
    path = "/operations/{id}/cancel",
    tag = "operations",
    request_body = CancelRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn cancel_one(
    desk: Desk,
    principal: Principal,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<CancelRequest>,
) -> Result<Response> {
    let op = cancel::cancel(&desk, &principal, &id, body.reason).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &principal, &op)})))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/decisions",
    tag = "operations",
    request_body = VoteRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = VotedReply)),
)]
async fn decide_one(
    desk: Desk,
    Decider(person): Decider,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<VoteRequest>,
) -> Result<Response> {
    let voted = decide::vote(&desk, &person, &id, body).await?;
    let document = document(&desk, &Principal::Person(person), &voted.operation);
    Ok(with_etag(&voted.operation, json!({"vote": voted.vote, "operation": document})))
}

#[utoipa::path(
    delete,
    path = "/operations/{id}/decisions",
    tag = "operations",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn withdraw(desk: Desk, Decider(person): Decider, Path(id): Path<OperationId>) -> Result<Response> {
    let op = decide::withdraw(&desk, &person, &id).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person(person), &op)})))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bulk {
    decisions: Vec<BulkItem>,
}

#[utoipa::path(
    post,
    path = "/decisions",
    tag = "operations",
    request_body = Bulk,
    responses((status = 200, description = "Done", body = BulkReply)),
)]
async fn decide_many(desk: Desk, Decider(person): Decider, StrictJson(body): StrictJson<Bulk>) -> Result<Json<Value>> {
    Ok(Json(json!({"results": decide::bulk(&desk, &person, body.decisions).await?})))
}

#[utoipa::path(
    get,
    path = "/operations/{id}/evidence",
    tag = "operations",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = EvidenceList)),
)]
async fn list_evidence(desk: Desk, principal: Principal, Path(id): Path<OperationId>) -> Result<Json<Value>> {
    let op = operation::get(&desk, &principal, &id).await?;
    let evidence = evidence::of(&mut desk.store.read().await?, op.id()).await?;
    Ok(Json(json!({"evidence": evidence})))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/evidence",
    tag = "operations",
    request_body = evidence::Statement,
    params(("id" = String, Path)),
    responses((status = 201, description = "Created", body = EvidenceReply)),
)]
async fn add_evidence(
    desk: Desk,
    principal: Principal,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<evidence::Statement>,
) -> Result<Response> {
    let (op, evidence) = evidence::add(&desk, &principal, &id, body).await?;
    let operation = document(&desk, &principal, &op);
    let body = json!({"evidence": evidence, "operation": operation});
    Ok((StatusCode::CREATED, with_etag(&op, body)).into_response())
}

#[utoipa::path(
    post,
    path = "/operations/{id}/resolution",
    tag = "operations",
    request_body = evidence::ResolutionRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn resolve(
    desk: Desk,
    person: PersonIdentity,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<evidence::ResolutionRequest>,
) -> Result<Response> {
    let op = evidence::resolve(&desk, &person, &id, body).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person(person), &op)})))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OverrideRequest {
    reason: Reason,
}

#[utoipa::path(
    post,
    path = "/operations/{id}/override",
    tag = "operations",
    request_body = OverrideRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn override_hold(
    desk: Desk,
    operator: Operator,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<OverrideRequest>,
) -> Result<Response> {
    let op = hold::override_hold(&desk, &operator, &id, body.reason.0).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person((*operator).clone()), &op)})))
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct LookedUpReply {
    evidence: Evidence,
    operation: OperationDoc,
}

#[utoipa::path(
    post,
    path = "/operations/{id}/lookup",
    tag = "operations",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = LookedUpReply)),
)]
async fn look_up(desk: Desk, operator: Operator, Path(id): Path<OperationId>) -> Result<Response> {
    let (op, kept) = reconcile::ask_now(&desk, &operator, &id).await?;
    let operation = document(&desk, &Principal::Person((*operator).clone()), &op);
    Ok(with_etag(&op, json!({"evidence": kept, "operation": operation})))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/retry-authorization",
    tag = "operations",
    request_body = RetryRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn authorize_retry(
    desk: Desk,
    person: PersonIdentity,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<RetryRequest>,
) -> Result<Response> {
    let op = reconcile::authorize_retry(&desk, &person, &id, body).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person(person), &op)})))
}
