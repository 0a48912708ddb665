//! Callbacks of providers: no token and no cookie, only their signature.

use axum::{Json, body::Bytes, http::HeaderMap};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    service::{
        Desk,
        callback::{self, Message},
        error::Result,
    },
    web::{body::Path, state::AppState},
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(take))
}

#[utoipa::path(
    post,
    path = "/callbacks/{provider}",
    tag = "operations",
    request_body = Object,
    params(("provider" = String, Path)),
    responses((status = 200, description = "Taken in: `kept`, `repeated` or `unbound`", body = Object)),
)]
async fn take(desk: Desk, Path(provider): Path<String>, headers: HeaderMap, body: Bytes) -> Result<Json<Value>> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let message = Message {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signatures: header("webhook-signature"),
        body: body.to_vec(),
    };
    Ok(Json(json!({"taken": callback::take(&desk, &provider, message).await?})))
}
