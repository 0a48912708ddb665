//! From a view to a response: the document around every page, and who it is for.
//!
//! Everything a page shows is read before it is rendered, so rendering is one synchronous step.

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{CACHE_CONTROL, CONTENT_TYPE, REFERER},
        request::Parts,
    },
    response::{IntoResponse, Redirect, Response},
};
use leptos::prelude::*;

use super::shell::{self, Frame, Place};
use crate::{
    model::{problem::Code, time::Timestamp},
    server::{
        service::{
            Desk, desk,
            error::{Error, Result},
            operation::{self, Pause},
        },
        web::{assets, auth::PersonIdentity, security::Nonce, state::AppState},
    },
};

/// A signed-in person looking at a page. Without a session the answer is the way to the door.
#[derive(Clone)]
pub struct Visitor {
    pub desk: Desk,
    pub person: PersonIdentity,
    /// The moment the page is about.
    pub now: Timestamp,
    /// What the top bar counts.
    pub counts: desk::Counts,
    /// Set while the desk is paused.
    pub pause: Option<Pause>,
    nonce: Nonce,
}

impl Visitor {
    /// A page with the whole bar. `view` is called once, at once.
    pub fn page<V: IntoView>(&self, title: &str, place: Place, view: impl FnOnce() -> V) -> Page {
        let frame = Frame {
            title,
            place,
            host: host(&self.desk),
            now: self.now,
            person: Some(&self.person),
            counts: self.counts,
            pause: self.pause.as_ref(),
        };
        Page::render(frame, &self.nonce, view)
    }

    async fn of(desk: Desk, nonce: Nonce, person: PersonIdentity) -> Result<Self> {
        let now = desk.now();
        let counts = desk::counts(&desk, now).await?;
        let pause = operation::pause(&mut desk.store.read().await?).await?;
        Ok(Self { desk, person, now, counts, pause, nonce })
    }
}

impl FromRequestParts<AppState> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> std::result::Result<Self, Response> {
        let nonce = Nonce::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        match <PersonIdentity as FromRequestParts<AppState>>::from_request_parts(parts, state).await {
            Ok(person) => Self::of(state.desk.clone(), nonce, person).await.map_err(IntoResponse::into_response),
            Err(Error::Refused(problem)) if problem.code == Code::Unauthenticated => Err(to_the_door(parts)),
            Err(error) => Err(error.into_response()),
        }
    }
}

/// Anybody: the pages that need no session, and the refusals.
#[derive(Clone)]
pub struct Passer {
    pub desk: Desk,
    pub visitor: Option<Visitor>,
    pub nonce: Nonce,
}

impl Passer {
    pub fn page<V: IntoView>(&self, title: &str, place: Place, view: impl FnOnce() -> V) -> Page {
        match &self.visitor {
            Some(visitor) => visitor.page(title, place, view),
            None => bare(&self.desk, &self.nonce, title, view),
        }
    }
}

impl FromRequestParts<AppState> for Passer {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self> {
        let nonce = Nonce::from_request_parts(parts, state).await?;
        let person = <PersonIdentity as OptionalFromRequestParts<AppState>>::from_request_parts(parts, state).await?;
        let visitor = match person {
            Some(person) => Some(Visitor::of(state.desk.clone(), nonce.clone(), person).await?),
            None => None,
        };
        Ok(Self { desk: state.desk.clone(), visitor, nonce })
    }
}

/// A page without the bar.
pub fn bare<V: IntoView>(desk: &Desk, nonce: &Nonce, title: &str, view: impl FnOnce() -> V) -> Page {
    let counts = desk::Counts::default();
    let (now, place) = (desk.now(), Place::Nowhere);
    let frame = Frame { title, place, host: host(desk), now, person: None, counts, pause: None };
    Page::render(frame, nonce, view)
}

/// The name under which people reach the desk.
pub fn host(desk: &Desk) -> &str {
    let url = &desk.config.public_url;
    url.split_once("://").map_or(url.as_str(), |(_, host)| host)
}

/// A rendered document.
pub struct Page {
    status: StatusCode,
    html: String,
}

impl Page {
    fn render<V: IntoView>(frame: Frame<'_>, nonce: &Nonce, view: impl FnOnce() -> V) -> Self {
        let owner = Owner::new_root(None);
        let html = owner.with(|| shell::document(frame, nonce.as_str(), assets::version(), view()).to_html());
        Self { status: StatusCode::OK, html }
    }

    pub fn into_html(self) -> String {
        self.html
    }

    /// With the status that belongs to a refusal.
    pub fn refused(mut self, code: Code) -> Self {
        self.status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.html).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Sign in first, then come back. After a write that is the page the form was on.
fn to_the_door(parts: &Parts) -> Response {
    let asked = match parts.method {
        Method::GET | Method::HEAD => parts.uri.path_and_query().map(|path| path.as_str().to_owned()),
        _ => {
            let referer = parts.headers.get(REFERER).and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
            referer.and_then(|uri| uri.path_and_query().map(|path| path.as_str().to_owned()))
        }
    };
    match asked.as_deref() {
        None | Some("/") => Redirect::to("/sign-in").into_response(),
        Some(path) => Redirect::to(&link("/sign-in", &[("next", path)])).into_response(),
    }
}

/// `path?name=value&…`, as browsers write it; the path alone where there are no pairs.
pub fn link(path: &str, pairs: &[(&str, impl AsRef<str>)]) -> String {
    let pairs: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{}={}", percent(name), percent(value.as_ref()))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// Percent-encoding of everything that has a meaning in a query (RFC 3986, section 2.3).
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
