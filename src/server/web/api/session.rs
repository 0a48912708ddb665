//! Signing in and out.

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header::USER_AGENT},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_sessions::Session;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{
        id::SessionId,
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        service::{
            Desk, account,
            error::{Error, Result},
        },
        store::session,
        web::{
            auth::{Anonymous, ClientAddress, PersonIdentity, STEP_UP_MS},
            body::{Path, StrictJson},
            session_store,
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(sign_in, sign_out))
        .routes(routes!(step_up))
        .routes(routes!(list))
        .routes(routes!(revoke))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    name: String,
    password: String,
}

#[utoipa::path(
    post,
    path = "/session",
    tag = "session",
    request_body = SignIn,
    responses((status = 200, description = "Done", body = Object)),
)]
async fn sign_in(
    desk: Desk,
    origin: Anonymous,
    ClientAddress(address): ClientAddress,
    session: Session,
    headers: HeaderMap,
    StrictJson(body): StrictJson<SignIn>,
) -> Result<Json<Value>> {
    let by = origin.by("sign-in");
    let person = account::check_password(&desk, &body.name, body.password, address, by.clone()).await?;
    session_store::sign_in(&session, &person, user_agent(&headers), desk.now(), by).await?;
    Ok(Json(json!({"person": person})))
}

/// What the browser calls itself, for the list of sessions.
pub fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[utoipa::path(
    delete,
    path = "/session",
    tag = "session",
    responses((status = 204, description = "Done")),
)]
async fn sign_out(desk: Desk, session: Session, person: PersonIdentity) -> Result<StatusCode> {
    session_store::sign_out(&desk, &session, &person).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct StepUp {
    password: String,
}

#[utoipa::path(
    post,
    path = "/session/step-up",
    tag = "session",
    request_body = StepUp,
    responses((status = 200, description = "Done", body = Object)),
)]
async fn step_up(
    desk: Desk,
    ClientAddress(address): ClientAddress,
    session: Session,
    person: PersonIdentity,
    StrictJson(body): StrictJson<StepUp>,
) -> Result<Json<Value>> {
    // The session stays what it was: this is no sign-in that failed.
    let wrong = |error| match error {
        Error::Refused(problem) if problem.code == Code::Unauthenticated => {
            Problem::new(Code::StepUpRequired, "the password is not right").into()
        }
        other => other,
    };
    account::check_password(&desk, person.name(), body.password, address, person.by()).await.map_err(wrong)?;
    let now = desk.now();
    session_store::step_up(&session, &person, now).await?;
    Ok(Json(json!({"stepped_up_until": Timestamp(now.as_millis() + STEP_UP_MS)})))
}

#[derive(Serialize, ToSchema)]
struct SessionView {
    #[schema(value_type = String)]
    id: SessionId,
    user_agent: String,
    signed_in_at: Timestamp,
    last_seen_at: Timestamp,
    expires_at: Timestamp,
    current: bool,
}

#[utoipa::path(
    get,
    path = "/sessions",
    tag = "session",
    responses((status = 200, description = "Done", body = Object)),
)]
async fn list(desk: Desk, person: PersonIdentity) -> Result<Json<Value>> {
    let sessions = session::of_person(&mut desk.store.read().await?, person.id(), desk.now()).await?;
    let view = |session: session::Session| SessionView {
        current: session.id == *person.session(),
        id: session.id,
        user_agent: session.content.user_agent,
        signed_in_at: session.content.signed_in_at,
        last_seen_at: session.last_seen_at,
        expires_at: session.expires_at,
    };
    Ok(Json(json!({"sessions": sessions.into_iter().map(view).collect::<Vec<_>>()})))
}

#[utoipa::path(
    delete,
    path = "/sessions/{id}",
    tag = "session",
    params(("id" = String, Path)),
    responses((status = 204, description = "Done")),
)]
async fn revoke(desk: Desk, person: PersonIdentity, Path(id): Path<SessionId>) -> Result<StatusCode> {
    account::revoke_session(&desk, &person, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
