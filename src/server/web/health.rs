//! Is it up, is it ready, how is it doing.

use std::sync::OnceLock;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::{
    auth::{ClientAddress, bearer},
    state::AppState,
};
use crate::{
    model::problem::{Code, Problem},
    server::{
        ids,
        service::{
            Desk,
            error::{Error, Result},
            measures,
        },
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(metrics))
}

async fn alive() -> &'static str {
    "ok\n"
}

/// Ready while the database answers and the server is not stopping.
async fn ready(State(state): State<AppState>) -> Result<&'static str> {
    if state.stop.is_cancelled() {
        return Err(Error::Unavailable);
    }
    state.desk.store.ping().await?;
    Ok("ready\n")
}

/// To clients on this machine, or whoever brings the token. A proxy on this machine speaks for others, so what it
/// forwards needs the token.
async fn metrics(desk: Desk, ClientAddress(peer): ClientAddress, headers: HeaderMap) -> Result<Response> {
    let is_forwarded = headers.contains_key("forwarded") || headers.contains_key("x-forwarded-for");
    let is_local = peer.is_loopback() && !is_forwarded;
    let has_token = match (&desk.config.metrics_token, bearer(&headers)) {
        // Hashes are compared: how long it takes tells nothing about the token.
        (Some(token), Some(given)) => ids::hash(&token.0) == ids::hash(given),
        _ => false,
    };
    if !is_local && !has_token {
        return Err(Problem::new(Code::Unauthenticated, "the measures take the token of the metrics").into());
    }
    let mut text = measures::exposition(&desk).await?;
    if let Some(handle) = recorder() {
        handle.run_upkeep();
        text.push_str(&handle.render());
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// The process's recorder, installed on first use.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE.get_or_init(|| PrometheusBuilder::new().install_recorder().ok()).as_ref()
}
