//! The audit log, for auditors.

use axum::{
    Json,
    body::Body,
    http::header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{
        id::OperationId,
        problem::{Code, Problem},
    },
    server::{
        service::{
            Desk, audit,
            error::{Error, Result},
        },
        web::{auth::Auditor, body::Query, state::AppState},
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(page)).routes(routes!(export)).routes(routes!(checkpoint))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    operation: Option<OperationId>,
    /// Only records below this `seq`.
    cursor: Option<u64>,
    limit: Option<i64>,
}

#[utoipa::path(
    get,
    path = "/audit",
    tag = "audit",
    params(("operation" = Option<String>, Query), ("cursor" = Option<u64>, Query), ("limit" = Option<i64>, Query)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn page(desk: Desk, _: Auditor, Query(page): Query<Page>) -> Result<Json<Value>> {
    if page.cursor.is_some_and(|cursor| i64::try_from(cursor).is_err()) {
        return Err(Problem::new(Code::BadRequest, "`cursor` is no record of this log").into());
    }
    let limit = page.limit.unwrap_or(100).clamp(1, 1000);
    let lines = audit::page(&desk, page.operation.as_ref(), page.cursor, limit).await?;
    let next_cursor = lines.last().map(|line| line.seq).filter(|seq| page.operation.is_none() && *seq > 0);
    let records =
        lines.iter().map(|line| serde_json::from_str(&line.record)).collect::<std::result::Result<Vec<Value>, _>>();
    Ok(Json(json!({"records": records.map_err(Error::internal)?, "next_cursor": next_cursor})))
}

#[utoipa::path(
    get,
    path = "/audit/export",
    tag = "audit",
    responses((status = 200, description = "Done", body = String, content_type = "application/jsonl")),
)]
async fn export(desk: Desk, _: Auditor) -> Result<Response> {
    let lines = audit::export(&desk).await?;
    let headers = [(CONTENT_TYPE, "application/jsonl"), (CONTENT_DISPOSITION, "attachment; filename=\"audit.jsonl\"")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// A checkpoint as a signed note: keep it somewhere else, and pin a later export to it.
#[utoipa::path(
    get,
    path = "/audit/checkpoint",
    tag = "audit",
    responses((status = 200, description = "Done", body = String, content_type = "text/plain")),
)]
async fn checkpoint(desk: Desk, _: Auditor) -> Result<Response> {
    let signed = audit::checkpoint(&desk).await?;
    let signed = signed.ok_or_else(|| Problem::new(Code::NotFound, "The log is empty; there is nothing to sign"))?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], signed.note).into_response())
}
