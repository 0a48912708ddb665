//! The desk: pages rendered on the server, complete without scripts.
//!
//! A page is a handler: who is asking ([`render::Visitor`]), what to show (`service::desk`), a view, a status. Forms
//! post to routes of their own, which call the services that the API calls, and answer with a redirect; a refusal
//! renders the page again with what was typed.

mod audit;
mod bulk;
mod change_set;
mod charts;
mod conflict;
pub mod error;
pub mod fields;
mod leases;
mod map;
mod on_call;
mod operation;
pub mod parts;
mod plans;
mod problems;
mod queue;
pub mod render;
mod resources;
mod run_approvals;
mod runs;
mod settings;
mod setup;
pub mod shell;
mod sign_in;
mod three;
mod unknown;
mod work;

use axum::{
    Router,
    extract::{FromRequestParts, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tower_http::compression::CompressionLayer;

use super::{
    assets,
    problem::{Asker, HTML, dress},
    state::AppState,
};
use crate::{
    model::{
        id::CorrelationId,
        problem::{Code, Problem},
    },
    server::service::error::Error,
};
use render::Passer;

/// Every page, and what pages load.
pub fn routes(state: AppState) -> Router<AppState> {
    Router::new()
        .merge(queue::routes())
        .merge(bulk::routes())
        .merge(change_set::routes())
        .merge(runs::routes())
        .merge(conflict::routes())
        .merge(resources::routes())
        .merge(leases::routes())
        .merge(map::routes())
        .merge(on_call::routes())
        .merge(settings::routes())
        .merge(sign_in::routes())
        .merge(unknown::routes())
        .merge(setup::routes())
        .merge(audit::routes())
        .merge(operation::routes())
        .merge(problems::routes())
        .fallback(unknown_page)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(state, refusals))
        .merge(assets::routes())
        .layer(CompressionLayer::new())
}

async fn unknown_page() -> Error {
    Problem::new(Code::NotFound, "there is no such page").into()
}

async fn wrong_method() -> Error {
    Problem::new(Code::MethodNotAllowed, "this address is not for that").into()
}

/// Turns what a page's handler refuses into a page, with the bar of whoever is signed in. Programs get the document that
/// the rest of the desk gives them.
async fn refusals(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut asked = parts.clone();
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if matches!(Asker::of(&asked.uri, &asked.headers), Asker::Program) {
        return response;
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    match Passer::from_request_parts(&mut asked, &state).await {
        Ok(passer) => {
            let page = error::page(&passer, &problem, asked.extensions.get::<CorrelationId>(), &asked.uri);
            dress(&problem, response, HTML, page.into_html())
        }
        // Whatever keeps us from knowing the reader, the first refusal is what is told.
        Err(_) => Error::from(problem).into_response(),
    }
}
