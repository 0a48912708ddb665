//! Resources: the documents that are held here, what is known of those that live elsewhere, and how they came to be.

use axum::{Router, routing::get};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    fields,
    operation::{address as operation_address, counted, grouped},
    parts::{self, Empty, Head, Meaning, Notice, Sheet},
    render::{Page, Visitor, link},
    shell::Place,
    work,
};
use crate::{
    model::{
        json,
        operation::{Decision, Operation},
        problem::{Code, Problem},
        resource::{FieldChange, VersionChange},
        target::Target,
        time::Timestamp,
    },
    server::{
        service::{
            error::Result,
            shelf::{self, Row, Sheet as Shelf},
        },
        store::resource::{Field, Known, VersionRow},
        web::{
            body::{Path, Query},
            state::AppState,
        },
    },
    ui::time::Form,
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/resources", get(list)).route("/resources/{kind}/{name}", get(show))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Asked {
    prefix: String,
    after: String,
}

async fn list(visitor: Visitor, Query(asked): Query<Asked>) -> Result<Page> {
    let prefix: String = asked.prefix.trim().chars().take(300).collect();
    let (rows, next) = shelf::list(&visitor.desk, &visitor.person, &prefix, &asked.after).await?;
    let next = next.map(|after| link("/resources", &[("prefix", prefix.as_str()), ("after", after.as_str())]));
    let now = visitor.now;
    Ok(visitor.page("Resources", Place::Resources, || {
        view! {
            <Head title="Resources" aside=Some(parts::live().into_any())>
                "What agents write: documents that are held here, and versions of what lives elsewhere. By name."
            </Head>
            <form class="tools" action="/resources" method="get" role="search">
                <div class="filters">
                    {(!prefix.is_empty()).then(|| parts::chip(&prefix, "/resources".to_owned()))}
                </div>
                <span class="search">
                    <label class="unseen" for="q">"Beginning of a name"</label>
                    <input
                        id="q"
                        name="prefix"
                        type="search"
                        maxlength="300"
                        placeholder="Beginning of a name"
                        autocomplete="off"
                        value=prefix.clone()
                    />
                </span>
            </form>
            <div id="list" data-rows="">
                {match rows.is_empty() {
                    true => nothing(&prefix).into_any(),
                    false => table(&rows, now).into_any(),
                }}
            </div>
            {next.map(work::next_page)}
        }
    }))
}

fn nothing(prefix: &str) -> impl IntoView + use<> {
    if prefix.is_empty() {
        return view! {
            <Empty heading="Nothing is known yet" symbol="pending" way_on=Some(("To the desk", "/".to_owned()))>
                "A resource appears with its first write through this desk, or when an executor reports its version."
            </Empty>
        }
        .into_any();
    }
    let prefix = parts::target(prefix);
    view! {
        <Empty heading="No resource matches" way_on=Some(("Show all", "/resources".to_owned()))>
            "None begins with "{prefix}"."
        </Empty>
    }
    .into_any()
}

fn table(rows: &[Row], now: Timestamp) -> impl IntoView + use<> {
    view! {
        <div class="rows perf resources" id="rows">
            <div class="row-head" aria-hidden="true">
                <div class="row-slip">
                    <span>"Resource"</span>
                    <span>"Where it lives"</span>
                    <span>"By, last change"</span>
                </div>
                <div class="row-stub"><span>"Version"</span></div>
            </div>
            <ol>{rows.iter().map(|one| row(one, now)).collect::<Vec<_>>()}</ol>
        </div>
    }
}

fn row(one: &Row, now: Timestamp) -> impl IntoView + use<> {
    let known = &one.known;
    let version = match known.deleted_at {
        Some(_) => format!("{}, deleted", grouped(known.version as u64)),
        None => grouped(known.version as u64),
    };
    view! {
        <li class="row" data-id=one.target.clone() data-version=known.version.to_string()>
            <div class="row-slip">
                <div class="row-name">
                    <a class="row-link" href=format!("/resources/{}", one.target)>{parts::target(&one.target)}</a>
                </div>
                <span class="second">{home(known)}</span>
                <div class="row-who">
                    <span>{parts::line(&one.by)}</span>
                    <span>{parts::when(known.updated_at, now, Form::Clock)}</span>
                </div>
            </div>
            <div class="row-stub"><span class="token-no">{version}</span></div>
        </li>
    }
}

