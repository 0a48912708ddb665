//! Refusals as pages: what is, then the way on.

use axum::http::Uri;
use leptos::prelude::*;

use super::{
    render::{self, Page, Passer},
    shell::Place,
};
use crate::{
    model::{
        id::CorrelationId,
        problem::{Code, Problem},
    },
    server::{service::Desk, web::security::Nonce},
};

/// With the bar of whoever is signed in. `asked` is the address that was refused.
pub fn page(passer: &Passer, problem: &Problem, correlation: Option<&CorrelationId>, asked: &Uri) -> Page {
    let page = passer.page(problem.code.title(), Place::Nowhere, || card(problem, correlation, Some(asked)));
    page.refused(problem.code)
}

/// For refusals from before anybody is known.
pub fn bare(desk: &Desk, nonce: &Nonce, problem: &Problem, correlation: &CorrelationId) -> Page {
    render::bare(desk, nonce, problem.code.title(), || card(problem, Some(correlation), None)).refused(problem.code)
}

fn card(problem: &Problem, correlation: Option<&CorrelationId>, asked: Option<&Uri>) -> impl IntoView + use<> {
    let code = problem.code;
    let sentence = match code {
        Code::NotFound => "The address is wrong, or you may not read it. Both look the same on purpose.".to_owned(),
        _ => sentence(&problem.detail),
    };
    let again = problem.retryable().then(|| asked.map(Uri::to_string)).flatten();
    view! {
        <div class="card fault">
            <p class="codeline">
                {code.status()}" "{code.as_str()}
                {correlation.map(|id| view! { ", correlation "<bdi>{id.to_string()}</bdi> })}
            </p>
            <h1>{code.title()}</h1>
            <p>{sentence}</p>
            <div class="acts">
                {again.map(|address| view! { <a class="btn btn-small" href=address>"Try again"</a> })}
                <a class="btn btn-small" href="/">"To the desk"</a>
                <a class="act-link" href=format!("/problems/{code}")>"What this means"</a>
            </div>
        </div>
    }
}

/// `there is no such page` → `There is no such page.`
pub fn sentence(detail: &str) -> String {
    let mut chars = detail.chars();
    let mut text: String = chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default();
    if !text.ends_with(['.', '?', '!']) {
        text.push('.');
    }
    text
}
