//! The audit log: what the server says of it, its records in one order, and the browser's own verdict.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    parts,
    render::{Page, Visitor},
    shell::Place,
};
use crate::{
    model::{
        audit::{Actor, ActorKind, Event, record::Sealed},
        id::OperationId,
        problem::{Code, Problem},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            chain::{Chain, Entry, Seal, Which},
            error::Result,
        },
        web::{assets, auth::Auditor, body::Query, state::AppState},
    },
    ui::{
        audit::{VerifyAudit, grouped},
        textarea::TextArea,
        time::Form,
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/audit", get(show))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Only records below this number.
    before: Option<u64>,
    operation: Option<OperationId>,
    /// A record's number or an operation's id.
    #[serde(default)]
    q: String,
}

async fn show(visitor: Visitor, _: Auditor, Query(asked): Query<Asked>) -> Result<Response> {
    let q = asked.q.trim().replace([',', ' '], "");
    if !q.is_empty() {
        let found = match (q.parse::<u64>(), q.parse::<OperationId>()) {
            (Ok(seq), _) => format!("/audit?before={}", seq.saturating_add(1)),
            (_, Ok(id)) => format!("/audit?operation={id}"),
            _ => return Err(Problem::new(Code::BadRequest, "search for a record's number or an operation's id").into()),
        };
        return Ok(Redirect::to(&found).into_response());
    }
    let which = match (asked.operation, asked.before.filter(|seq| i64::try_from(*seq).is_ok())) {
        (Some(id), _) => Which::Of(id),
        (None, Some(seq)) => Which::Before(seq),
        (None, None) => Which::Newest,
    };
    let chain = Chain::read(&visitor.desk, &which).await?;
    Ok(page(&visitor, &chain, &which).into_response())
}

fn page(visitor: &Visitor, chain: &Chain, which: &Which) -> Page {
    let now = visitor.now;
    visitor.page("Audit", Place::Audit, || {
        view! {
            <div class="split head">
                <div>
                    <h1>"Audit"</h1>
                    <p>"Every change and every refusal, one record each, in one order."</p>
                </div>
                <div class="head-acts">
                    <a class="btn btn-small" href="/api/v1/audit/export">"Export"</a>
                    <a class="btn btn-small" href="/api/v1/audit/checkpoint">"Checkpoint"</a>
                </div>
            </div>
            {verdict(chain, now)}
            <form class="tools" action="/audit" method="get" role="search">
                <div class="filters">{filter(which)}</div>
                <span class="search">
                    <label class="unseen" for="q">"Search"</label>
                    <input id="q" name="q" type="search" placeholder="Number or operation id" />
                </span>
            </form>
            {records(chain, now)}
            <p class="keys keys-audit">
                {chain.older.map(|seq| view! { <a href=format!("/audit?before={seq}")>"Older"</a> })}
                <span>
                    "Verify without this server: "
                    <code>"counterfoil audit verify audit.jsonl --vkey key.txt --pin checkpoint.txt"</code>
                </span>
            </p>
            <VerifyAudit script=format!("/pkg/verifier.js?v={}", assets::version()) />
        }
    })
}

fn filter(which: &Which) -> Option<AnyView> {
    let link = match which {
        Which::Newest => return None,
        Which::Before(seq) => view! {
            <a class="filter on" href="/audit">{format!("Below {} ", grouped(*seq))}<span class="x" aria-label="remove">"×"</span></a>
        }
        .into_any(),
        Which::Of(id) => view! {
            <a class="filter on" href="/audit">{format!("{id} ")}<span class="x" aria-label="remove">"×"</span></a>
            <a class="filter" href=format!("/operations/{id}")>"Show the operation"</a>
        }
        .into_any(),
    };
    Some(link)
}

