//! Change sets.

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    operations::{REPLAYED, lines},
    runs::Reason,
};
use crate::{
    model::id::ChangeSetId,
    server::{
        service::{
            Desk,
            change_set::{self, ChangeSetView, Known, NewChangeSet, Opened, Redo},
            error::{Error, Result},
            propose,
        },
        web::{
            auth::{Principal, RunIdentity},
            body::{Path, StrictJson},
            state::AppState,
        },
    },
};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(open)).routes(routes!(read)).routes(routes!(redo)).routes(routes!(compensate))
}

#[derive(Serialize, ToSchema)]
struct ChangeSetReply {
    change_set: ChangeSetView,
}

fn reply(known: Known) -> Json<ChangeSetReply> {
    Json(ChangeSetReply { change_set: ChangeSetView::new(known) })
}

#[utoipa::path(
    post,
    path = "/change-sets",
    tag = "change sets",
    request_body = NewChangeSet,
    params(("Idempotency-Key" = String, Header, description = "16 to 255 of A-Z a-z 0-9 . _ ~ : -")),
    responses((status = 201, description = "Opened, and its first step proposed", body = ChangeSetReply), (status = 200, description = "The key has opened it before", body = ChangeSetReply)),
)]
async fn open(
    desk: Desk,
    run: RunIdentity,
    headers: HeaderMap,
    body: std::result::Result<StrictJson<NewChangeSet>, Error>,
) -> Result<Response> {
    let key = propose::read_key(lines(&headers, "idempotency-key"))?;
    let StrictJson(body) = body?;
    Ok(match change_set::open(&desk, &run, key, body).await? {
        Opened::New(known) => {
            let location = format!("{}/api/v1/change-sets/{}", desk.config.public_url, known.set.id);
            (StatusCode::CREATED, [(LOCATION, location)], reply(known)).into_response()
        }
        Opened::Replayed(known) => ([(REPLAYED, "true")], reply(known)).into_response(),
    })
}

#[utoipa::path(
    get,
    path = "/change-sets/{id}",
    tag = "change sets",
    params(("id" = String, Path)),
    responses((status = 200, description = "Done", body = ChangeSetReply)),
)]
async fn read(desk: Desk, principal: Principal, Path(id): Path<ChangeSetId>) -> Result<Json<ChangeSetReply>> {
    Ok(reply(change_set::get(&desk, &principal, &id).await?))
}

#[utoipa::path(
    post,
    path = "/change-sets/{id}/redo",
    tag = "change sets",
    request_body = Redo,
    params(("id" = String, Path)),
    responses((status = 200, description = "The missing step is proposed again, or nothing is missing", body = ChangeSetReply)),
)]
async fn redo(
    desk: Desk,
    run: RunIdentity,
    Path(id): Path<ChangeSetId>,
    StrictJson(body): StrictJson<Redo>,
) -> Result<Json<ChangeSetReply>> {
    Ok(reply(change_set::redo(&desk, &run, &id, body).await?))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Compensate {
    reason: Reason,
}

#[utoipa::path(
    post,
    path = "/change-sets/{id}/compensate",
    tag = "change sets",
    request_body = Compensate,
    params(("id" = String, Path)),
    responses((status = 200, description = "What was done is undone, the last step first", body = ChangeSetReply)),
)]
async fn compensate(
    desk: Desk,
    principal: Principal,
    Path(id): Path<ChangeSetId>,
    StrictJson(body): StrictJson<Compensate>,
) -> Result<Json<ChangeSetReply>> {
    Ok(reply(change_set::compensate(&desk, &principal, &id, body.reason.0).await?))
}
