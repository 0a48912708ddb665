//! What browsers are told, and which of their writes are believed.

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, Uri,
        header::{
            AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN, REFERRER_POLICY,
            STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
        request::Parts,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{session_store, state::AppState};
use crate::{
    model::problem::{Code, Problem},
    server::{ids, service::error::Error},
};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// What the scripts of this request's page carry.
#[derive(Debug, Clone)]
pub struct Nonce(String);

impl Nonce {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for Nonce {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Error::internal("a page outside of `headers`"))
    }
}

/// The policy of a page whose scripts carry `nonce`.
fn page_policy(nonce: &Nonce) -> String {
    [
        "default-src 'none'",
        // The page's own loader by its nonce, and what that loads; compiling the wasm needs its own word.
        &format!("script-src 'nonce-{}' 'strict-dynamic' 'wasm-unsafe-eval'", nonce.0),
        // One style sheet from here; no inline styles.
        "style-src 'self'",
        // The favicon and marks drawn in the style sheet.
        "img-src 'self' data:",
        // The wasm file, the API, events.
        "connect-src 'self'",
        // Every decision works as a plain form.
        "form-action 'self'",
        // Nobody lays another page over Approve.
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ]
    .join("; ")
}

/// Of everything that is no page.
const BARE_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Puts the security headers on every response, and gives every request its nonce.
pub async fn headers(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let nonce = Nonce(URL_SAFE_NO_PAD.encode(ids::random::<16>()));
    request.extensions_mut().insert(nonce.clone());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let is_page = headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/html"));
    let policy = if is_page { page_policy(&nonce).parse().ok() } else { None };
    headers.insert(CONTENT_SECURITY_POLICY, policy.unwrap_or(HeaderValue::from_static(BARE_POLICY)));
    let fixed = [
        // Tells other sites nothing, and our own forms where they came from.
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // For browsers that do not know `frame-ancestors`.
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api {
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    if state.desk.config.public_url.starts_with("https:") {
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    response
}

/// Refuses what another site makes a browser write. Cookies are sent along without the person's doing; bearer tokens
/// are not, so calls that bring one are not checked.
pub async fn same_origin(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let public_url = &state.desk.config.public_url;
    if is_browser_write(request.method(), request.uri(), request.headers()) && !is_own(request.headers(), public_url) {
        let detail = format!("the request does not come from the desk itself; open it at {public_url}");
        return Error::from(Problem::new(Code::CrossSite, detail)).into_response();
    }
    next.run(request).await
}

/// Whether a cookie authenticates this write, or it may set one.
fn is_browser_write(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if method.is_safe() || headers.contains_key(AUTHORIZATION) {
        return false;
    }
    let has_cookie = headers.get_all(COOKIE).iter().any(|value| {
        let pairs = value.as_bytes().split(|&c| c == b';');
        pairs.map(<[u8]>::trim_ascii).any(|pair| pair.starts_with(session_store::COOKIE.as_bytes()))
    });
    has_cookie || !uri.path().starts_with("/api/") || uri.path() == "/api/v1/session"
}

/// Whether the browser says that the desk's own page sent this. What it says must all agree.
fn is_own(headers: &HeaderMap, public_url: &str) -> bool {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(drop),
            (Some(_), Some(_)) => Err(()),
        }
    };
    let (Ok(site), Ok(origin)) = (one(SEC_FETCH_SITE), one(ORIGIN.as_str())) else { return false };
    match (site, origin) {
        (Some("same-origin"), Some(origin)) => origin == public_url || is_here(origin, headers),
        (Some("same-origin"), None) | (Some("none"), None) => true,
        (None, Some(origin)) => origin == public_url,
        _ => false,
    }
}

/// The desk reached under another of its names, such as `localhost`.
fn is_here(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    host.is_some() && host == authority
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        is_own(&headers, "https://desk.example.test")
    }

    #[test]
    fn only_the_desks_own_pages_write_with_a_cookie() {
        let (site, origin, host) = ("sec-fetch-site", "origin", "host");
        assert!(own(&[(site, "same-origin")]));
        assert!(own(&[(origin, "https://desk.example.test")]));
        assert!(own(&[(site, "same-origin"), (origin, "https://desk.example.test")]));
        assert!(own(&[(site, "none")]));
        assert!(own(&[(site, "same-origin"), (origin, "http://localhost:8080"), (host, "localhost:8080")]));
        for foreign in [
            &[][..],
            &[(site, "cross-site")],
            &[(site, "same-site")],
            &[(origin, "null")],
            &[(origin, "https://evil.example.test")],
            &[(origin, "https://desk.example.test.evil.example.test")],
            &[(origin, "http://desk.example.test")],
            &[(site, "same-origin"), (origin, "https://evil.example.test")],
            &[(site, "same-origin"), (origin, "null")],
            &[(site, "cross-site"), (origin, "https://desk.example.test")],
            &[(site, "none"), (origin, "https://evil.example.test")],
            &[(origin, "http://localhost:8080"), (host, "localhost:8080")],
            &[(site, "same-origin"), (site, "cross-site")],
        ] {
            assert!(!own(foreign), "{foreign:?}");
        }
    }
}
