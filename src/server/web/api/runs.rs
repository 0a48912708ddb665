//! Runs: started by agents, stopped by themselves, their owners and operators.

use axum::{
    Json,
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{
        id::{ApprovalId, RunId},
        problem::Code,
    },
    server::{
        service::{
            Desk, decide,
            error::{Error, Result},
            run::{self, NewRun, RunView},
            run_approval::{self, NewRunApproval, RunApprovalView},
        },
        web::{
            auth::{AgentIdentity, PersonIdentity, Principal},
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, start))
        .routes(routes!(read))
        .routes(routes!(stop))
        .routes(routes!(approvals, approve))
        .routes(routes!(revoke))
}

#[utoipa::path(
    post,
    path = "/runs",
    tag = "runs",
    request_body = NewRun,
    responses((status = 201, description = "Created", body = Object)),
)]
async fn start(
    desk: Desk,
    agent: AgentIdentity,
    StrictJson(new): StrictJson<NewRun>,
) -> Result<(StatusCode, Json<Value>)> {
    let issued = run::start(&desk, &agent, new).await?;
    let view = RunView::new(issued.principal, desk.now());
    Ok((StatusCode::CREATED, Json(json!({"run": view, "token": issued.token.reveal()}))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    cursor: Option<RunId>,
    limit: Option<i64>,
}

const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 200;

#[utoipa::path(
    get,
    path = "/runs",
    tag = "runs",
    params(("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list(desk: Desk, principal: Principal, Query(page): Query<Page>) -> Result<Json<Value>> {
    let limit = page.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let mut runs = run::list(&desk, &principal, page.cursor.as_ref(), limit + 1).await?;
    let is_last = runs.len() as i64 <= limit;
    runs.truncate(limit as usize);
    let next_cursor = runs.last().filter(|_| !is_last).map(|run| run.id.clone());
    let now = desk.now();
    let runs: Vec<_> = runs.into_iter().map(|run| RunView::new(run, now)).collect();
    Ok(Json(json!({"runs": runs, "next_cursor": next_cursor})))
}

#[utoipa::path(
    get,
    path = "/runs/{id}",
    tag = "runs",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn read(desk: Desk, principal: Principal, Path(id): Path<RunId>) -> Result<Json<Value>> {
    let run = run::get(&desk, &principal, &id).await?;
    Ok(Json(json!({"run": RunView::new(run, desk.now())})))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Stop {
    reason: Reason,
}

#[derive(Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(min_length = 1, max_length = 1000)]
pub(super) struct Reason(pub(super) String);

impl TryFrom<String> for Reason {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, &'static str> {
        if text.trim().is_empty() || text.chars().count() > 1000 {
            Err("a reason has 1 to 1000 characters")
        } else {
            Ok(Self(text))
        }
    }
}

#[utoipa::path(
    post,
    path = "/runs/{id}/stop",
    tag = "runs",
    request_body = Stop,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn stop(
    desk: Desk,
    principal: Principal,
    Path(id): Path<RunId>,
    StrictJson(body): StrictJson<Stop>,
) -> Result<Json<Value>> {
    let run = run::stop(&desk, &principal, &id, body.reason.0).await?;
    Ok(Json(json!({"run": RunView::new(run, desk.now())})))
}

/// Whoever approves a run's scope: people alone. A program that tries is refused, and that is on record.
struct Granter(PersonIdentity);

impl FromRequestParts<AppState> for Granter {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> std::result::Result<Self, Error> {
        match <PersonIdentity as FromRequestParts<_>>::from_request_parts(parts, state).await {
            Err(Error::Refused(problem)) if problem.code == Code::HumansOnly => {
                let program = Principal::from_request_parts(parts, state).await?;
                decide::refuse_program(&state.desk, &program, None, &problem).await;
                Err(problem.into())
            }
            other => other.map(Self),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct RunApprovalReply {
    approval: RunApprovalView,
}

#[derive(Serialize, ToSchema)]
struct RunApprovalList {
    approvals: Vec<RunApprovalView>,
}

#[utoipa::path(
    post,
    path = "/runs/{id}/approvals",
    tag = "runs",
    request_body = NewRunApproval,
    params(("id" = String, Path)),
    responses((status = 201, description = "Created", body = RunApprovalReply)),
)]
async fn approve(
    desk: Desk,
    Granter(person): Granter,
    Path(id): Path<RunId>,
    StrictJson(body): StrictJson<NewRunApproval>,
) -> Result<(StatusCode, Json<RunApprovalReply>)> {
    let record = run_approval::grant(&desk, &person, &id, body).await?;
    Ok((StatusCode::CREATED, Json(RunApprovalReply { approval: RunApprovalView::new(record, desk.now()) })))
}

#[utoipa::path(
    get,
    path = "/runs/{id}/approvals",
    tag = "runs",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = RunApprovalList)),
)]
async fn approvals(desk: Desk, principal: Principal, Path(id): Path<RunId>) -> Result<Json<RunApprovalList>> {
    let now = desk.now();
    let records = run_approval::list(&desk, &principal, &id).await?;
    Ok(Json(RunApprovalList {
        approvals: records.into_iter().map(|record| RunApprovalView::new(record, now)).collect(),
    }))
}

#[utoipa::path(
    delete,
    path = "/runs/{id}/approvals/{approval}",
    tag = "runs",
    params(("id" = String, Path), ("approval" = String, Path)),
    responses((status = 200, description = "Done", body = RunApprovalReply)),
)]
async fn revoke(
    desk: Desk,
    Granter(person): Granter,
    Path((id, approval)): Path<(RunId, ApprovalId)>,
) -> Result<Json<RunApprovalReply>> {
    let record = run_approval::revoke(&desk, &person, &id, &approval).await?;
    Ok(Json(RunApprovalReply { approval: RunApprovalView::new(record, desk.now()) }))
}
