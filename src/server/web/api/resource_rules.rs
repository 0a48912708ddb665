//! Rules about documents: read by people, changed by admins.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{id::ResourceRuleId, resource::ResourceRule},
    server::{
        service::{
            Desk,
            catalogue::Saved,
            error::Result,
            resource::rules::{self, RuleView},
        },
        web::{
            auth::{Admin, PersonIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, put)).routes(routes!(remove))
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct RuleList {
    /// The rule as it was given, with `id`, `version`, `created_by` and `created_at`.
    #[schema(value_type = Vec<Object>)]
    rules: Vec<RuleView>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct RuleReply {
    /// As in the list.
    #[schema(value_type = Object)]
    rule: RuleView,
}

#[utoipa::path(
    get,
    path = "/resource-rules",
    tag = "resources",
    responses((status = 200, description = "Done", body = RuleList)),
)]
async fn list(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"rules": rules::list(&desk).await?})))
}

#[utoipa::path(
    post,
    path = "/resource-rules",
    tag = "resources",
    request_body = ResourceRule,
    responses((status = 201, description = "In force; a rule of the same scope got a new version", body = RuleReply), (status = 200, description = "It was in force already", body = RuleReply)),
)]
async fn put(desk: Desk, admin: Admin, StrictJson(document): StrictJson<Value>) -> Result<Response> {
    Ok(match rules::put(&desk, &(&admin).into(), &document).await? {
        Saved::New(rule) => (StatusCode::CREATED, Json(json!({"rule": rule}))).into_response(),
        Saved::Same(rule) => Json(json!({"rule": rule})).into_response(),
    })
}

#[utoipa::path(
    delete,
    path = "/resource-rules/{id}",
    tag = "resources",
    params(("id" = String, Path)),
    responses((status = 204, description = "Out of force")),
)]
async fn remove(desk: Desk, admin: Admin, Path(id): Path<ResourceRuleId>) -> Result<StatusCode> {
    rules::remove(&desk, &(&admin).into(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
