//! Agents and executors: read by people, changed by admins. Tokens are shown once.

use axum::{Json, http::StatusCode};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::id::{AgentId, ExecutorId},
    server::{
        service::{
            Desk,
            agents::{self, AgentChange, ExecutorChange, NewAgent, NewExecutor},
            error::Result,
        },
        store::{agent, executor},
        web::{
            auth::{Admin, PersonIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_agents, create_agent))
        .routes(routes!(change_agent))
        .routes(routes!(list_executors, create_executor))
        .routes(routes!(change_executor))
}

#[utoipa::path(
    get,
    path = "/agents",
    tag = "agents",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list_agents(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"agents": agent::list(&mut desk.store.read().await?).await?})))
}

#[utoipa::path(
    post,
    path = "/agents",
    tag = "agents",
    request_body = NewAgent,
    responses((status = 201, description = "Created", body = Object)),
)]
async fn create_agent(
    desk: Desk,
    admin: Admin,
    StrictJson(new): StrictJson<NewAgent>,
) -> Result<(StatusCode, Json<Value>)> {
    let issued = agents::create_agent(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"agent": issued.principal, "token": issued.token.reveal()}))))
}

#[utoipa::path(
    patch,
    path = "/agents/{id}",
    tag = "agents",
    request_body = AgentChange,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn change_agent(
    desk: Desk,
    admin: Admin,
    Path(id): Path<AgentId>,
    StrictJson(change): StrictJson<AgentChange>,
) -> Result<Json<Value>> {
    let agent = agents::change_agent(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"agent": agent})))
}

#[utoipa::path(
    get,
    path = "/executors",
    tag = "agents",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list_executors(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"executors": executor::list(&mut desk.store.read().await?).await?})))
}

#[utoipa::path(
    post,
    path = "/executors",
    tag = "agents",
    request_body = NewExecutor,
    responses((status = 201, description = "Created", body = Object)),
)]
async fn create_executor(
    desk: Desk,
    admin: Admin,
    StrictJson(new): StrictJson<NewExecutor>,
) -> Result<(StatusCode, Json<Value>)> {
    let issued = agents::create_executor(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"executor": issued.principal, "token": issued.token.reveal()}))))
}

#[utoipa::path(
    patch,
    path = "/executors/{id}",
    tag = "agents",
    request_body = ExecutorChange,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn change_executor(
    desk: Desk,
    admin: Admin,
    Path(id): Path<ExecutorId>,
    StrictJson(change): StrictJson<ExecutorChange>,
) -> Result<Json<Value>> {
    let executor = agents::change_executor(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"executor": executor})))
}
