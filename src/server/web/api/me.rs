//! Who the caller is.

use axum::{Json, Router, routing::get};
use serde_json::{Value, json};

use crate::server::{
    service::{Desk, run::RunView},
    web::{auth::Principal, state::AppState},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/me", get(me))
}

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
