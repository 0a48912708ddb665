//! The pause.

use axum::{Json, http::StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    service::{Desk, error::Result, operation, settings},
    web::{
        auth::{Admin, Principal},
        body::StrictJson,
        state::AppState,
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(pause, read, resume))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PauseRequest {
    reason: String,
}

#[utoipa::path(
    post,
    path = "/pause",
    tag = "settings",
    request_body = PauseRequest,
    responses((status = 200, description = "Done", body = Object)),
)]
async fn pause(desk: Desk, admin: Admin, StrictJson(body): StrictJson<PauseRequest>) -> Result<Json<Value>> {
    Ok(Json(json!({"pause": settings::pause(&desk, &admin, body.reason).await?})))
}

#[utoipa::path(
    get,
    path = "/pause",
    tag = "settings",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn read(desk: Desk, _: Principal) -> Result<Json<Value>> {
    Ok(Json(json!({"pause": operation::pause(&mut desk.store.read().await?).await?})))
}

#[utoipa::path(
    delete,
    path = "/pause",
    tag = "settings",
    responses((status = 204, description = "Done")),
)]
async fn resume(desk: Desk, admin: Admin) -> Result<StatusCode> {
    settings::resume(&desk, &admin).await?;
    Ok(StatusCode::NO_CONTENT)
}
