//! Settings: who takes part, what may be asked for, by which rules, and the reader's own.

mod agents;
mod costs;
mod executors;
mod kinds;
mod own;
mod pause;
mod people;
mod policies;
mod providers;

use axum::{Router, response::Redirect, routing::get};
use leptos::prelude::*;
use serde_json::Value;

use super::{
    error::sentence,
    parts::{Empty, Head},
    problems::quoted,
    render::{Page, Visitor},
    shell::Place,
};
use crate::{
    model::{
        approval::Role,
        kind::Risk,
        problem::{Code, FieldError, Problem},
    },
    server::{
        service::error::{Error, Result},
        web::state::AppState,
    },
    ui::textarea::TextArea,
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings", get(async || Redirect::to("/settings/policies")))
        .merge(people::routes())
        .merge(agents::routes())
        .merge(executors::routes())
        .merge(kinds::routes())
        .merge(policies::routes())
        .merge(providers::routes())
        .merge(costs::routes())
        .merge(pause::routes())
        .merge(own::routes())
}

/// The pages of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    People,
    Agents,
    Executors,
    Kinds,
    Policies,
    Providers,
    Costs,
    Pause,
    Sessions,
    Keyboard,
}

impl Tab {
    const ALL: [Self; 10] = [
        Self::People,
        Self::Agents,
        Self::Executors,
        Self::Kinds,
        Self::Policies,
        Self::Providers,
        Self::Costs,
        Self::Pause,
        Self::Sessions,
        Self::Keyboard,
    ];

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::People => ("People", "/settings/people"),
            Self::Agents => ("Agents", "/settings/agents"),
            Self::Executors => ("Executors", "/settings/executors"),
            Self::Kinds => ("Kinds", "/settings/kinds"),
            Self::Policies => ("Policies", "/settings/policies"),
            Self::Providers => ("Providers", "/settings/providers"),
            Self::Costs => ("Costs", "/settings/costs"),
            Self::Pause => ("Pause", "/settings/pause"),
            Self::Sessions => ("Your sessions", "/settings/sessions"),
            Self::Keyboard => ("Keyboard", "/settings/keyboard"),
        }
    }
}

/// The words under the head of each page of the settings.
pub fn tabs(here: Tab) -> impl IntoView {
    let links = Tab::ALL.map(|tab| {
        let (words, address) = tab.words();
        view! { <a href=address aria-current=(tab == here).then_some("page")>{words}</a> }
    });
    view! { <nav class="lanes" aria-label="Settings">{links.into_iter().collect::<Vec<_>>()}</nav> }
}

/// Why a form was not taken, place by place.
pub fn faults(problem: Option<&Problem>) -> impl IntoView + use<> {
    problem.map(|problem| {
        let places: Vec<FieldError> = problem
            .members
            .get("errors")
            .and_then(|errors| serde_json::from_value(errors.clone()).ok())
            .unwrap_or_default();
        let sentence = if places.is_empty() { sentence(&problem.detail) } else { "Nothing was saved.".to_owned() };
        let places: Vec<_> = places
            .into_iter()
            .map(|place| view! { <li><code>{place.pointer}</code>" "{quoted(&place.detail)}</li> })
            .collect();
        view! {
            <div class="notice notice-stop gap-top" role="alert" id="refused">
                <div>
                    <h2>{problem.code.title()}</h2>
                    <p>{quoted(&sentence)}</p>
                    <ul class="stack-2">{places}</ul>
                </div>
            </div>
        }
    })
}

pub fn is_admin(visitor: &Visitor) -> bool {
    visitor.person.role() == Role::Admin
}

/// A refusal that belongs beside the form; anything else is the page's own.
pub fn beside_form(error: Error) -> Result<Problem> {
    match error {
        Error::Refused(problem) if matches!(problem.code.status(), 400 | 409 | 412 | 422) => Ok(problem),
        error => Err(error),
    }
}

/// Nothing to list yet.
pub fn none_yet(heading: &'static str, words: &'static str) -> impl IntoView {
    view! { <Empty heading=heading>{words}</Empty> }
}

/// A field that was not filled in right.
fn fault(pointer: &'static str) -> impl Fn(&'static str) -> Problem {
    move |words| Problem::at(Code::ValidationFailed, pointer, words)
}

/// Words of one line, apart by spaces or commas.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', '\n', '\r', '\t']).filter(|word| !word.is_empty())
}

fn risk_of(document: &Value) -> Option<Risk> {
    let name = document["risk"].as_str()?;
    Risk::ALL.into_iter().find(|risk| risk.as_str() == name)
}

/// The one time a token is shown.
fn token_page(visitor: &Visitor, name: &str, token: &str, next: &'static str, back: &'static str) -> Page {
    visitor.page(name, Place::Settings, || {
        view! {
            <Head title=name.to_owned()>"Its token, shown this once. Only a hash of it is kept."</Head>
            <div class="card pane stack narrow">
                <code class="token">{token.to_owned()}</code>
                <p class="second">{next}</p>
                <p><a class="btn btn-small" href=back>"I have it"</a></p>
            </div>
        }
    })
}

/// Where a kind, a rule or a provider is edited as the document it is.
fn document_editor(text: String, refused: Option<&Problem>) -> impl IntoView + use<> {
    view! {
        <TextArea
            id="document"
            name="document"
            class="in-mono editor"
            value=text
            rows=24
            maxlength=60_000
            invalid=refused.map(|_| "true")
            described_by=refused.map(|_| "refused")
        />
    }
}

/// The name of a principal to add.
fn name_field(value: String) -> impl IntoView {
    view! {
        <label class="field">
            <span>"Name"</span>
            <input class="in" name="name" maxlength="100" required autocomplete="off" spellcheck="false" value=value />
        </label>
    }
}
