//! The conflict map and write sets.

use axum::Json;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    service::{
        Desk,
        conflict_map::{self, MapView, PlannedSet, PlannedView},
        error::Result,
        ownership::{self, WriteSetAnswer, WriteSetQuestion},
    },
    web::{auth::Principal, body::StrictJson, state::AppState},
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(map)).routes(routes!(check)).routes(routes!(check_write_set))
}

#[utoipa::path(
    get,
    path = "/conflict-map",
    tag = "runs",
    responses((status = 200, description = "Done", body = MapView)),
)]
async fn map(desk: Desk, principal: Principal) -> Result<Json<MapView>> {
    Ok(Json(conflict_map::map(&desk, &principal).await?))
}

#[utoipa::path(
    post,
    path = "/conflict-map/check",
    tag = "runs",
    request_body = PlannedSet,
    responses((status = 200, description = "Done", body = PlannedView)),
)]
async fn check(desk: Desk, principal: Principal, StrictJson(set): StrictJson<PlannedSet>) -> Result<Json<PlannedView>> {
    Ok(Json(conflict_map::check(&desk, &principal, set).await?))
}

#[utoipa::path(
    post,
    path = "/write-sets/check",
    tag = "runs",
    request_body = WriteSetQuestion,
    responses((status = 200, description = "The run may write this", body = WriteSetAnswer)),
)]
async fn check_write_set(
    desk: Desk,
    principal: Principal,
    StrictJson(question): StrictJson<WriteSetQuestion>,
) -> Result<Json<WriteSetAnswer>> {
    Ok(Json(ownership::check(&desk, &principal, question).await?))
}
