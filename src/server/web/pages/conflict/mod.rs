//! Conflicts: refused writes, and the pages on which people find the way on.

mod list;
mod sheet;

use axum::{
    Router,
    response::Redirect,
    routing::{get, post},
};

use crate::{
    model::id::ConflictId,
    server::web::{body::Path, state::AppState},
};

pub fn routes() -> Router<AppState> {
    // After signing in again the browser is sent to where it posted.
    let back = |Path(id): Path<ConflictId>| async move { Redirect::to(&address(&id)) };
    Router::new()
        .route("/conflicts", get(list::show))
        .route("/conflicts/{id}", get(sheet::show))
        .route("/conflicts/{id}/replan", post(sheet::replan).get(back))
        .route("/conflicts/{id}/accept", post(sheet::accept).get(back))
        .route("/conflicts/{id}/dismiss", post(sheet::dismiss).get(back))
}

pub fn address(id: &ConflictId) -> String {
    format!("/conflicts/{id}")
}
