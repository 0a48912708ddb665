//! Operations: proposed, watched, decided, claimed and reported.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{ETAG, IF_MATCH, IF_NONE_MATCH, LINK, LOCATION, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    model::{
        document::{Audience, OperationDoc},
        etag,
        id::OperationId,
        operation::Operation,
        problem::{Code, Problem},
    },
    server::{
        service::{
            Desk, cancel, claim,
            claim::Worker,
            decide::{self, BulkItem, VoteRequest},
            error::{Error, Result},
            evidence, operation,
            operation::ListQuery,
            propose::{self, Headers, NewOperation, Proposed},
            review,
        },
        web::{
            auth::{PersonIdentity, Principal, RunIdentity},
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

/// Longest wait of one poll. Seconds.
const MAX_WAIT_S: u64 = 60;
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/operations", get(list).post(propose_one))
        .route("/operations/by-key/{key}", get(by_key))
        .route("/operations/{id}", get(read))
        .route("/operations/{id}/review", get(read_review))
        .route("/operations/{id}/claim", post(claim_one))
        .route("/operations/{id}/sent", post(sent))
        .route("/operations/{id}/accepted", post(accepted))
        .route("/operations/{id}/heartbeat", post(heartbeat))
        .route("/operations/{id}/outcome", post(outcome))
        .route("/operations/{id}/cancel", post(cancel_one))
        .route("/operations/{id}/decisions", post(decide_one).delete(withdraw))
        .route("/operations/{id}/evidence", get(list_evidence).post(add_evidence))
        .route("/operations/{id}/resolution", post(resolve))
        .route("/decisions", post(decide_many))
}

fn document(desk: &Desk, principal: &Principal, op: &Operation) -> OperationDoc {
    let own = principal.agent() == Some(&op.proposal.agent);
    let audience = if own { Audience::SameAgent } else { Audience::Others };
    OperationDoc::of(op, audience, &desk.config.public_url, desk.now())
}

fn with_etag(op: &Operation, body: Value) -> Response {
    ([(ETAG, etag::of(op.life.version))], Json(body)).into_response()
}

fn lines<'a>(headers: &'a HeaderMap, name: impl axum::http::header::AsHeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes())
}

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
    let proposed = propose::propose(&desk, &run, headers, body).await?;
    let principal = Principal::Run(run);
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

async fn read_review(desk: Desk, person: PersonIdentity, Path(id): Path<OperationId>) -> Result<Response> {
    let (op, review) = review::get(&desk, &person, &id).await?;
    Ok(with_etag(&op, json!({"review_digest": review.digest(), "review": review})))
}

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

async fn list(desk: Desk, principal: Principal, Query(query): Query<ListQuery>) -> Result<Response> {
    let page = operation::list(&desk, &principal, query).await?;
    let operations: Vec<_> = page.operations.iter().map(|op| document(&desk, &principal, op)).collect();
    let body = Json(json!({"operations": operations, "next_cursor": page.next_cursor}));
    Ok(match page.next_cursor {
        Some(cursor) => {
            let next = format!("<{}/api/v1/operations?cursor={cursor}>; rel=\"next\"", desk.config.public_url);
            ([(LINK, next)], body).into_response()
        }
        None => body.into_response(),
    })
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

fn principal_of(worker: Worker) -> Principal {
    match worker {
        Worker::Run(run) => Principal::Run(run),
        Worker::Executor(executor) => Principal::Executor(executor),
    }
}

fn reply(desk: &Desk, worker: Worker, op: &Operation) -> Response {
    with_etag(op, json!({"operation": document(desk, &principal_of(worker), op)}))
}

async fn claim_one(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::ClaimRequest>,
) -> Result<Response> {
    let op = claim::claim(&desk, &worker, &id, body).await?;
    let claim = claim::document(&op);
    let operation = document(&desk, &principal_of(worker), &op);
    Ok(with_etag(&op, json!({"claim": claim, "operation": operation})))
}

async fn sent(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::SentRequest>,
) -> Result<Response> {
    let op = claim::sent(&desk, &worker, &id, body).await?;
    Ok(reply(&desk, worker, &op))
}

async fn accepted(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::AcceptedRequest>,
) -> Result<Response> {
    let op = claim::accepted(&desk, &worker, &id, body).await?;
    Ok(reply(&desk, worker, &op))
}

async fn heartbeat(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::HeartbeatRequest>,
) -> Result<Response> {
    let op = claim::heartbeat(&desk, &worker, &id, body).await?;
    Ok(reply(&desk, worker, &op))
}

async fn outcome(
    desk: Desk,
    worker: Worker,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<claim::OutcomeRequest>,
) -> Result<Response> {
    let op = claim::outcome(&desk, &worker, &id, body).await?;
    Ok(reply(&desk, worker, &op))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelRequest {
    reason: String,
}

async fn cancel_one(
    desk: Desk,
    principal: Principal,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<CancelRequest>,
) -> Result<Response> {
    let op = cancel::cancel(&desk, &principal, &id, body.reason).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &principal, &op)})))
}

async fn decide_one(
    desk: Desk,
    person: PersonIdentity,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<VoteRequest>,
) -> Result<Response> {
    let voted = decide::vote(&desk, &person, &id, body).await?;
    let document = document(&desk, &Principal::Person(person), &voted.operation);
    Ok(with_etag(&voted.operation, json!({"vote": voted.vote, "operation": document})))
}

async fn withdraw(desk: Desk, person: PersonIdentity, Path(id): Path<OperationId>) -> Result<Response> {
    let op = decide::withdraw(&desk, &person, &id).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person(person), &op)})))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Bulk {
    decisions: Vec<BulkItem>,
}

async fn decide_many(desk: Desk, person: PersonIdentity, StrictJson(body): StrictJson<Bulk>) -> Result<Json<Value>> {
    Ok(Json(json!({"results": decide::bulk(&desk, &person, body.decisions).await?})))
}

async fn list_evidence(desk: Desk, principal: Principal, Path(id): Path<OperationId>) -> Result<Json<Value>> {
    let op = operation::get(&desk, &principal, &id).await?;
    let evidence = evidence::of(&mut desk.store.read().await?, op.id()).await?;
    Ok(Json(json!({"evidence": evidence})))
}

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

async fn resolve(
    desk: Desk,
    person: PersonIdentity,
    Path(id): Path<OperationId>,
    StrictJson(body): StrictJson<evidence::ResolutionRequest>,
) -> Result<Response> {
    let op = evidence::resolve(&desk, &person, &id, body).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person(person), &op)})))
}
