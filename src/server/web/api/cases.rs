//! Who looks into an unknown outcome.

use axum::response::Response;
use serde_json::json;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::operations::{OperationReply, document, with_etag};
use crate::{
    model::id::OperationId,
    server::{
        service::{
            Desk,
            case::{self, Assignment},
            error::Result,
        },
        web::{
            auth::{Operator, Principal},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(assign))
}

#[utoipa::path(
    post,
    path = "/operations/{id}/case",
    tag = "operations",
    request_body = Assignment,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = OperationReply)),
)]
async fn assign(
    desk: Desk,
    operator: Operator,
    Path(id): Path<OperationId>,
    StrictJson(assignment): StrictJson<Assignment>,
) -> Result<Response> {
    let op = case::assign(&desk, &operator, &id, assignment).await?;
    Ok(with_etag(&op, json!({"operation": document(&desk, &Principal::Person((*operator).clone()), &op)})))
}
