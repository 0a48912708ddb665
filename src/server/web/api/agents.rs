//! Agents and executors: read by people, changed by admins. Tokens are shown once.

use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, patch},
};
use serde_json::{Value, json};

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

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/agents", get(list_agents).post(create_agent))
        .route("/agents/{id}", patch(change_agent))
        .route("/executors", get(list_executors).post(create_executor))
        .route("/executors/{id}", patch(change_executor))
}

async fn list_agents(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"agents": agent::list(&mut desk.store.read().await?).await?})))
}

async fn create_agent(
    desk: Desk,
    admin: Admin,
    StrictJson(new): StrictJson<NewAgent>,
) -> Result<(StatusCode, Json<Value>)> {
    let issued = agents::create_agent(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"agent": issued.principal, "token": issued.token.reveal()}))))
}

async fn change_agent(
    desk: Desk,
    admin: Admin,
    Path(id): Path<AgentId>,
    StrictJson(change): StrictJson<AgentChange>,
) -> Result<Json<Value>> {
    let agent = agents::change_agent(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"agent": agent})))
}

async fn list_executors(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"executors": executor::list(&mut desk.store.read().await?).await?})))
}

async fn create_executor(
    desk: Desk,
    admin: Admin,
    StrictJson(new): StrictJson<NewExecutor>,
) -> Result<(StatusCode, Json<Value>)> {
    let issued = agents::create_executor(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"executor": issued.principal, "token": issued.token.reveal()}))))
}

async fn change_executor(
    desk: Desk,
    admin: Admin,
    Path(id): Path<ExecutorId>,
    StrictJson(change): StrictJson<ExecutorChange>,
) -> Result<Json<Value>> {
    let executor = agents::change_executor(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"executor": executor})))
}
