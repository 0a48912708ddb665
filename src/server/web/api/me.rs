//! Who the caller is.

use axum::Json;
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    service::{Desk, run::RunView},
    web::{auth::Principal, state::AppState},
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(me))
}

#[utoipa::path(
    get,
    path = "/me",
    tag = "me",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn me(desk: Desk, principal: Principal) -> Json<Value> {
    Json(match principal {
        Principal::Person(person) => json!({
            "kind": "person",
            "person": person.person(),
            "session": {"id": person.session(), "signed_in_at": person.signed_in_at(), "stepped_up_until": person.stepped_up_until()},
        }),
        Principal::Agent(agent) => json!({"kind": "agent", "agent": agent.agent()}),
        Principal::Run(run) => json!({"kind": "run", "run": RunView::new(run.run().clone(), desk.now())}),
        Principal::Executor(executor) => json!({"kind": "executor", "executor": executor.executor()}),
    })
}
