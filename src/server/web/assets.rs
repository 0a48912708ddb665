//! What the browser loads beside pages: the site that `make site` builds, embedded in the release binary and read from
//! `target/site` by debug builds.

use std::sync::OnceLock;

use axum::{
    Router,
    extract::{Path, RawQuery},
    http::{
        HeaderMap, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use rust_embed::{EmbeddedFile, RustEmbed};
use sha2::{Digest, Sha256};

use super::state::AppState;
use crate::{
    model::problem::{Code, Problem},
    server::service::error::Error,
};

#[derive(RustEmbed)]
#[folder = "target/site"]
#[allow_missing = true]
struct Site;

/// Without these a page is bare paper.
const NEEDED: [&str; 3] = ["pkg/counterfoil.css", "pkg/counterfoil.js", "pkg/counterfoil.wasm"];

/// What keeps the site from being served, if anything.
pub fn missing() -> Option<&'static str> {
    NEEDED.into_iter().find(|path| Site::get(path).is_none())
}

/// Names the present content of what pages load; part of its addresses, so that browsers may keep it for good.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Sha256::new();
        for file in NEEDED.into_iter().filter_map(Site::get) {
            hash.update(file.metadata.sha256_hash());
        }
        hex(&hash.finalize()[..8])
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/pkg/{file}", get(|file, query, headers| async { package(file, query, headers) }))
        .route("/favicon.svg", get(|headers: HeaderMap| async move { file("favicon.svg", Kept::Checked, &headers) }))
        .route("/robots.txt", get(|headers: HeaderMap| async move { file("robots.txt", Kept::Checked, &headers) }))
}

fn package(Path(name): Path<String>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let asked = query.as_deref().and_then(|query| query.strip_prefix("v="));
    let kept = if asked == Some(version()) { Kept::ForGood } else { Kept::Checked };
    file(&format!("pkg/{name}"), kept, &headers)
}

/// How browsers keep a file.
#[derive(Clone, Copy)]
enum Kept {
    ForGood,
    /// Asked again each time, answered with 304.
    Checked,
}

fn file(path: &str, kept: Kept, headers: &HeaderMap) -> Response {
    let Some(EmbeddedFile { data, metadata, .. }) = Site::get(path) else {
        return Error::from(Problem::new(Code::NotFound, "there is no such file")).into_response();
    };
    let tag = format!("\"{}\"", hex(&metadata.sha256_hash()[..16]));
    let control = match kept {
        Kept::ForGood => "public, max-age=31536000, immutable",
        Kept::Checked => "no-cache",
    };
    let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        // Compression on the way weakens a tag; the content behind it is the same.
        value.to_str().is_ok_and(|tags| tags.split(',').any(|one| one.trim().trim_start_matches("W/") == tag))
    });
    let mut response =
        if known { axum::http::StatusCode::NOT_MODIFIED.into_response() } else { data.into_owned().into_response() };
    let out = response.headers_mut();
    out.insert(CACHE_CONTROL, HeaderValue::from_static(control));
    let media_type = mime_guess::from_path(path).first_or_octet_stream();
    for (name, value) in [(CONTENT_TYPE, media_type.essence_str()), (ETAG, tag.as_str())] {
        if let Ok(value) = HeaderValue::from_str(value) {
            out.insert(name, value);
        }
    }
    response
}
