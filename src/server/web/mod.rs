//! The edge: routes, who is asking, what is believed, and how refusals are said.

pub mod api;
pub mod assets;
pub mod auth;
pub mod body;
mod health;
mod openapi;
pub mod pages;
pub mod problem;
pub mod security;
pub mod session_store;
pub mod state;

use axum::{Router, extract::DefaultBodyLimit, middleware};
pub use health::recorder;
use state::AppState;

/// Every route with everything around it.
pub fn router(state: AppState) -> Router {
    let (api, description) = api::routes();
    Router::new()
        .merge(api)
        .merge(openapi::route(description))
        .merge(health::routes())
        .merge(pages::routes(state.clone()))
        .layer(DefaultBodyLimit::max(state.desk.config.max_body_bytes))
        .layer(session_store::layer(state.desk.clone()))
        .layer(middleware::from_fn_with_state(state.clone(), security::same_origin))
        .layer(middleware::from_fn_with_state(state.clone(), problem::finish))
        .layer(middleware::from_fn_with_state(state.clone(), security::headers))
        .with_state(state)
}
