//! Resources by their address. A write is a proposal like any other; only its reply speaks of the resource.

use axum::{
    Json,
    extract::{FromRequestParts, Request},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH, LINK, LOCATION, RETRY_AFTER},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::operations::{REPLAYED, lines};
use crate::{
    model::{
        document::{Audience, OperationDoc},
        etag,
        operation::{Operation, State},
        problem::{Code, Problem},
        target::{InvalidTarget, Target},
    },
    server::{
        service::{
            Desk, conflict,
            error::{Error, Result},
            propose::{self, Headers, Proposed},
            resource::{self, Change, HistoryQuery, ListQuery, Observation, ResourceDoc, ResourceLine, VersionDoc},
        },
        web::{
            auth::Principal,
            body::{self, Path, Query, StrictJson},
            state::AppState,
        },
    },
};

const MERGE_PATCH: &str = "application/merge-patch+json";

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, put, patch, delete))
        .routes(routes!(history))
        .routes(routes!(observe))
}

// What replies look like, for the description of the API.

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ResourcePage {
    resources: Vec<ResourceLine>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct HistoryPage {
    resource: String,
    versions: Vec<VersionDoc>,
    next_cursor: Option<i64>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct WrittenReply {
    #[serde(flatten)]
    resource: ResourceDoc,
    /// `created` or `replayed`.
    disposition: String,
    operation: OperationDoc,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ProposedReply {
    /// `created`, `in_progress` or `replayed`.
    disposition: String,
    operation: OperationDoc,
}

/// The resource that an address names.
struct Named(std::result::Result<Target, InvalidTarget>);

impl FromRequestParts<AppState> for Named {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        let Path((resource_type, name)) = Path::<(String, String)>::from_request_parts(parts, state).await?;
        Ok(Self(format!("{resource_type}/{name}").parse()))
    }
}

impl Named {
    /// What is not spelled like a target names nothing.
    fn existing(self) -> std::result::Result<Target, Problem> {
        let detail = "There is no such resource, or it is not yours to see";
        self.0.map_err(|_| Problem::new(Code::NotFound, detail))
    }

    /// What is written need not exist.
    fn spelled(self) -> std::result::Result<Target, Problem> {
        self.0.map_err(|error| Problem::at(Code::ValidationFailed, "/target", error.to_string()))
    }
}

#[utoipa::path(
    get,
    path = "/resources",
    tag = "resources",
    params(ListQuery),
    responses((status = 200, description = "Done", body = ResourcePage)),
)]
async fn list(desk: Desk, principal: Principal, Query(query): Query<ListQuery>) -> Result<Response> {
    let (prefix, limit) = (query.prefix.clone(), query.limit);
    let (resources, next_cursor) = resource::list(&desk, &principal, query).await?;
    let body = Json(json!({"resources": resources, "next_cursor": next_cursor}));
    let Some(cursor) = next_cursor else { return Ok(body.into_response()) };
    let limit = limit.map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let (base, prefix, cursor) = (&desk.config.public_url, encoded(&prefix), encoded(&cursor));
    let next = format!("<{base}/api/v1/resources?prefix={prefix}&cursor={cursor}{limit}>; rel=\"next\"");
    Ok(([(LINK, next)], body).into_response())
}

/// `text` as a value in a query (RFC 3986 §2).
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadQuery {
    /// An earlier version.
    version: Option<i64>,
}

#[utoipa::path(
    get,
    path = "/resources/{type}/{name}",
    tag = "resources",
    params(("type" = String, Path), ("name" = String, Path), ("version" = Option<i64>, Query, description = "An earlier version"), ("If-None-Match" = Option<String>, Header, description = "The version already known")),
    responses((status = 200, description = "Done", body = ResourceDoc), (status = 304, description = "It is at that version still")),
)]
async fn read(
    desk: Desk,
    principal: Principal,
    named: Named,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let known = etag::parse(lines(&headers, IF_NONE_MATCH))?;
    let found = resource::read(&desk, &principal, &named.existing()?, query.version).await?;
    let fresh = [(CACHE_CONTROL, "private, no-cache".to_owned()), (ETAG, etag::of(found.version))];
    if known.is_some_and(|tags| tags.names(found.version)) {
        return Ok((StatusCode::NOT_MODIFIED, fresh).into_response());
    }
    Ok((fresh, Json(found)).into_response())
}

/// The version the write was planned on, for clients whose tags are weakened on the way.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteQuery {
    expected_version: Option<i64>,
}

/// What decides a write beside its content.
struct Preconditions {
    headers: Headers,
    expected_version: Option<i64>,
}

impl FromRequestParts<AppState> for Preconditions {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        let Query(WriteQuery { expected_version }) = Query::from_request_parts(parts, state).await?;
        let headers = Headers {
            key: propose::read_key(lines(&parts.headers, "idempotency-key"))?,
            if_match: etag::parse(lines(&parts.headers, IF_MATCH))?,
            if_none_match: etag::parse(lines(&parts.headers, IF_NONE_MATCH))?,
        };
        Ok(Self { headers, expected_version })
    }
}

#[utoipa::path(
    put,
    path = "/resources/{type}/{name}",
    tag = "resources",
    request_body = Object,
    params(("type" = String, Path), ("name" = String, Path), ("Idempotency-Key" = String, Header, description = "16 to 255 of A-Z a-z 0-9 . _ ~ : -"), ("If-Match" = Option<String>, Header, description = "The version that is replaced"), ("If-None-Match" = Option<String>, Header, description = "`*` creates"), ("expected_version" = Option<i64>, Query, description = "Instead of `If-Match`")),
    responses((status = 200, description = "Replaced", body = WrittenReply), (status = 201, description = "Created", body = WrittenReply), (status = 202, description = "A person decides", body = ProposedReply), (status = 412, description = "It has changed since it was read")),
)]
async fn put(
    desk: Desk,
    principal: Principal,
    named: Named,
    preconditions: Preconditions,
    request: Request,
) -> Result<Response> {
    let target = named.spelled()?;
    let value = body::document(request, &desk, "application/json").await?;
    write(&desk, &principal, &target, preconditions, Change::Put(value)).await
}

