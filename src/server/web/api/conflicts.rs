//! Conflicts: read and decided.

use axum::{
    Json,
    extract::RawQuery,
    http::header::ETAG,
    response::{IntoResponse, Response},
};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{document::OperationDoc, etag, id::ConflictId},
    server::{
        service::{
            Desk,
            conflict::{self, ConflictDoc, ConflictLine, ListQuery, ResolveRequest},
            error::Result,
        },
        web::{
            api::operations::document,
            auth::Principal,
            body::{Path, Query, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read)).routes(routes!(resolve))
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ConflictPage {
    conflicts: Vec<ConflictLine>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ConflictReply {
    conflict: ConflictDoc,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ResolvedReply {
    conflict: ConflictDoc,
    operation: OperationDoc,
}

#[utoipa::path(
    get,
    path = "/conflicts",
    tag = "conflicts",
    params(ListQuery),
    responses((status = 200, description = "Done", body = ConflictPage)),
)]
async fn list(
    desk: Desk,
    principal: Principal,
    Query(query): Query<ListQuery>,
    RawQuery(raw): RawQuery,
) -> Result<Response> {
    let (conflicts, next) = conflict::list(&desk, &principal, query).await?;
    let body = json!({"conflicts": conflicts, "next_cursor": next});
    Ok(super::list_page(&desk, "conflicts", raw.as_deref(), next, body))
}

#[utoipa::path(
    get,
    path = "/conflicts/{id}",
    tag = "conflicts",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = ConflictReply)),
)]
async fn read(desk: Desk, principal: Principal, Path(id): Path<ConflictId>) -> Result<Response> {
    let (conflict, _) = conflict::read(&desk, &principal, &id).await?;
    Ok(Json(json!({"conflict": conflict})).into_response())
}

#[utoipa::path(
    post,
    path = "/conflicts/{id}/resolution",
    tag = "conflicts",
    request_body = ResolveRequest,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = ResolvedReply)),
)]
async fn resolve(
    desk: Desk,
    principal: Principal,
    Path(id): Path<ConflictId>,
    StrictJson(body): StrictJson<ResolveRequest>,
) -> Result<Response> {
    conflict::resolve(&desk, &principal, &id, body).await?;
    let (conflict, op) = conflict::read(&desk, &principal, &id).await?;
    let body = json!({"conflict": conflict, "operation": document(&desk, &principal, &op)});
    Ok(([(ETAG, etag::of(op.life.version))], Json(body)).into_response())
}
