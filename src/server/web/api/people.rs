//! People: read by people, changed by admins.

use axum::{Json, http::StatusCode};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

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

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(change))
}

#[utoipa::path(
    get,
    path = "/people",
    tag = "people",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list(desk: Desk, _: PersonIdentity) -> Result<Json<Value>> {
    Ok(Json(json!({"people": person::list(&mut desk.store.read().await?).await?})))
}

#[utoipa::path(
    post,
    path = "/people",
    tag = "people",
    request_body = NewPerson,
    responses((status = 201, description = "Created", body = Object)),
)]
async fn create(desk: Desk, admin: Admin, StrictJson(new): StrictJson<NewPerson>) -> Result<(StatusCode, Json<Value>)> {
    let person = account::create_person(&desk, &(&admin).into(), new).await?;
    Ok((StatusCode::CREATED, Json(json!({"person": person}))))
}

#[utoipa::path(
    patch,
    path = "/people/{id}",
    tag = "people",
    request_body = PersonChange,
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = Object)),
)]
async fn change(
    desk: Desk,
    admin: Admin,
    Path(id): Path<PersonId>,
    StrictJson(change): StrictJson<PersonChange>,
) -> Result<Json<Value>> {
    let person = account::change_person(&desk, &(&admin).into(), id, change).await?;
    Ok(Json(json!({"person": person})))
}
