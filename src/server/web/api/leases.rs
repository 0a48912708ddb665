//! Leases and fences.

use axum::{Json, http::StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::runs::Reason;
use crate::{
    model::{id::LeaseId, target::Target},
    server::{
        service::{
            Desk,
            claim::Worker,
            error::Result,
            lease::{self, Acquired, FenceRequest, LeaseRequest, LeaseView, RenewRequest},
        },
        web::{
            auth::{Operator, Principal, RunIdentity},
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, acquire))
        .routes(routes!(renew))
        .routes(routes!(release))
        .routes(routes!(force_release))
        .routes(routes!(check_fence))
}

#[derive(Serialize, ToSchema)]
struct LeaseReply {
    lease: LeaseView,
}

fn reply(desk: &Desk, named: crate::server::store::lease::Named) -> Json<LeaseReply> {
    Json(LeaseReply { lease: LeaseView::new(named, desk.now()) })
}

#[utoipa::path(
    post,
    path = "/leases",
    tag = "leases",
    request_body = LeaseRequest,
    responses((status = 201, description = "Acquired", body = LeaseReply), (status = 200, description = "The caller holds it already", body = LeaseReply)),
)]
async fn acquire(
    desk: Desk,
    run: RunIdentity,
    StrictJson(body): StrictJson<LeaseRequest>,
) -> Result<(StatusCode, Json<LeaseReply>)> {
    Ok(match lease::acquire(&desk, &run, body).await? {
        Acquired::New(lease) => (StatusCode::CREATED, reply(&desk, lease)),
        Acquired::Same(lease) => (StatusCode::OK, reply(&desk, lease)),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    resource: Option<Target>,
    cursor: Option<LeaseId>,
    limit: Option<i64>,
}

const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 200;

#[derive(Serialize, ToSchema)]
struct LeasePage {
    leases: Vec<LeaseView>,
    #[schema(value_type = Option<String>)]
    next_cursor: Option<LeaseId>,
}

#[utoipa::path(
    get,
    path = "/leases",
    tag = "leases",
    params(("resource" = Option<String>, Query), ("cursor" = Option<String>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, description = "Live leases, the newest first", body = LeasePage)),
)]
async fn list(desk: Desk, principal: Principal, Query(page): Query<Page>) -> Result<Json<LeasePage>> {
    let limit = page.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let mut leases = lease::list(&desk, &principal, page.resource.as_ref(), page.cursor.as_ref(), limit + 1).await?;
    let is_last = leases.len() as i64 <= limit;
    leases.truncate(limit as usize);
    let next_cursor = leases.last().filter(|_| !is_last).map(|lease| lease.id.clone());
    Ok(Json(LeasePage { leases, next_cursor }))
}

#[utoipa::path(
    post,
    path = "/leases/{id}/renew",
    tag = "leases",
    request_body = RenewRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = LeaseReply)),
)]
async fn renew(
    desk: Desk,
    run: RunIdentity,
    Path(id): Path<LeaseId>,
    StrictJson(body): StrictJson<RenewRequest>,
) -> Result<Json<LeaseReply>> {
    let lease = lease::renew(&desk, &run, &id, body).await?;
    Ok(reply(&desk, lease))
}

#[utoipa::path(
    delete,
    path = "/leases/{id}",
    tag = "leases",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = LeaseReply)),
)]
async fn release(desk: Desk, run: RunIdentity, Path(id): Path<LeaseId>) -> Result<Json<LeaseReply>> {
    let lease = lease::release(&desk, &run, &id).await?;
    Ok(reply(&desk, lease))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ForceRelease {
    reason: Reason,
}

#[utoipa::path(
    post,
    path = "/leases/{id}/force-release",
    tag = "leases",
    request_body = ForceRelease,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = LeaseReply)),
)]
async fn force_release(
    desk: Desk,
    operator: Operator,
    Path(id): Path<LeaseId>,
    StrictJson(body): StrictJson<ForceRelease>,
) -> Result<Json<LeaseReply>> {
    let lease = lease::force_release(&desk, &operator, &id, body.reason.0).await?;
    Ok(reply(&desk, lease))
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct FenceReply {
    ok: bool,
    resource: String,
    fencing_token: i64,
    /// The last token handed out for the resource.
    highest: i64,
}

#[utoipa::path(
    post,
    path = "/fences/check",
    tag = "leases",
    request_body = FenceRequest,
    responses((status = 200, description = "The write may go ahead", body = FenceReply)),
)]
async fn check_fence(desk: Desk, worker: Worker, StrictJson(body): StrictJson<FenceRequest>) -> Result<Json<Value>> {
    let highest = lease::check_fence(&desk, &worker, body.clone()).await?;
    let FenceRequest { resource, fencing_token } = body;
    Ok(Json(json!({"ok": true, "resource": resource, "fencing_token": fencing_token, "highest": highest})))
}
