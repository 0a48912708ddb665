//! What handlers share.

use axum::extract::FromRef;
use tokio_util::sync::CancellationToken;

use crate::server::service::Desk;

#[derive(Clone, FromRef)]
pub struct AppState {
    pub desk: Desk,
    /// Cancelled when the server stops: streams and waits end at once.
    pub stop: CancellationToken,
}
