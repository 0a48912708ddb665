//! Leases: who has the exclusive right to write what, until when; and the way to take one away.

use axum::{
    Router,
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    error,
    parts::{self, Empty, Head, Meaning, Notice, Sheet},
    render::{Page, Visitor, link},
    shell::Place,
    work,
};
use crate::{
    model::{
        approval::Role,
        id::LeaseId,
        problem::{Code, Problem},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            error::{Error, Result},
            lease::{self, LeaseView},
            sheet,
        },
        web::{
            auth::{Operator, Principal},
            body::{Form, Path, Query},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

const PAGE: i64 = 100;

pub fn routes() -> Router<AppState> {
    let back = |Path(id): Path<LeaseId>| async move { Redirect::to(&address(&id)) };
    Router::new()
        .route("/leases", get(list))
        .route("/leases/{id}", get(show))
        .route("/leases/{id}/row", get(gone))
        .route("/leases/{id}/force-release", post(force_release).get(back))
}

pub fn address(id: &LeaseId) -> String {
    format!("/leases/{id}")
}

#[derive(Deserialize)]
struct Before {
    before: Option<String>,
}

async fn list(visitor: Visitor, Query(Before { before }): Query<Before>) -> Result<Page> {
    let before = before.as_deref().and_then(|id| id.parse::<LeaseId>().ok());
    let reader = Principal::Person(visitor.person.clone());
    let mut leases = lease::list(&visitor.desk, &reader, None, before.as_ref(), PAGE + 1).await?;
    let has_more = leases.len() as i64 > PAGE;
    leases.truncate(PAGE as usize);
    let next = leases.last().filter(|_| has_more).map(|one| link("/leases", &[("before", one.id.as_str())]));
    let now = visitor.now;
    Ok(visitor.page("Leases", Place::Runs, || {
        view! {
            <Head title="Leases" aside=Some(parts::live().into_any())>
                "Each is the exclusive right of one run to write one resource, for a short time. Newest first."
            </Head>
            {work::lanes(work::Lane::Leases)}
            <div id="list" class="gap-top" data-rows="/leases">
                {match leases.is_empty() {
                    true => view! {
                        <Empty heading="Nobody holds a lease" way_on=Some(("See the runs", "/runs".to_owned()))>
                            "A run takes one before it writes what only one may write at a time."
                        </Empty>
                    }
                        .into_any(),
                    false => rows(&leases, now).into_any(),
                }}
            </div>
            {next.map(work::next_page)}
        }
    }))
}

fn rows(leases: &[LeaseView], now: Timestamp) -> impl IntoView + use<> {
    view! {
        <div class="rows perf leases" id="rows">
            <div class="row-head" aria-hidden="true">
                <div class="row-slip">
                    <span>"Resource and holder"</span>
                    <span>"Progress"</span>
                    <span>"Held"</span>
                </div>
                <div class="row-stub"><span>"Token"</span><span>"Ends in"</span></div>
            </div>
            <ol>{leases.iter().map(|one| row(one, now)).collect::<Vec<_>>()}</ol>
        </div>
    }
}

/// One lease in a list. Its time runs out in front of the reader.
pub fn row(lease: &LeaseView, now: Timestamp) -> impl IntoView + use<> {
    view! {
        <li class="row" data-id=lease.id.to_string() data-version=lease.version.to_string()>
            <div class="row-slip">
                <div class="row-what">
                    <div class="row-name">
                        <a class="row-link" href=address(&lease.id)>
                            {parts::target(lease.resource.as_str())}
                        </a>
                    </div>
                    <p class="row-effect">{parts::line(&lease.agent_name)}", run "{parts::line(&lease.run_label)}</p>
                </div>
                <span class="second">{progress(lease, now)}</span>
                <span class="second">"for "{parts::since(lease.acquired_at, now)}</span>
            </div>
            <div class="row-stub">
                <span class="token-no">{lease.fencing_token.to_string()}</span>
                {parts::left(lease.expires_at, now)}
            </div>
        </li>
    }
}

fn progress(lease: &LeaseView, now: Timestamp) -> impl IntoView + use<> {
    match &lease.progress {
        Some(mark) => view! { {parts::line(mark)}", "{parts::since(lease.progressed_at, now)}" ago" }.into_any(),
        None => view! { <span class="quiet">"no progress told"</span> }.into_any(),
    }
}

async fn show(visitor: Visitor, Path(id): Path<LeaseId>) -> Result<Page> {
    page(&visitor, &id, None).await
}

/// What was typed, and why it was not taken.
struct Draft {
    id: String,
    reason: String,
    refused: Refused,
}

enum Refused {
    Id,
    Reason(&'static str),
    /// By the service.
    Whole(Problem),
}

#[derive(Deserialize)]
struct Forced {
    #[serde(default)]
    id: String,
    #[serde(default)]
    reason: String,
}

async fn force_release(
    visitor: Visitor,
    operator: Result<Operator>,
    Path(id): Path<LeaseId>,
    Form(given): Form<Forced>,
) -> Result<Response> {
    let reason = given.reason.trim().to_owned();
    let refused = match (given.id.trim() == id.as_str(), reason.chars().count()) {
        (false, _) => Some(Refused::Id),
        (true, 0) => Some(Refused::Reason("Say why: it stands in the log.")),
        (true, 1..=1000) => None,
        (true, _) => Some(Refused::Reason("At most 1000 characters.")),
    };
    let refused = match refused {
        Some(refused) => refused,
        None => {
            let result = match operator {
                Ok(operator) => lease::force_release(&visitor.desk, &operator, &id, reason).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(_) => return Ok(Redirect::to(&address(&id)).into_response()),
                Err(Error::Refused(problem)) if problem.code != Code::NotFound => Refused::Whole(problem),
                Err(error) => return Err(error),
            }
        }
    };
    let code = match &refused {
        Refused::Whole(problem) => problem.code,
        Refused::Id | Refused::Reason(_) => Code::ValidationFailed,
    };
    let draft = Draft { id: given.id, reason: given.reason, refused };
    Ok(page(&visitor, &id, Some(draft)).await?.refused(code).into_response())
}

async fn page(visitor: &Visitor, id: &LeaseId, draft: Option<Draft>) -> Result<Page> {
    let lease = lease::get(&visitor.desk, id).await?;
    let names = sheet::names(&mut visitor.desk.store.read().await?).await?;
    let ended_by = lease.ended_by.as_ref().map(|by| names.get(by).cloned().unwrap_or_else(|| by.clone()));
    let now = visitor.now;
    let may_force = matches!(visitor.person.role(), Role::Operator | Role::Admin);
    let title = format!("Lease of {}", lease.resource);
    Ok(visitor.page(&title, Place::Runs, || {
        let slip = facts(&lease, ended_by, now).into_any();
        let stub = forcing(&lease, may_force, draft, now).into_any();
        let is_live = lease.state == "live";
        view! {
            <nav class="crumbs" aria-label="Place">
                <a href="/leases">"Leases"</a>
            </nav>
            <Head title=title.clone()>
                {match is_live {
                    true => view! {
                        {parts::line(&lease.agent_name)}
                        " alone may write it, for another "
                        {parts::left(lease.expires_at, now)}
                        "."
                    }
                        .into_any(),
                    false => view! { "It is over: "{parts::capital(lease.state).to_lowercase()}"." }.into_any(),
                }}
            </Head>
            <Sheet slip=slip stub=stub stub_label="Release by force" />
        }
    }))
}

fn state(lease: &LeaseView) -> impl IntoView + use<> {
    let meaning = match lease.state {
        "live" => "state-sign",
        "released" => "state-off",
        "expired" | "taken_over" => "state-off",
        _ => "state-stop",
    };
    view! { <span class=format!("state {meaning}")>{parts::capital(lease.state)}</span> }
}

fn facts(lease: &LeaseView, ended_by: Option<String>, now: Timestamp) -> impl IntoView + use<> {
    let ended = lease.ended_at.map(|at| {
        view! {
            <dt>"Ended"</dt>
            <dd>
                {parts::when(at, now, TimeForm::Clock)}
                {ended_by.map(|by| view! { " by "{parts::line(&by)} })}
                {lease.end_reason.as_ref().map(|why| view! { ": "{parts::said(why, Breaks::Keep)} })}
            </dd>
        }
    });
    view! {
        <div class="slip-top">{state(lease)}</div>
        <section class="sec sec-first">
            <dl class="facts">
                <dt>"Resource"</dt>
                <dd>
                    <a href=format!("/resources/{}", lease.resource)>{parts::target(lease.resource.as_str())}</a>
                </dd>
                <dt>"Holder"</dt>
                <dd>
                    {parts::line(&lease.agent_name)}
                    ", run "
                    <a href=format!("/runs/{}", lease.run)>{parts::line(&lease.run_label)}</a>
                </dd>
                <dt>"Fencing token"</dt>
                <dd>{lease.fencing_token.to_string()}</dd>
                <dt>"Acquired"</dt>
                <dd>
                    {parts::when(lease.acquired_at, now, TimeForm::Clock)}", "{parts::since(lease.acquired_at, now)}" ago"
                </dd>
                <dt>{if lease.expires_at > now { "Ends" } else { "Ended at the latest" }}</dt>
                <dd>{parts::when(lease.expires_at, now, TimeForm::Clock)}", unless it is renewed before"</dd>
                <dt>"Progress"</dt>
                <dd>{progress(lease, now)}</dd>
                {ended}
                <dt>"Id"</dt>
                <dd class="id">{lease.id.to_string()}</dd>
            </dl>
        </section>
    }
}

fn forcing(lease: &LeaseView, may_force: bool, draft: Option<Draft>, now: Timestamp) -> impl IntoView + use<> {
    let heading = || view! { <div class="p-head"><h2>"Release by force"</h2></div> };
    let words = match (lease.ended_at, may_force) {
        (Some(_), _) => Some("It has ended: there is nothing left to take away."),
        (None, false) => Some("Off: only operators and admins may. It ends by itself when it is not renewed."),
        (None, true) => None,
    };
    if let Some(words) = words {
        let refusal = draft.and_then(|draft| match draft.refused {
            Refused::Whole(problem) => Some(refusal(&problem)),
            _ => None,
        });
        return view! { <section class="p p-first">{heading()}{refusal}<p>{words}</p></section> }.into_any();
    }
    let (typed, reason, refused) = match draft {
        Some(draft) => (draft.id, draft.reason, Some(draft.refused)),
        None => (String::new(), String::new(), None),
    };
    let (bad_id, bad_reason, whole) = match refused {
        Some(Refused::Id) => (true, None, None),
        Some(Refused::Reason(words)) => (false, Some(words), None),
        Some(Refused::Whole(problem)) => (false, None, Some(problem)),
        None => (false, None, None),
    };
    let late = (now >= lease.expires_at).then_some("Its time is up already: whoever asks next gets the resource. ");
    view! {
        <form class="p p-first" action=format!("{}/force-release", address(&lease.id)) method="post" aria-label="Release by force">
            {heading()}
            <div class="stack">
                {whole.map(|problem| refusal(&problem))}
                <p>
                    {late}"The holder is not asked. Its token is stale at once: what it still writes under it is refused \
                     here and wherever fences are checked."
                </p>
                <label class="field">
                    <span>"The lease’s id, typed"</span>
                    <input
                        class="in mono"
                        name="id"
                        maxlength="64"
                        autocomplete="off"
                        spellcheck="false"
                        required
                        value=typed
                        aria-invalid=bad_id.then_some("true")
                        aria-describedby=bad_id.then_some("refused-id")
                    />
                </label>
                {bad_id
                    .then(|| view! { <p class="err" id="refused-id" role="alert">"That is not this lease’s id. Nothing was done."</p> })}
                <label class="field">
                    <span>"Why"</span>
                    <input
                        class="in"
                        name="reason"
                        maxlength="1000"
                        required
                        value=reason
                        aria-invalid=bad_reason.map(|_| "true")
                        aria-describedby=bad_reason.map(|_| "refused-reason")
                    />
                </label>
                {bad_reason.map(|words| view! { <p class="err" id="refused-reason" role="alert">{words}</p> })}
                <button class="btn btn-stop" type="submit">"Release it by force"</button>
            </div>
        </form>
    }
    .into_any()
}

fn refusal(problem: &Problem) -> impl IntoView + use<> {
    let words = error::sentence(&problem.detail);
    view! { <Notice meaning=Meaning::Heed heading=problem.code.title()>{words}</Notice> }
}

/// What has become of a lease that left the list.
async fn gone(visitor: Visitor, Path(id): Path<LeaseId>) -> Result<Html<String>> {
    let lease = lease::get(&visitor.desk, &id).await?;
    let now = visitor.now;
    let at = lease.ended_at.unwrap_or(lease.expires_at);
    let words = parts::capital(lease.state).to_lowercase();
    let view = view! {
        <li class="row row-gone" data-id=lease.id.to_string() data-version=lease.version.to_string()>
            <div class="row-slip">
                <span></span>
                {state(&lease)}
                <span>{parts::target(lease.resource.as_str())}</span>
                <span></span>
            </div>
            <div class="row-stub">
                <span class="token-no">{lease.fencing_token.to_string()}</span>
                <span class="wide">{words}" "{parts::when(at, now, TimeForm::Clock)}</span>
            </div>
        </li>
    };
    Ok(Html(view.to_html()))
}
