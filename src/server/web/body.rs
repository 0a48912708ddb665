//! What a handler reads from a request: strict, bounded, and refused with a problem.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    extract::{FromRef, FromRequest, FromRequestParts, Request},
    http::{HeaderMap, header::CONTENT_TYPE, request::Parts},
};
use futures::StreamExt;
use serde::de::DeserializeOwned;

use super::state::AppState;
use crate::{
    model::{
        json::{self, Limits},
        problem::{Code, Problem},
        strict,
    },
    server::service::{
        Desk,
        error::{Error, Result},
    },
};

/// A refused body is still read up to this many bytes, so that the client can finish sending and read the answer.
const DRAIN: usize = 16 * 1024 * 1024;
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// A JSON document: strict JSON, then the type `T`, whose unknown members are refused.
///
/// Refusals: 415 `unsupported_media_type` · 413 `payload_too_large` · those of [`json::parse`] · 422
/// `validation_failed` with the JSON pointer.
pub struct StrictJson<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for StrictJson<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &AppState) -> Result<Self> {
        let document = document(request, &state.desk, "application/json").await?;
        Ok(Self(strict::read(&document)?))
    }
}

/// Reads a strict JSON document of the media type `expected`.
pub async fn document(request: Request, desk: &Desk, expected: &str) -> Result<serde_json::Value> {
    let fits = is_media_type(request.headers(), expected);
    let body = read(request, desk.config.max_body_bytes).await;
    if !fits {
        return Err(unsupported(expected).into());
    }
    Ok(json::parse(&body?, Limits { max_bytes: desk.config.max_body_bytes, ..Limits::BODY })?)
}

/// A form as browsers send it.
pub struct Form<T>(pub T);

const FORM: &str = "application/x-www-form-urlencoded";

impl<T: DeserializeOwned> FromRequest<AppState> for Form<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &AppState) -> Result<Self> {
        let fits = is_media_type(request.headers(), FORM);
        let body = read(request, state.desk.config.max_body_bytes).await;
        if !fits {
            return Err(unsupported(FORM).into());
        }
        let body = body?;
        // PostgreSQL cannot hold U+0000.
        if body.contains(&0) || body.windows(3).any(|window| window == b"%00") {
            return Err(Problem::new(Code::BadRequest, "the form contains U+0000").into());
        }
        let request = Request::post("/").header(CONTENT_TYPE, FORM).body(Body::from(body)).map_err(Error::internal)?;
        match axum::Form::from_request(request, &()).await {
            Ok(axum::Form(form)) => Ok(Self(form)),
            Err(rejection) => Err(Problem::new(Code::ValidationFailed, rejection.body_text()).into()),
        }
    }
}

/// Variable parts of the path. What is not spelled like an id names nothing.
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(_) => Err(Problem::new(Code::NotFound, "the address names nothing that could exist").into()),
        }
    }
}

/// The query, whose unknown names are refused by `T`.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(Code::BadRequest, rejection.body_text()).into()),
        }
    }
}

impl<S> FromRequestParts<S> for Desk
where
    S: Send + Sync,
    Desk: FromRef<S>,
{
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> std::result::Result<Self, Self::Rejection> {
        Ok(Desk::from_ref(state))
    }
}

fn unsupported(expected: &str) -> Problem {
    Problem::new(Code::UnsupportedMediaType, format!("send `Content-Type: {expected}`"))
}

/// Whether there is one `Content-Type` and it is `expected`, in UTF-8 if it says so.
fn is_media_type(headers: &HeaderMap, expected: &str) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(Ok(value)), None) = (values.next().map(|value| value.to_str()), values.next()) else { return false };
    let mut parts = value.split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(expected))
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// The whole body, `max` bytes at most.
async fn read(request: Request, max: usize) -> Result<Vec<u8>> {
    let body = request.into_body();
    let may_fit = body.size_hint().lower() <= max as u64;
    let mut stream = body.into_data_stream();
    if may_fit && let Some(bytes) = collect(&mut stream, max).await? {
        return Ok(bytes);
    }
    // Whether it is read to the end or not, the answer is the same.
    drop(tokio::time::timeout(DRAIN_FOR, drain(&mut stream)).await);
    Err(Problem::new(Code::PayloadTooLarge, format!("the body is larger than {max} bytes")).into())
}

/// `None` when there is more than `max`.
async fn collect(stream: &mut BodyDataStream, max: usize) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| {
            tracing::debug!(%error, "a body ended early");
            Problem::new(Code::BadRequest, "the body ended early")
        })?;
        if bytes.len() + chunk.len() > max {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

async fn drain(stream: &mut BodyDataStream) {
    let mut left = DRAIN;
    while let Some(Ok(chunk)) = stream.next().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_compared_without_its_decoration() {
        let fits = |value: &str| {
            let headers = [(CONTENT_TYPE, value.parse().unwrap())].into_iter().collect();
            is_media_type(&headers, "application/json")
        };
        for value in ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=\"UTF-8\"; x=y"]
        {
            assert!(fits(value), "{value}");
        }
        for value in
            ["text/plain", "application/json; charset=latin1", "application/jsonp", "", "application/problem+json"]
        {
            assert!(!fits(value), "{value}");
        }
        assert!(!is_media_type(&HeaderMap::new(), "application/json"));
    }
}
