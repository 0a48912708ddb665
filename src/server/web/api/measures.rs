//! How the desk is doing, and what people's time costs.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    service::{
        Desk,
        error::Result,
        measures::{self, Measures, UnitCosts, Window},
    },
    web::{
        auth::{Admin, PersonIdentity},
        body::{Query, StrictJson},
        state::AppState,
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(read)).routes(routes!(read_costs, set_costs))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Asked {
    #[serde(default)]
    window: Window,
}

#[utoipa::path(
    get,
    path = "/measures",
    tag = "measures",
    params(Asked),
    responses((status = 200, description = "Done", body = Measures)),
)]
async fn read(desk: Desk, _: PersonIdentity, Query(asked): Query<Asked>) -> Result<Json<Measures>> {
    Ok(Json(measures::read(&desk, asked.window).await?))
}

#[derive(Serialize, ToSchema)]
struct UnitCostsReply {
    unit_costs: Option<UnitCosts>,
}

#[utoipa::path(
    get,
    path = "/unit-costs",
    tag = "measures",
    responses((status = 200, description = "Done", body = UnitCostsReply)),
)]
async fn read_costs(desk: Desk, _: PersonIdentity) -> Result<Json<UnitCostsReply>> {
    Ok(Json(UnitCostsReply { unit_costs: measures::unit_costs(&mut desk.store.read().await?).await? }))
}

#[utoipa::path(
    put,
    path = "/unit-costs",
    tag = "measures",
    request_body = UnitCosts,
    responses((status = 200, description = "Done", body = UnitCostsReply)),
)]
async fn set_costs(desk: Desk, admin: Admin, StrictJson(costs): StrictJson<UnitCosts>) -> Result<Json<UnitCostsReply>> {
    Ok(Json(UnitCostsReply { unit_costs: Some(measures::set_unit_costs(&desk, &admin, costs).await?) }))
}