#[utoipa::path(
    patch,
    path = "/resources/{type}/{name}",
    tag = "resources",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(("type" = String, Path), ("name" = String, Path), ("Idempotency-Key" = String, Header, description = "16 to 255 of A-Z a-z 0-9 . _ ~ : -"), ("If-Match" = Option<String>, Header, description = "The version that is patched"), ("expected_version" = Option<i64>, Query, description = "Instead of `If-Match`")),
    responses((status = 200, description = "Changed", body = WrittenReply), (status = 202, description = "A person decides", body = ProposedReply), (status = 412, description = "It has changed since it was read")),
)]
async fn patch(
    desk: Desk,
    principal: Principal,
    named: Named,
    preconditions: Preconditions,
    request: Request,
) -> Result<Response> {
    let target = named.existing()?;
    let patch = body::document(request, &desk, MERGE_PATCH).await?;
    if !patch.is_object() {
        return Err(Problem::at(Code::ValidationFailed, "", "a merge patch is an object").into());
    }
    write(&desk, &principal, &target, preconditions, Change::Patch(patch)).await
}

#[utoipa::path(
    delete,
    path = "/resources/{type}/{name}",
    tag = "resources",
    params(("type" = String, Path), ("name" = String, Path), ("Idempotency-Key" = String, Header, description = "16 to 255 of A-Z a-z 0-9 . _ ~ : -"), ("If-Match" = Option<String>, Header, description = "The version that is deleted"), ("expected_version" = Option<i64>, Query, description = "Instead of `If-Match`")),
    responses((status = 200, description = "Deleted", body = ProposedReply), (status = 202, description = "A person decides", body = ProposedReply), (status = 412, description = "It has changed since it was read")),
)]
async fn delete(desk: Desk, principal: Principal, named: Named, preconditions: Preconditions) -> Result<Response> {
    write(&desk, &principal, &named.existing()?, preconditions, Change::Delete).await
}

async fn write(
    desk: &Desk,
    principal: &Principal,
    target: &Target,
    preconditions: Preconditions,
    change: Change,
) -> Result<Response> {
    let Preconditions { headers, expected_version } = preconditions;
    let proposed = resource::write(desk, principal, headers, target, change, expected_version).await;
    let proposed = conflict::told(desk, principal, None, proposed).await?;
    let (disposition, op) = match proposed {
        Proposed::Created(op) => ("created", op),
        Proposed::InProgress(op) => ("in_progress", op),
        Proposed::Replayed(op) => ("replayed", op),
        Proposed::Existing { operation, .. } => ("existing", operation),
    };
    let mut response = if op.life.state == State::Succeeded {
        written(desk, target, &op, disposition).await?
    } else {
        let document = document(desk, &op);
        let location = [(LOCATION, document.urls.self_.clone())];
        let status = if op.life.state.is_terminal() { StatusCode::OK } else { StatusCode::ACCEPTED };
        (status, location, Json(json!({"disposition": disposition, "operation": document}))).into_response()
    };
    if disposition != "created" {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if response.status() == StatusCode::ACCEPTED {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
    }
    Ok(response)
}

/// Whoever wrote it may see the key.
fn document(desk: &Desk, op: &Operation) -> OperationDoc {
    OperationDoc::of(op, Audience::SameAgent, &desk.config.public_url, desk.now())
}

/// The resource as this operation made it, whatever it is now: what a lost reply said.
async fn written(desk: &Desk, target: &Target, op: &Operation, disposition: &str) -> Result<Response> {
    let version = op.life.outcome.as_ref().and_then(|outcome| outcome.resulting_version).unwrap_or_default();
    let made = resource::made(desk, target, version).await?;
    let mut body = match &made {
        Some(made) => json!(made),
        None => json!({"resource": target, "version": version, "value": null, "managed": true}),
    };
    body["disposition"] = disposition.into();
    body["operation"] = json!(document(desk, op));
    let status = match (op.proposal.kind.as_str(), disposition) {
        ("resource.create", "created") => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let reply = (status, Json(body)).into_response();
    Ok(if made.is_some() { ([(ETAG, etag::of(version))], reply).into_response() } else { reply })
}

#[utoipa::path(
    get,
    path = "/resources/{type}/{name}/history",
    tag = "resources",
    params(("type" = String, Path), ("name" = String, Path), HistoryQuery),
    responses((status = 200, description = "Done", body = HistoryPage)),
)]
async fn history(
    desk: Desk,
    principal: Principal,
    named: Named,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<Value>> {
    let target = named.existing()?;
    let (versions, next_cursor) = resource::history(&desk, &principal, &target, query).await?;
    Ok(Json(json!({"resource": target, "versions": versions, "next_cursor": next_cursor})))
}

#[utoipa::path(
    post,
    path = "/resources/{type}/{name}/observed-version",
    tag = "resources",
    request_body = Observation,
    params(("type" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The version known now", body = ResourceDoc)),
)]
async fn observe(
    desk: Desk,
    principal: Principal,
    named: Named,
    StrictJson(body): StrictJson<Observation>,
) -> Result<Response> {
    let observed = resource::observe(&desk, &principal, &named.spelled()?, body).await?;
    Ok(([(ETAG, etag::of(observed.version))], Json(observed)).into_response())
}
