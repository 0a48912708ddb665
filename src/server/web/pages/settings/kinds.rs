//! Settings: the kinds of operations, and one more.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::{self, Head, List, Sheet},
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, document_editor, faults, is_admin, risk_of, tabs,
};
use crate::{
    model::{
        json::{self, Limits},
        kind::{Kind, KindName},
        problem::{Code, Problem},
        text::Breaks,
    },
    server::{
        service::{
            catalogue::{self},
            error::{Error, Result},
        },
        web::{
            auth::Admin,
            body::{Form, Path},
            state::AppState,
        },
    },
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/kinds", get(kinds).post(save_kind))
        .route("/settings/kinds/new", get(new_kind))
        .route("/settings/kinds/{name}", get(kind))
}

async fn kinds(visitor: Visitor) -> Result<Page> {
    let kinds = catalogue::all_kinds(&visitor.desk).await?;
    let is_admin = is_admin(&visitor);
    Ok(visitor.page("Kinds", Place::Settings, || {
        let rows: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let text = |name: &str| kind.document[name].as_str().unwrap_or_default().to_owned();
                let origin = if kind.built_in { "built in" } else { "yours" };
                view! {
                    <tr>
                        <th scope="row"><a href=format!("/settings/kinds/{}", kind.name)>{kind.name.clone()}</a></th>
                        <td>{parts::line(&text("title"))}</td>
                        <td>{risk_of(&kind.document).map(parts::risk)}</td>
                        <td>{parts::line(&text("conditional"))}</td>
                        <td>{parts::line(&text("executor"))}</td>
                        <td class="meta">"version "{kind.version}", "{origin}</td>
                    </tr>
                }
            })
            .collect();
        view! {
            <Head
                title="Kinds"
                aside=is_admin.then(|| view! { <a class="btn btn-small" href="/settings/kinds/new">"Add a kind"</a> }.into_any())
            >
                "What agents may propose: its schema, its words, its risk. Versions are only ever added."
            </Head>
            {tabs(Tab::Kinds)}
            <div class="card pane gap-top">
                <List label="Kinds" heads=vec!["Name", "Title", "Risk", "Version of the target", "Carried out by", "Version"]>{rows}</List>
            </div>
        }
    }))
}

async fn kind(visitor: Visitor, Path(name): Path<String>) -> Result<Page> {
    let nothing = || Problem::new(Code::NotFound, "there is no such kind");
    let name: KindName = name.parse().map_err(|_| nothing())?;
    let view = catalogue::newest_kind(&visitor.desk, &name).await?;
    let kind = Kind::load(&view.document)?;
    let document = serde_json::to_string_pretty(&view.document).map_err(Error::internal)?;
    let origin = if view.built_in { "Built in; nobody redefines it." } else { "Added by an admin." };
    let word = |name: &str| parts::capital(view.document[name].as_str().unwrap_or_default());
    let (conditional, lease, executor, resolver) =
        (word("conditional"), word("lease"), word("executor"), word("resolver"));
    Ok(visitor.page(view.name.as_str(), Place::Settings, || {
        let params: Vec<_> = kind
            .params()
            .map(|(name, schema)| {
                let form = schema["type"].as_str().unwrap_or("any").to_owned();
                let words = schema["description"].as_str().unwrap_or_default().to_owned();
                view! {
                    <tr>
                        <th scope="row">{name.to_owned()}</th>
                        <td class="words">{parts::line(&words)}</td>
                        <td class="kind">{form}</td>
                    </tr>
                }
            })
            .collect();
        let slip = view! {
            <section class="sec sec-first" aria-labelledby="h-words">
                <div class="sec-head"><h2 id="h-words">"Its words"</h2></div>
                <dl class="facts">
                    <dt>"Effect"</dt>
                    <dd><code>{parts::said(&kind.consequence, Breaks::Keep)}</code></dd>
                    <dt>"To undo"</dt>
                    <dd><code>{parts::said(&kind.rollback, Breaks::Keep)}</code></dd>
                </dl>
            </section>
            <section class="sec" aria-labelledby="h-params">
                <div class="sec-head"><h2 id="h-params">"Parameters"</h2></div>
                <div class="box"><table class="fields"><tbody>{params}</tbody></table></div>
            </section>
            <section class="sec">
                <details class="raw">
                    <summary>"The document"</summary>
                    <pre>{document}</pre>
                </details>
            </section>
        };
        let stub = view! {
            <section class="p p-first">
                <dl class="facts">
                    <dt>"Risk"</dt>
                    <dd>{parts::risk(kind.risk)}</dd>
                    <dt>"Version of the target"</dt>
                    <dd>{conditional}</dd>
                    <dt>"Lease"</dt>
                    <dd>{lease}</dd>
                    <dt>"In conflict"</dt>
                    <dd>{resolver}</dd>
                    <dt>"Carried out by"</dt>
                    <dd>{executor}</dd>
                    <dt>"Version"</dt>
                    <dd>{view.version}</dd>
                </dl>
            </section>
            <section class="p"><p>{origin}</p></section>
        };
        view! {
            <nav class="crumbs" aria-label="Place"><a href="/settings/kinds">"Kinds"</a></nav>
            <Head title=view.name.clone()>{parts::line(&kind.title)}</Head>
            <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="In short" />
        }
    }))
}

async fn new_kind(visitor: Visitor, _: Admin) -> Page {
    kind_editor(&visitor, KIND_SAMPLE.to_owned(), None)
}

#[derive(Deserialize)]
struct NewKind {
    document: String,
}

async fn save_kind(visitor: Visitor, admin: Admin, Form(new): Form<NewKind>) -> Result<Response> {
    let saved = match json::parse(new.document.as_bytes(), Limits::BODY) {
        Ok(document) => catalogue::add_kind(&visitor.desk, &(&admin).into(), &document).await,
        Err(problem) => Err(problem.into()),
    };
    match saved {
        Ok(catalogue::Saved::New(kind) | catalogue::Saved::Same(kind)) => {
            Ok(Redirect::to(&format!("/settings/kinds/{}", kind.name)).into_response())
        }
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(kind_editor(&visitor, new.document, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

fn kind_editor(visitor: &Visitor, text: String, refused: Option<&Problem>) -> Page {
    visitor.page("Add a kind", Place::Settings, || {
        view! {
            <Head title="Add a kind">"With the name of one of yours it becomes that kind's next version."</Head>
            {tabs(Tab::Kinds)}
            {faults(refused)}
            <form class="card pane stack gap-top" action="/settings/kinds" method="post">
                <label class="lab" for="document">"The document"</label>
                {document_editor(text, refused)}
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Add"</button>
                    <a href="/settings/kinds">"Back, and add nothing"</a>
                </div>
            </form>
        }
    })
}

const KIND_SAMPLE: &str = r#"{
  "name": "newsletter.send",
  "title": "Send newsletter",
  "schema": {
    "type": "object",
    "additionalProperties": false,
    "required": ["list", "issue"],
    "properties": {
      "list": { "type": "string", "pattern": "^[a-z0-9-]{1,40}$" },
      "issue": { "type": "string", "minLength": 1, "maxLength": 80 }
    }
  },
  "target": "newsletter/{list}",
  "verb": "create",
  "consequence": "Sends issue {{ issue }} to everybody on list {{ list }}",
  "rollback": "It cannot be undone: mail does not come back",
  "risk": "high",
  "conditional": "never",
  "lease": "never",
  "resolver": "irreversible",
  "executor": "agent"
}
"#;
