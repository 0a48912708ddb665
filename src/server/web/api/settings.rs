//! The pause.

use axum::{Json, Router, http::StatusCode, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{
    service::{Desk, error::Result, operation, settings},
    web::{
        auth::{Admin, Principal},
        body::StrictJson,
        state::AppState,
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/pause", post(pause).delete(resume).get(read))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseRequest {
    reason: String,
}

async fn pause(desk: Desk, admin: Admin, StrictJson(body): StrictJson<PauseRequest>) -> Result<Json<Value>> {
    Ok(Json(json!({"pause": settings::pause(&desk, &admin, body.reason).await?})))
}

async fn read(desk: Desk, _: Principal) -> Result<Json<Value>> {
    Ok(Json(json!({"pause": operation::pause(&mut desk.store.read().await?).await?})))
}

async fn resume(desk: Desk, admin: Admin) -> Result<StatusCode> {
    settings::resume(&desk, &admin).await?;
    Ok(StatusCode::NO_CONTENT)
}
