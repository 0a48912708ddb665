//! `/openapi.json`: the description of the API (OpenAPI 3.1), made from the handlers' own types.

use axum::{Json, Router, routing::get};
use utoipa::{
    ToSchema,
    openapi::{
        Content, OpenApi, Ref, RefOr, Response, ResponseBuilder,
        security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use super::state::AppState;

/// How every refusal looks (RFC 9457); codes have members of their own besides.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct ProblemDocument {
    /// `urn:counterfoil:problem:<code>`; `/problems/<code>` explains it.
    r#type: String,
    title: String,
    status: u16,
    code: String,
    detail: String,
    correlation_id: String,
    /// Whether sending the same request again can help.
    retryable: bool,
    retry: RetryDocument,
    /// Whether the same action may be proposed under a new key without risk of a second effect.
    safe_new_key: bool,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a reply")]
struct RetryDocument {
    /// `none`, `same_key`, `after_fresh_read`, `new_operation`, `await_decision` or `operator`.
    mode: String,
    /// Seconds to wait first.
    after_s: Option<i64>,
}

/// Adds what holds for every route: who may call, and how it refuses.
pub fn finish(mut description: OpenApi) -> OpenApi {
    description.info = utoipa::openapi::InfoBuilder::new()
        .title("Counterfoil")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("The desk where people countersign what AI agents are about to do to production."))
        .build();
    let components = description.components.get_or_insert_default();
    let mut schemas = Vec::new();
    ProblemDocument::schemas(&mut schemas);
    schemas.push((ProblemDocument::name().into_owned(), <ProblemDocument as utoipa::PartialSchema>::schema()));
    components.schemas.extend(schemas);
    components.security_schemes.insert("token".into(), SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)).into());
    components.security_schemes.insert(
        "session".into(),
        SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new("counterfoil_session"))).into(),
    );
    let none: [String; 0] = [];
    description.security =
        Some(vec![SecurityRequirement::new("token", none.clone()), SecurityRequirement::new("session", none)]);
    for item in description.paths.paths.values_mut() {
        let operations =
            [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten();
        for operation in operations {
            for status in ["4XX", "5XX"] {
                operation.responses.responses.insert(status.into(), RefOr::T(refusal()));
            }
        }
    }
    description
}

fn refusal() -> Response {
    let content = Content::new(Some(RefOr::Ref(Ref::from_schema_name(ProblemDocument::name()))));
    ResponseBuilder::new()
        .description("Refused, with the reason and the way on")
        .content("application/problem+json", content)
        .build()
}

/// Serves the description.
pub fn route(description: OpenApi) -> Router<AppState> {
    Router::new().route("/openapi.json", get(move || std::future::ready(Json(description.clone()))))
}
