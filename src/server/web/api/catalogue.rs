//! Kinds and policies: read by people, changed by admins.

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header::ETAG, header::IF_MATCH},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{
        etag::{self, Tags},
        kind::KindName,
        problem::{Code, Problem},
    },
    server::{
        service::{
            Desk,
            catalogue::{self, MatchAnswer, MatchQuestion, PolicyView, Saved},
            error::Result,
        },
        web::{
            auth::{Admin, PersonIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_kinds, add_kind))
        .routes(routes!(read_kind))
        .routes(routes!(read_policy, change_policy))
        .routes(routes!(match_rule))
}

#[utoipa::path(
    get,
    path = "/kinds",
    tag = "catalogue",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list_kinds(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"kinds": catalogue::all_kinds(&desk).await?})))
}

#[utoipa::path(
    get,
    path = "/kinds/{name}",
    tag = "catalogue",
    params(("name" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn read_kind(desk: Desk, _: PersonIdentity, Path(name): Path<KindName>) -> Result<Json<Value>> {
    Ok(Json(json!({"kind": catalogue::newest_kind(&desk, &name).await?})))
}

#[utoipa::path(
    post,
    path = "/kinds",
    tag = "catalogue",
    request_body = Object,
    responses((status = 201, description = "Created", body = Object), (status = 200, description = "Done", body = Object)),
)]
async fn add_kind(desk: Desk, admin: Admin, StrictJson(document): StrictJson<Value>) -> Result<Response> {
    let saved = catalogue::add_kind(&desk, &(&admin).into(), &document).await?;
    Ok(reply(saved.map(|kind| Json(json!({"kind": kind})).into_response())))
}

fn reply(saved: Saved<Response>) -> Response {
    match saved {
        Saved::New(response) => (StatusCode::CREATED, response).into_response(),
        Saved::Same(response) => response,
    }
}

fn policy_document(policy: PolicyView) -> Response {
    ([(ETAG, etag::of(policy.version))], Json(json!({"policy": policy}))).into_response()
}

#[utoipa::path(
    get,
    path = "/policies",
    tag = "catalogue",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn read_policy(desk: Desk, _: PersonIdentity) -> Result<Response> {
    Ok(policy_document(catalogue::policy_in_force(&desk).await?))
}

#[utoipa::path(
    post,
    path = "/policies",
    tag = "catalogue",
    request_body = Object,
    params(("If-Match" = Option<String>, Header, description = "The version that was edited")),
    responses((status = 201, description = "Created", body = Object), (status = 200, description = "Done", body = Object)),
)]
async fn change_policy(
    desk: Desk,
    admin: Admin,
    headers: HeaderMap,
    StrictJson(document): StrictJson<Value>,
) -> Result<Response> {
    let edited = match etag::parse(headers.get_all(IF_MATCH).iter().map(|value| value.as_bytes()))? {
        None | Some(Tags::Any) => None,
        Some(tags) => Some(tags.versions().first().copied().ok_or_else(|| {
            Problem::new(Code::StaleVersion, "no tag in `If-Match` is a strong tag of ours; nothing was saved")
        })?),
    };
    let saved = catalogue::change_policy(&desk, &(&admin).into(), &document, edited).await?;
    Ok(reply(saved.map(policy_document)))
}

#[utoipa::path(
    post,
    path = "/policies/match",
    tag = "catalogue",
    request_body = Object,
    responses((status = 200, description = "Done", body = Object)),
)]
async fn match_rule(
    desk: Desk,
    _: PersonIdentity,
    StrictJson(question): StrictJson<MatchQuestion>,
) -> Result<Json<MatchAnswer>> {
    Ok(Json(catalogue::match_rule(&desk, &question).await?))
}
