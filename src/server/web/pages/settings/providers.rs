//! Settings: what the systems downstream declare, what has been shown of it, and how requests to them go.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::{self, Head, List, Sheet},
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, document_editor, faults, is_admin, none_yet, tabs,
};
use crate::{
    model::{
        json::{self, Limits},
        problem::Problem,
        provider::{Idempotency, Lookup, ProviderName, is_proven},
        time::Timestamp,
    },
    server::{
        config::Secret,
        gateway::circuit::{Circuit, CircuitState},
        service::{
            catalogue::Saved,
            error::{Error, Result},
            provider::{self, ProviderView},
        },
        store::provider::Guarantee,
        web::{
            auth::Admin,
            body::{Form, Path},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/providers", get(providers).post(save_provider))
        .route("/settings/providers/new", get(new_provider))
        .route("/settings/providers/{name}", get(one_provider))
        .route("/settings/providers/{name}/edit", get(edit_provider))
        .route("/settings/providers/{name}/check", post(check_provider))
        .route("/settings/providers/{name}/credential", post(keep_credential))
}

async fn providers(visitor: Visitor) -> Result<Page> {
    let providers = provider::all(&visitor.desk).await?;
    let (now, is_admin) = (visitor.now, is_admin(&visitor));
    Ok(visitor.page("Providers", Place::Settings, || {
        let row = |view: &ProviderView| {
            view! {
                <tr>
                    <th scope="row"><a href=address(&view.name)>{view.name.to_string()}</a></th>
                    <td class="words">{parts::line(&view.document.sentence())}</td>
                    <td>{proof(view, Guarantee::Idempotency, now)}</td>
                    <td>{proof(view, Guarantee::Lookup, now)}</td>
                    <td>{circuit(view, &visitor.desk.gateway.circuit(view.name.as_str()), now)}</td>
                </tr>
            }
        };
        let rows: Vec<_> = providers.iter().map(row).collect();
        let list = if rows.is_empty() {
            let words = "Until a provider declares what a lost answer means, every lost answer goes to a person.";
            none_yet("No providers yet", words).into_any()
        } else {
            let heads = vec!["Name", "What it declares", "Same key, one effect", "Can be asked", "Requests"];
            view! { <div class="card pane gap-top"><List label="Providers" heads=heads>{rows}</List></div> }.into_any()
        };
        let add = || view! { <a class="btn btn-small" href="/settings/providers/new">"Add a provider"</a> }.into_any();
        view! {
            <Head title="Providers" aside=is_admin.then(add)>
                "The systems downstream: what they declare about a lost answer, and what has been shown of it."
            </Head>
            {tabs(Tab::Providers)}
            {list}
        }
    }))
}

fn address(name: &ProviderName) -> String {
    format!("/settings/providers/{name}")
}

/// Whether a guarantee is declared, and whether it counts.
fn proof(view: &ProviderView, guarantee: Guarantee, now: Timestamp) -> AnyView {
    let is_declared = match guarantee {
        Guarantee::Idempotency => view.document.idempotency != Idempotency::None,
        Guarantee::Lookup => view.document.lookup != Lookup::None,
    };
    if !is_declared {
        return "not declared".into_any();
    }
    let Some(check) = view.checks.iter().find(|check| check.guarantee == guarantee) else {
        return view! { <span class="warn">"declared, never proven"</span> }.into_any();
    };
    let at = parts::when(check.checked_at, now, TimeForm::Day);
    match (check.passed, is_proven(Some(check.checked_at), now)) {
        (true, true) => view! { "proven "{at} }.into_any(),
        (true, false) => view! { <span class="warn">"proven "{at}", lapsed"</span> }.into_any(),
        (false, _) => view! { <span class="warn">"not kept "{at}</span> }.into_any(),
    }
}

/// How requests of this process go.
fn circuit(view: &ProviderView, circuit: &Circuit, now: Timestamp) -> AnyView {
    if view.document.destination.is_none() {
        return "sent by executors".into_any();
    }
    match circuit.state(now) {
        CircuitState::Closed => "go out".into_any(),
        CircuitState::Open { until } => {
            view! { <span class="warn">"held until "{parts::when(until, now, TimeForm::Clock)}</span> }.into_any()
        }
        CircuitState::HalfOpen => view! { <span class="warn">"one is tried"</span> }.into_any(),
    }
}

async fn one_provider(visitor: Visitor, Path(name): Path<ProviderName>) -> Result<Page> {
    provider_page(&visitor, &name, None).await
}

async fn provider_page(visitor: &Visitor, name: &ProviderName, refused: Option<&Problem>) -> Result<Page> {
    let view = provider::get(&visitor.desk, name).await?;
    let document = serde_json::to_string_pretty(&view.document).map_err(Error::internal)?;
    let health = visitor.desk.gateway.circuit(name.as_str());
    let (now, is_admin) = (visitor.now, is_admin(visitor));
    Ok(visitor.page(name.as_str(), Place::Settings, || {
        let checks: Vec<_> = view
            .checks
            .iter()
            .map(|check| {
                view! { <li>{parts::when(check.checked_at, now, TimeForm::Day)}": "{parts::line(&check.detail)}</li> }
            })
            .collect();
        let trouble = health.words().map(|words| view! { <p class="warn">{parts::line(words)}</p> });
        let slip = view! {
            <section class="sec sec-first" aria-labelledby="h-declared">
                <div class="sec-head"><h2 id="h-declared">"What it declares"</h2></div>
                <p>{parts::line(&view.document.sentence())}</p>
            </section>
            <section class="sec" aria-labelledby="h-shown">
                <div class="sec-head"><h2 id="h-shown">"What has been shown"</h2></div>
                <dl class="facts">
                    <dt>"Same key, one effect"</dt>
                    <dd>{proof(&view, Guarantee::Idempotency, now)}</dd>
                    <dt>"Can be asked"</dt>
                    <dd>{proof(&view, Guarantee::Lookup, now)}</dd>
                </dl>
                <ul class="stack-2">{checks}</ul>
            </section>
            <section class="sec">
                <details class="raw">
                    <summary>"The document"</summary>
                    <pre>{document}</pre>
                </details>
            </section>
        };
        let credential = if view.has_credential { "kept, sealed" } else { "none" };
        let acts = is_admin.then(|| acts(&view));
        let stub = view! {
            <section class="p p-first">
                <dl class="facts">
                    <dt>"Version"</dt>
                    <dd>{view.version}</dd>
                    <dt>"Credential"</dt>
                    <dd>{credential}</dd>
                    <dt>"Requests"</dt>
                    <dd>{circuit(&view, &health, now)}</dd>
                </dl>
                {trouble}
            </section>
            {acts}
        };
        view! {
            <nav class="crumbs" aria-label="Place"><a href="/settings/providers">"Providers"</a></nav>
            <Head title=view.name.to_string()>{parts::line(&view.document.title)}</Head>
            {faults(refused)}
            <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="In short" />
        }
    }))
}

/// What an admin may do with a provider.
fn acts(view: &ProviderView) -> impl IntoView + use<> {
    let here = address(&view.name);
    view! {
        <section class="p">
            <div class="p-head"><h2>"Check now"</h2></div>
            <form class="stack" action=format!("{here}/check") method="post">
                <p>"Sends the declared check to the destination, or its sandbox."</p>
                <button class="btn btn-ink" type="submit">"Check"</button>
            </form>
        </section>
        <section class="p">
            <div class="p-head"><h2>"Credential"</h2></div>
            <form class="stack" action=format!("{here}/credential") method="post">
                <label class="field">
                    <span>"Its value, sealed and never shown again"</span>
                    <input class="in" type="password" name="credential" maxlength="4000" required autocomplete="off" />
                </label>
                <button class="btn btn-small" type="submit">"Keep"</button>
            </form>
        </section>
        <section class="p"><p><a href=format!("{here}/edit")>"Declare a next version"</a></p></section>
    }
}

async fn check_provider(visitor: Visitor, admin: Admin, Path(name): Path<ProviderName>) -> Result<Response> {
    let done = provider::check(&visitor.desk, &(&admin).into(), &name).await.map(drop);
    back_to(&visitor, &name, done).await
}

#[derive(Deserialize)]
struct Given {
    credential: String,
}

async fn keep_credential(
    visitor: Visitor,
    admin: Admin,
    Path(name): Path<ProviderName>,
    Form(given): Form<Given>,
) -> Result<Response> {
    let done = provider::set_credential(&visitor.desk, &(&admin).into(), &name, Secret(given.credential)).await;
    back_to(&visitor, &name, done).await
}

async fn back_to(visitor: &Visitor, name: &ProviderName, done: Result<()>) -> Result<Response> {
    match done {
        Ok(()) => Ok(Redirect::to(&address(name)).into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(provider_page(visitor, name, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn new_provider(visitor: Visitor, _: Admin) -> Page {
    editor(&visitor, SAMPLE.to_owned(), None)
}

async fn edit_provider(visitor: Visitor, _: Admin, Path(name): Path<ProviderName>) -> Result<Page> {
    let view = provider::get(&visitor.desk, &name).await?;
    Ok(editor(&visitor, serde_json::to_string_pretty(&view.document).map_err(Error::internal)?, None))
}

#[derive(Deserialize)]
struct NewProvider {
    document: String,
}

async fn save_provider(visitor: Visitor, admin: Admin, Form(new): Form<NewProvider>) -> Result<Response> {
    let saved = match json::parse(new.document.as_bytes(), Limits::BODY) {
        Ok(document) => provider::add(&visitor.desk, &(&admin).into(), &document).await,
        Err(problem) => Err(problem.into()),
    };
    match saved {
        Ok(Saved::New(view) | Saved::Same(view)) => Ok(Redirect::to(&address(&view.name)).into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(editor(&visitor, new.document, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

fn editor(visitor: &Visitor, text: String, refused: Option<&Problem>) -> Page {
    visitor.page("Declare a provider", Place::Settings, || {
        view! {
            <Head title="Declare a provider">
                "With a name that is known it becomes the next version, of which nothing is proven yet."
            </Head>
            {tabs(Tab::Providers)}
            {faults(refused)}
            <form class="card pane stack gap-top" action="/settings/providers" method="post">
                <label class="lab" for="document">"The document"</label>
                {document_editor(text, refused)}
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Declare"</button>
                    <a href="/settings/providers">"Back, and declare nothing"</a>
                </div>
            </form>
        }
    })
}

const SAMPLE: &str = r#"{
  "name": "ledger",
  "title": "Ledger",
  "idempotency": { "header": "Idempotency-Key", "retention_s": 86400 },
  "lookup": "authoritative",
  "max_in_flight_s": 30,
  "fences": false,
  "destination": {
    "base_url": "https://ledger.example.test/v1",
    "credential_header": "Authorization",
    "reference": "/id",
    "lookup": { "path": "/entries?key={key}", "items": "/data", "echo": "/key" },
    "check": {
      "base_url": "https://sandbox.ledger.example.test/v1",
      "method": "POST",
      "path": "/entries",
      "body": { "amount": 1 },
      "other_body": { "amount": 2 }
    }
  }
}
"#;
