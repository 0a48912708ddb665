//! People: read by people, changed by admins.

use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, patch},
};
use serde_json::{Value, json};

use crate::{
    model::id::PersonId,
    server::{
        service::{
            Desk,
            account::{self, NewPerson, PersonChange},
            error::Result,
        },
        store::person,
        web::{
            auth::{Admin, PersonIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/people", get(list).post(create)).route("/people/{id}", patch(change))
}

async fn list(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"people": person::list(&mut desk.store.read().await?).await?})))
}

async fn create(desk: Desk, admin: Admin, StrictJson(new): StrictJson<NewPerson>) -> Result<(StatusCode, Json<Value>)> {
    let person = account::create_person(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"person": person}))))
}

async fn change(
    desk: Desk,
    admin: Admin,
    Path(id): Path<PersonId>,
    StrictJson(change): StrictJson<PersonChange>,
) -> Result<Json<Value>> {
    let person = account::change_person(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"person": person})))
}
