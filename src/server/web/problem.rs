//! How a refusal is said over HTTP: one problem document for every error (RFC 9457), whoever raised it.
//!
//! Handlers only mark a response with its [`Problem`]; [`finish`] writes the document, because it alone knows the
//! correlation id and whether a browser is asking. What the framework refuses by itself is rewritten here too.

use std::{any::Any, panic::AssertUnwindSafe};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode, Uri,
        header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use serde_json::json;
use tracing::Instrument;

use super::{pages, security::Nonce, state::AppState};
use crate::{
    model::{
        id::CorrelationId,
        problem::{Code, Problem},
    },
    server::{ids, service::error::Error},
};

pub(super) const HTML: &str = "text/html; charset=utf-8";
const CORRELATION: &str = "x-correlation-id";

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = match self {
            Error::Refused(problem) => problem,
            Error::Unavailable => {
                Problem::new(Code::Unavailable, "the server is busy, or its database is away; nothing was done")
            }
            Error::Internal(error) => {
                tracing::error!(error = chain(&*error), "a request failed");
                internal()
            }
        };
        // Read by `finish`, which is around every route.
        (status(problem.code), axum::Extension(problem)).into_response()
    }
}

fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn internal() -> Problem {
    Problem::new(Code::Internal, "this is our fault, and it has been noted under the correlation id")
}

/// An error with everything beneath it, for the log.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // A transparent error repeats its source.
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        source = error.source();
    }
    words
}

/// Around everything: names the request, catches panics, and turns every error into its document.
pub async fn finish(State(state): State<AppState>, nonce: Nonce, mut request: Request, next: Next) -> Response {
    let correlation: CorrelationId = ids::new(state.desk.now());
    let asker = Asker::of(request.uri(), request.headers());
    let span = tracing::info_span!(
        "request",
        correlation = %correlation,
        method = %request.method(),
        route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str),
    );
    request.extensions_mut().insert(correlation.clone());
    let answer = if has_nul(request.uri()) {
        async { Error::from(Problem::new(Code::BadRequest, "the address contains U+0000")).into_response() }.boxed()
    } else {
        next.run(request).boxed()
    };
    let mut response = async {
        AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
            tracing::error!(panic = panic_words(&*panic), "a request panicked");
            Error::Refused(internal()).into_response()
        })
    }
    .instrument(span)
    .await;
    let problem = response.extensions_mut().remove::<Problem>().or_else(|| foreign(&response));
    if let Some(problem) = problem {
        response = match asker {
            Asker::Program => document(&problem, &correlation, response),
            Asker::Browser => {
                let page = pages::error::bare(&state.desk, &nonce, &problem, &correlation);
                dress(&problem, response, HTML, page.into_html())
            }
        };
    }
    if let Ok(value) = HeaderValue::from_str(correlation.as_str()) {
        response.headers_mut().insert(CORRELATION, value);
    }
    response
}

/// PostgreSQL cannot hold U+0000, so it is refused before it comes near a query.
fn has_nul(uri: &Uri) -> bool {
    uri.path_and_query().is_some_and(|text| text.as_str().contains("%00"))
}

fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let words = panic.downcast_ref::<&str>().copied();
    words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

pub(super) enum Asker {
    Program,
    Browser,
}

impl Asker {
    pub(super) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let wants_html =
            headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains("text/html")));
        if wants_html && !uri.path().starts_with("/api/") { Self::Browser } else { Self::Program }
    }
}

/// The problem behind an error that the framework answered by itself: bare, or in plain text.
fn foreign(response: &Response) -> Option<Problem> {
    if response.headers().get(CONTENT_TYPE).is_some_and(|value| !value.as_bytes().starts_with(b"text/plain")) {
        return None;
    }
    let code = match response.status().as_u16() {
        404 => Code::NotFound,
        405 => Code::MethodNotAllowed,
        413 => Code::PayloadTooLarge,
        415 => Code::UnsupportedMediaType,
        422 => Code::ValidationFailed,
        503 => Code::Unavailable,
        400..=499 => Code::BadRequest,
        500..=599 => return Some(internal()),
        _ => return None,
    };
    Some(Problem::new(code, code.title()))
}

fn document(problem: &Problem, correlation: &CorrelationId, response: Response) -> Response {
    let mut document = problem.members.clone();
    let code = problem.code;
    for (name, value) in [
        ("type", json!(format!("urn:counterfoil:problem:{code}"))),
        ("title", json!(code.title())),
        ("status", json!(code.status())),
        ("code", json!(code)),
        ("detail", json!(problem.detail)),
        ("correlation_id", json!(correlation)),
        ("retryable", json!(problem.retryable())),
        ("retry", json!(problem.retry)),
        ("safe_new_key", json!(problem.safe_new_key)),
    ] {
        document.insert(name.to_owned(), value);
    }
    let body = serde_json::Value::Object(document).to_string();
    dress(problem, response, "application/problem+json", body)
}

/// Keeps what the refusal already says in its headers, such as `Allow` and a removed cookie.
pub(super) fn dress(problem: &Problem, response: Response, content_type: &'static str, body: String) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = status(problem.code);
    let headers = &mut parts.headers;
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(after_s) = problem.retry.after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(after_s));
    }
    if problem.code == Code::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"counterfoil\""));
    }
    Response::from_parts(parts, Body::from(body))
}
