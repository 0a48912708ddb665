//! The HTTP API: thin adapters over the services, one file per word.

mod agents;
mod audit;
mod callbacks;
mod cases;
mod catalogue;
mod change_sets;
mod conflict_map;
mod conflicts;
mod events;
mod leases;
mod me;
mod measures;
mod operations;
mod people;
mod providers;
mod resource_rules;
mod resources;
mod runs;
mod session;
mod settings;

pub use session::user_agent;

use std::fmt::Display;

use axum::{
    Json, Router,
    http::header::LINK,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::{auth::Principal, openapi, state::AppState};
use crate::{
    model::problem::{Code, Problem},
    server::service::{Desk, error::Error},
};

/// Everything under `/api/v1`, and its description.
pub fn routes() -> (Router<AppState>, OpenApi) {
    let described = OpenApiRouter::new()
        .merge(agents::routes())
        .merge(audit::routes())
        .merge(callbacks::routes())
        .merge(cases::routes())
        .merge(catalogue::routes())
        .merge(change_sets::routes())
        .merge(conflicts::routes())
        .merge(conflict_map::routes())
        .merge(events::routes())
        .merge(leases::routes())
        .merge(me::routes())
        .merge(measures::routes())
        .merge(operations::routes())
        .merge(people::routes())
        .merge(providers::routes())
        .merge(resource_rules::routes())
        .merge(resources::routes())
        .merge(runs::routes())
        .merge(session::routes())
        .merge(settings::routes());
    let (router, description) = described.split_for_parts();
    // Inside the nest: the desk's pages have fallbacks of their own.
    let router = router.fallback(unknown_route).method_not_allowed_fallback(wrong_method);
    let description = OpenApi::default().nest("/api/v1", description);
    (Router::new().nest("/api/v1", router), openapi::finish(description))
}

/// Strangers are not told which addresses exist.
async fn unknown_route(_: Principal) -> Error {
    Problem::new(Code::NotFound, "the API has no such address").into()
}

async fn wrong_method(_: Principal) -> Error {
    Problem::new(Code::MethodNotAllowed, "see `Allow` for the methods this address takes").into()
}

/// One page of a list, with the `Link` to the next one (RFC 8288): the same question, from where this page ends.
fn list_page(desk: &Desk, list: &str, asked: Option<&str>, next: Option<impl Display>, body: Value) -> Response {
    let Some(cursor) = next else { return Json(body).into_response() };
    let kept = asked.unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    let query: String = kept.map(|pair| format!("{pair}&")).collect();
    let next = format!("<{}/api/v1/{list}?{query}cursor={cursor}>; rel=\"next\"", desk.config.public_url);
    ([(LINK, next)], Json(body)).into_response()
}
