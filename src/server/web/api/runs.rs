//! Runs: started by agents, stopped by themselves, their owners and operators.

use axum::{Json, http::StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::id::RunId,
    server::{
        service::{
            Desk,
            error::Result,
            run::{self, NewRun, RunView},
        },
        web::{
            auth::{AgentIdentity, Principal},
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, start)).routes(routes!(read)).routes(routes!(stop))
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