/// What the server says; the browser puts its own findings in place of it.
fn verdict(chain: &Chain, now: Timestamp) -> impl IntoView + use<> {
    let total = chain.total;
    let (heading, sentence) = match &chain.newest_seal {
        Some(seal) => {
            let newer = match total - seal.size {
                0 => String::new(),
                1 => " 1 newer record waits for the next checkpoint.".to_owned(),
                newer => format!(" {} newer records wait for the next checkpoint.", grouped(newer)),
            };
            let heading = format!("Signed to record {}", grouped(seal.size.saturating_sub(1)));
            (heading, format!("The server’s own word: nothing was checked here.{newer}"))
        }
        None => ("Not signed yet".to_owned(), "The first checkpoint is signed within a minute of a change.".to_owned()),
    };
    let signed = chain.newest_seal.as_ref().map(|seal| {
        view! {
            <dt>"Signed"</dt>
            <dd>
                {format!("{} checkpoints, the newest over {} records, ", grouped(seal.number), grouped(seal.size))}
                {parts::when(seal.at, now, Form::Clock)}
            </dd>
        }
    });
    let root = chain.newest_seal.as_ref().and_then(|seal| seal.root).map(|root| {
        view! { <dt>"Root"</dt><dd class="id">{short(&root.to_string())}</dd> }
    });
    // `name+hash+key`: the first two name it.
    let key = chain.vkey.splitn(3, '+').take(2).collect::<Vec<_>>().join("+");
    view! {
        <section
            class="sheet split perf verdict"
            aria-label="Verdict"
            data-audit=""
            data-export="/api/v1/audit/export"
            data-vkey=chain.vkey.clone()
        >
            <div class="slip">
                <div data-verdict="">
                    <div class="notice notice-flow notice-top">
                        <div>
                            <h2>{heading}</h2>
                            <p>{sentence}</p>
                        </div>
                    </div>
                </div>
                <dl class="facts facts-wide" data-facts="">
                    <dt>"Chain"</dt>
                    <dd>{format!("{} records, 0 to {}", grouped(total), grouped(total.saturating_sub(1)))}</dd>
                    {signed}
                </dl>
                {bring()}
            </div>
            <aside class="stub" aria-label="How it was checked">
                <section class="p" data-checked="">
                    <p>"Not checked in this browser: that takes scripts."</p>
                </section>
                <section class="p">
                    <dl class="facts">
                        <dt>"Key"</dt>
                        <dd class="id">{key}</dd>
                        {root}
                    </dl>
                </section>
                <section class="p">
                    <button class="btn btn-small" type="button" data-forget="" hidden>
                        "Forget the key and checkpoint kept here"
                    </button>
                </section>
            </aside>
        </section>
    }
}

/// A key and a checkpoint that did not come from this server.
fn bring() -> impl IntoView {
    view! {
        <details class="raw bring">
            <summary>"Check against a key and a checkpoint of your own"</summary>
            <form class="stack" data-bring="" aria-label="Your own key and checkpoint">
                <label class="field">
                    <span>"Verifier key"</span>
                    <input class="in in-mono" name="vkey" autocomplete="off" spellcheck="false" placeholder="name+hash+key" />
                </label>
                <label class="field">
                    <span>"Checkpoint, if you kept one"</span>
                    <TextArea id="pin" name="pin" rows=4 class="in-mono" />
                </label>
                <div class="foot">
                    <button class="btn" type="submit">"Verify"</button>
                    <span class="why-off">"Here, in this browser. Nothing is sent."</span>
                </div>
            </form>
        </details>
    }
}

fn records(chain: &Chain, now: Timestamp) -> impl IntoView + use<> {
    let mut seals = chain.seals.iter().peekable();
    let mut rows = Vec::new();
    for entry in &chain.records {
        while let Some(seal) = seals.next_if(|seal| seal.size > entry.seq()) {
            rows.push(band(seal, now));
        }
        rows.push(row(chain, entry, now));
    }
    if rows.is_empty() {
        return view! { <div class="card empty"><h2>"No record"</h2><p>"Nothing was recorded here."</p></div> }
            .into_any();
    }
    view! {
        <div class="rows perf chain">
            <div class="row-head" aria-hidden="true">
                <div class="row-slip">
                    <span class="r">"Record"</span>
                    <span>"Time"</span>
                    <span>"Event"</span>
                    <span>"Who, what"</span>
                </div>
                <div class="row-stub"><span></span><span>"Hash, after the one below"</span><span>"Number"</span></div>
            </div>
            <ol>{rows}</ol>
        </div>
    }
    .into_any()
}