fn home(known: &Known) -> &'static str {
    match (known.is_managed(), known.deleted_at) {
        (true, None) => "held here",
        (true, Some(_)) => "was held here",
        (false, _) => "elsewhere",
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Since {
    /// Older versions than this one.
    before: String,
}

async fn show(
    visitor: Visitor,
    Path((kind, name)): Path<(String, String)>,
    Query(since): Query<Since>,
) -> Result<Page> {
    let target: Target = format!("{kind}/{name}")
        .parse()
        .map_err(|_| Problem::new(Code::NotFound, "this is not the name of a resource"))?;
    let sheet = Shelf::read(&visitor.desk, &visitor.person, &target, since.before.parse().ok()).await?;
    let title = target.to_string();
    let now = visitor.now;
    Ok(visitor.page(&title, Place::Resources, || {
        let slip = view! {
            {top(&sheet).into_any()}
            {staleness(&sheet, now)}
            {content(&sheet)}
            {history(&sheet, now).into_any()}
        }
        .into_any();
        let stub = stub(&sheet, now).into_any();
        view! {
            <div class="split head">
                <nav class="crumbs" aria-label="Place">
                    <a href="/resources">"Resources"</a>
                    <a href=link("/resources", &[("prefix", format!("{kind}/"))])>{parts::line(&kind)}</a>
                </nav>
                <div>{parts::live()}</div>
            </div>
            <Sheet slip=slip stub=stub stub_label="Version" />
        }
    }))
}

fn top(sheet: &Shelf) -> impl IntoView + use<> {
    let known = &sheet.known;
    let (meaning, words) = match (known.is_managed(), known.deleted_at) {
        (true, None) => ("state-sign", "Held here"),
        (true, Some(_)) => ("state-off", "Deleted"),
        (false, _) => ("state-flow", "Lives elsewhere"),
    };
    let sentence = match (known.is_managed(), known.deleted_at) {
        (true, None) => format!("It is at version {}.", known.version),
        (true, Some(_)) => {
            format!("Version {} deleted it. If it is created again, it goes on from there.", known.version)
        }
        (false, _) => format!("Version {} is the last one reported.", known.version),
    };
    view! {
        <div class="slip-top"><span class=format!("state {meaning}")>{words}</span></div>
        <header class="say">
            <h1>{parts::target(sheet.target.as_str())}</h1>
            <p class="effect">{sentence}</p>
        </header>
    }
}

fn staleness(sheet: &Shelf, now: Timestamp) -> Option<AnyView> {
    let known = &sheet.known;
    if known.is_managed() {
        return None;
    }
    let by = sheet.by.clone();
    let words = view! {
        {parts::line(&by)}
        " reported it "
        {parts::since(known.updated_at, now)}
        " ago. It may have moved since: only the destination can check."
    };
    let notice = view! { <Notice meaning=Meaning::Flow heading="The version is a report">{words}</Notice> };
    Some(view! { <div class="sec-notice">{notice}</div> }.into_any())
}

fn content(sheet: &Shelf) -> Option<AnyView> {
    let document = sheet.document.as_ref()?;
    let nodes = json::flatten(document);
    // The members of an object need no heading of their own.
    let nodes = if document.is_object() { nodes[1..].to_vec() } else { nodes };
    let values = nodes.iter().filter(|node| !fields::is_container(node)).count();
    let rows = fields::fold(&nodes, &fields::type_of);
    let folded: usize = rows.iter().map(fields::folds).sum();
    let note = match folded {
        0 => counted(values, "value"),
        1 => format!("{}. 1 part is folded: open to read.", counted(values, "value")),
        many => format!("{}. {many} parts are folded: open to read.", counted(values, "value")),
    };
    let bytes = counted(json::canonical(document).len(), "byte");
    let body = match nodes.is_empty() {
        true => view! { <p class="quiet">"An object without members."</p> }.into_any(),
        false => view! { <div class="box">{rows.into_iter().map(fields::part).collect::<Vec<_>>()}</div> }.into_any(),
    };
    let section = view! {
        <section class="sec" aria-labelledby="h-content">
            <div class="sec-head">
                <h2 id="h-content">"What it says now"</h2>
                <span class="note">{note}</span>
                <span class="push">{bytes}</span>
            </div>
            {body}
        </section>
    };
    Some(section.into_any())
}

fn history(sheet: &Shelf, now: Timestamp) -> impl IntoView + use<> {
    let versions: Vec<_> = sheet.history.iter().map(|version| entry(sheet, version, now)).collect();
    let older = sheet.older.map(|version| {
        let earlier = link(&format!("/resources/{}", sheet.target), &[("before", version.to_string())]);
        view! { <p class="more"><a href=earlier rel="next">"Older versions"</a></p> }
    });
    view! {
        <section class="sec" aria-labelledby="h-history">
            <div class="sec-head">
                <h2 id="h-history">"How it came to be"</h2>
                <span class="note">"Every version, who made it, and which fields it changed. Newest first."</span>
            </div>
            <ol class="versions-list">{versions}</ol>
            {older}
        </section>
    }
}

/// Fields up to which a version lists them openly.
const MANY_FIELDS: usize = 12;

fn entry(sheet: &Shelf, version: &VersionRow, now: Timestamp) -> impl IntoView + use<> {
    let by = sheet.names.author(version.author.clone(), &version.by);
    let op = version.author.operation.as_ref().and_then(|id| sheet.operations.get(id));
    let word = match version.change {
        VersionChange::Created => "created by ",
        VersionChange::Changed => "changed by ",
        VersionChange::Deleted => "deleted by ",
        VersionChange::Observed => "reported by ",
    };
    let run = version.author.run.as_ref().map(|run| view! { ", "<a href=format!("/runs/{run}")>"its run"</a> });
    let listed = match version.fields.len() {
        0 => None,
        many => {
            let list = view! { <ul class="touched">{version.fields.iter().map(touched).collect::<Vec<_>>()}</ul> };
            Some(match many > MANY_FIELDS {
                true => view! { <details class="fold"><summary>{counted(many, "field")}</summary>{list}</details> }
                    .into_any(),
                false => list.into_any(),
            })
        }
    };
    view! {
        <li>
            <span class="token-no">{version.version.to_string()}</span>
            <div>
                <p>
                    {word}
                    <b>{parts::line(&by)}</b>
                    {op.map(through)}
                    {run}
                </p>
                {listed}
            </div>
            <span class="second">{parts::when(version.at, now, Form::Clock)}</span>
        </li>
    }
}

/// Through which operation, and under whose approval.
pub fn through(op: &Operation) -> impl IntoView + use<> {
    view! {
        ", "
        <a class="no no-ours" href=operation_address(op.id())>{op.proposal.fingerprint.short_code()}</a>
        {parts::line(&approved(op))}
    }
}

/// `, approved by omar and lin`
pub fn approved(op: &Operation) -> String {
    let votes = op.standing_votes().filter(|vote| vote.decision == Decision::Approve);
    let names: Vec<_> = votes.map(|vote| vote.name.as_str()).collect();
    match (names.is_empty(), op.life.approval.granted_at) {
        (true, Some(_)) => ", granted by rule".to_owned(),
        (true, None) => String::new(),
        (false, _) => format!(", approved by {}", names.join(" and ")),
    }
}

fn touched(field: &Field) -> impl IntoView + use<> {
    let (sign, word) = match field.change {
        FieldChange::Add => ("+", "added"),
        FieldChange::Replace => ("→", "changed"),
        FieldChange::Remove => ("−", "removed"),
    };
    let name = match field.pointer.trim_start_matches('/') {
        "" => "the whole document".to_owned(),
        name => name.to_owned(),
    };
    let digests =
        [&field.old_digest, &field.new_digest].map(|digest| digest.as_deref().unwrap_or("nothing").to_owned());
    view! {
        <li title=format!("{} → {}", digests[0], digests[1])>
            <span aria-hidden="true">{sign}</span>
            " "
            <code>{parts::line(&name)}</code>
            " "
            {word}
        </li>
    }
}

fn stub(sheet: &Shelf, now: Timestamp) -> impl IntoView + use<> {
    let known = &sheet.known;
    let by = sheet.by.clone();
    let label = if known.is_managed() { "Version" } else { "Version, as reported" };
    let waiting: Vec<_> = sheet
        .waiting
        .iter()
        .map(|op| {
            let expected = op.proposal.expected_version.map(|version| format!(", on version {version}"));
            view! {
                <li>
                    <a class="no" href=operation_address(op.id())>{op.proposal.fingerprint.short_code()}</a>
                    " "
                    {op.proposal.title.clone()}
                    {expected}
                    ", "
                    {op.state().as_str()}
                </li>
            }
        })
        .collect();
    let waiting = match waiting.is_empty() {
        true => view! { <p>"No write of it waits."</p> }.into_any(),
        false => view! { <ul class="stack-2 small">{waiting}</ul> }.into_any(),
    };
    view! {
        <section class="p p-first">
            <div class="clock">
                <span class="l">{label}</span>
                <span class="t">{grouped(known.version as u64)}</span>
                <span class="u">{parts::line(&by)}", "{parts::when(known.updated_at, now, Form::Clock)}</span>
            </div>
        </section>
        <section class="p">
            <div class="p-head"><h2>"Waiting writes"</h2></div>
            {waiting}
        </section>
        {rules(sheet).into_any()}
        <section class="p">
            <dl class="facts">
                <dt>"Entity tag"</dt>
                <dd class="id">{format!("\"{}\"", known.current())}</dd>
                <dt>"Precondition"</dt>
                <dd class="id">{format!("If-Match: \"{}\"", known.current())}</dd>
            </dl>
        </section>
    }
}

fn rules(sheet: &Shelf) -> impl IntoView + use<> {
    let rules: Vec<_> = sheet
        .rules
        .iter()
        .map(|compiled| {
            let rule = &compiled.rule;
            let mut says = Vec::new();
            if rule.schema.is_some() {
                says.push("the whole document has a schema".to_owned());
            }
            says.extend(
                rule.max_items
                    .iter()
                    .map(|limit| format!("{} holds {} at most", limit.pointer.trim_start_matches('/'), limit.max)),
            );
            says.extend(rule.max_live.map(|max| format!("{max} exist at most")));
            says.extend(
                rule.array_keys
                    .iter()
                    .map(|(pointer, key)| format!("{} is compared by {key}", pointer.trim_start_matches('/'))),
            );
            if !rule.readers.is_empty() {
                says.push(format!("read by {}", rule.readers.join(", ")));
            }
            let schema = rule.schema.as_ref().map(|schema| {
                view! {
                    <details class="raw">
                        <summary>"Its schema"</summary>
                        <pre>{parts::shown(&super::three::print(schema), crate::model::text::Breaks::Keep)}</pre>
                    </details>
                }
            });
            view! {
                <li>
                    {parts::target(rule.scope.as_str())}
                    {says.into_iter().map(|words| view! { <p>{parts::line(&words)}</p> }).collect::<Vec<_>>()}
                    {schema}
                </li>
            }
        })
        .collect();
    let body = match rules.is_empty() {
        true => view! { <p>"No rule holds on it."</p> }.into_any(),
        false => view! { <ul class="stack">{rules}</ul> }.into_any(),
    };
    view! {
        <section class="p">
            <div class="p-head"><h2>"Rules that hold on it"</h2></div>
            {body}
        </section>
    }
}
