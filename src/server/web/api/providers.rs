//! Providers: read by people, changed by admins.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::provider::ProviderName,
    server::{
        config::Secret,
        service::{Desk, callback, catalogue::Saved, error::Result, provider},
        web::{
            auth::{Admin, PersonIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, add)).routes(routes!(read, keep_secrets)).routes(routes!(check))
}

#[utoipa::path(
    get,
    path = "/providers",
    tag = "catalogue",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"providers": provider::all(&desk).await?})))
}

#[utoipa::path(
    get,
    path = "/providers/{name}",
    tag = "catalogue",
    params(("name" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn read(desk: Desk, _: PersonIdentity, Path(name): Path<ProviderName>) -> Result<Json<Value>> {
    Ok(Json(json!({"provider": provider::get(&desk, &name).await?})))
}

#[utoipa::path(
    post,
    path = "/providers",
    tag = "catalogue",
    request_body = Object,
    responses((status = 201, description = "Created", body = Object), (status = 200, description = "Done", body = Object)),
)]
async fn add(desk: Desk, admin: Admin, StrictJson(document): StrictJson<Value>) -> Result<Response> {
    let reply = |view| Json(json!({"provider": view}));
    Ok(match provider::add(&desk, &(&admin).into(), &document).await? {
        Saved::New(view) => (StatusCode::CREATED, reply(view)).into_response(),
        Saved::Same(view) => reply(view).into_response(),
    })
}

/// What changes beside the declaration.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Goes out with every request to the destination; it is sealed at rest and never shown again.
    #[serde(default)]
    credential: Option<String>,
    /// Signs the provider's callbacks: `whsec_` and base64. It is sealed like the credential.
    #[serde(default)]
    callback_secret: Option<String>,
}

#[utoipa::path(
    patch,
    path = "/providers/{name}",
    tag = "catalogue",
    request_body = Change,
    params(("name" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn keep_secrets(
    desk: Desk,
    admin: Admin,
    Path(name): Path<ProviderName>,
    StrictJson(change): StrictJson<Change>,
) -> Result<Json<Value>> {
    let admin = (&admin).into();
    if let Some(credential) = change.credential {
        provider::set_credential(&desk, &admin, &name, Secret(credential)).await?;
    }
    if let Some(secret) = change.callback_secret {
        callback::set_secret(&desk, &admin, &name, Secret(secret)).await?;
    }
    Ok(Json(json!({"provider": provider::get(&desk, &name).await?})))
}

#[utoipa::path(
    post,
    path = "/providers/{name}/check",
    tag = "catalogue",
    params(("name" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn check(desk: Desk, admin: Admin, Path(name): Path<ProviderName>) -> Result<Json<Value>> {
    Ok(Json(json!({"checks": provider::check(&desk, &(&admin).into(), &name).await?})))
}