fn band(seal: &Seal, now: Timestamp) -> AnyView {
    let root = seal
        .root
        .map_or("not signed by this log’s key".to_owned(), |root| format!("root {}", short(&root.to_string())));
    view! {
        <li class="seal">
            <div>
                <b>{format!("Checkpoint {}", grouped(seal.number))}</b>
                <span>
                    {format!("{} records, signed ", grouped(seal.size))}
                    {parts::when(seal.at, now, Form::Clock)}
                </span>
            </div>
            <div><code class="hash">{root}</code></div>
        </li>
    }
    .into_any()
}

fn short(hash: &str) -> String {
    format!("{}…", hash.get(..16).unwrap_or(hash))
}

fn row(chain: &Chain, entry: &Entry, now: Timestamp) -> AnyView {
    let sealed = match entry {
        Entry::Record(sealed) => sealed,
        Entry::Unreadable { seq, why } => {
            let why = format!("unreadable: {why}");
            return view! {
                <li class="row" id=format!("r{seq}")>
                    <div class="row-slip">
                        <span class="seq">{grouped(*seq)}</span>
                        <span></span>
                        <span class="evt"></span>
                        <span class="what">{parts::line(&why)}</span>
                    </div>
                    <div class="row-stub"><span></span><span></span><span></span></div>
                </li>
            }
            .into_any();
        }
    };
    let Sealed { record, hash, .. } = sealed.as_ref();
    let entry = &record.entry;
    let seq = grouped(record.seq);
    let seq = match &entry.operation {
        Some(id) => view! { <a class="row-link seq" href=format!("/operations/{id}")>{seq}</a> }.into_any(),
        None => view! { <span class="seq">{seq}</span> }.into_any(),
    };
    let number = entry.fingerprint.as_ref().map(|fingerprint| fingerprint.short_code());
    let hash = hash.to_string();
    view! {
        <li class="row" id=format!("r{}", record.seq)>
            <div class="row-slip">
                {seq}
                {parts::when(record.at, now, Form::Clock)}
                <span class="evt">{entry.event.as_str()}</span>
                <span class="what">
                    <b>{parts::line(who(chain, &entry.actor))}</b>
                    " "
                    <span class="second">{parts::said(&what(chain, sealed), Breaks::Escape)}</span>
                </span>
            </div>
            <div class="row-stub">
                <span class="link" aria-hidden="true">"↑"</span>
                <code class="hash" title=hash.clone()>{short(&hash)}</code>
                <span class="no">{number}</span>
            </div>
        </li>
    }
    .into_any()
}

fn who<'a>(chain: &'a Chain, actor: &'a Actor) -> &'a str {
    match actor.kind {
        ActorKind::System => "system",
        ActorKind::Policy => "policy",
        _ => chain.name(&actor.id),
    }
}

/// The rest of a record in a few words.
fn what(chain: &Chain, sealed: &Sealed) -> String {
    let entry = &sealed.record.entry;
    let version = match (entry.expected_version, entry.result_version) {
        (Some(expected), Some(result)) => Some(format!("{expected} to {result}")),
        (None, Some(result)) if entry.event != Event::CheckpointSigned => Some(format!("version {result}")),
        (None, Some(result)) => Some(format!("{} records", grouped(result.max(0) as u64))),
        _ => None,
    };
    let fence = entry.fence.map(|fence| format!("fence {fence}"));
    let parts = [
        entry.status.clone(),
        entry.resource.as_ref().map(|resource| called(chain, resource.as_str())),
        version,
        fence,
        entry.provider_ref.clone(),
        entry.reason.as_ref().map(|reason| called(chain, reason)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// With principals by name instead of by id: `person/usr_…` → `person asha`.
fn called(chain: &Chain, words: &str) -> String {
    let named = words.split(' ').map(|word| match word.split_once('/') {
        Some((of, id)) if chain.name(id) != id => format!("{of} {}", chain.name(id)),
        _ => chain.name(word).to_owned(),
    });
    named.collect::<Vec<_>>().join(" ")
}
