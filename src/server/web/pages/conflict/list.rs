//! The list of conflicts: open ones first of all, the settled ones beside them.

use leptos::prelude::*;
use serde::Deserialize;

use super::address;
use crate::{
    model::{
        conflict::{Action, ConflictState},
        id::ConflictId,
        operation::State,
        problem::Code,
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            conflict::{self, Line, LinesQuery},
            desk,
            error::Result,
        },
        web::{
            body::Query,
            pages::{
                error::sentence,
                parts::{self, Empty, Head},
                render::{Page, Visitor, link},
                shell::Place,
                work,
            },
        },
    },
    ui::time::Form,
};

/// The query of the address. What it does not understand is as if it were not there: the link may be old.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Given {
    state: String,
    agent: String,
    kind: String,
    q: String,
    before: String,
}

/// What the address asks for.
#[derive(Debug, Clone, Default)]
struct Asked {
    state: Option<ConflictState>,
    agent: Option<String>,
    kind: Option<String>,
    q: Option<String>,
    before: Option<ConflictId>,
}

impl From<Given> for Asked {
    fn from(given: Given) -> Self {
        let some = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text.len() <= 200);
        Self {
            state: match given.state.as_str() {
                "resolved" => Some(ConflictState::Resolved),
                "all" => None,
                _ => Some(ConflictState::Open),
            },
            agent: some(given.agent),
            kind: some(given.kind),
            q: some(given.q),
            before: given.before.parse().ok(),
        }
    }
}

impl Asked {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let state = match self.state {
            Some(ConflictState::Open) => None,
            Some(state) => Some(state.as_str().to_owned()),
            None => Some("all".to_owned()),
        };
        let pairs = [
            ("state", state),
            ("agent", self.agent.clone()),
            ("kind", self.kind.clone()),
            ("q", self.q.clone()),
            ("before", self.before.as_ref().map(ToString::to_string)),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn address(&self) -> String {
        link("/conflicts", &self.pairs())
    }

    /// The same list from its start, with one thing changed.
    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut asked = Self { before: None, ..self.clone() };
        change(&mut asked);
        asked
    }

    fn filters(&self) -> Vec<String> {
        [self.agent.clone(), self.kind.clone(), self.q.clone()].into_iter().flatten().collect()
    }
}

pub async fn show(visitor: Visitor, Query(given): Query<Given>) -> Result<Page> {
    let asked = Asked::from(given);
    let query = LinesQuery {
        state: asked.state,
        agent: asked.agent.clone(),
        kind: asked.kind.clone(),
        q: asked.q.clone(),
        before: asked.before.clone(),
        ..LinesQuery::default()
    };
    let list = conflict::lines(&visitor.desk, query).await?;
    let agents = desk::agent_names(&visitor.desk).await?;
    let kinds = desk::kind_names(&visitor.desk).await?;
    let now = visitor.now;
    let open = list.open as usize;
    Ok(visitor.page("Conflicts", Place::Conflicts, || {
        let next = list.next.as_ref().map(|before| {
            let next = Asked { before: Some(before.clone()), ..asked.clone() };
            work::next_page(next.address())
        });
        view! {
            <Head title="Conflicts" aside=Some(parts::live().into_any())>
                "Each is a write that met something else than it was planned on. Nothing of it was written. Newest first."
            </Head>
            {lanes(&asked, open)}
            {tools(&asked, &kinds, &agents)}
            <div id="list">
                {match list.lines.is_empty() {
                    true => nothing(&asked, open).into_any(),
                    false => rows(&list.lines, now).into_any(),
                }}
            </div>
            {next}
        }
    }))
}

fn lanes(asked: &Asked, open: usize) -> impl IntoView + use<> {
    let lanes =
        [(Some(ConflictState::Open), "Open", open), (Some(ConflictState::Resolved), "Resolved", 0), (None, "All", 0)];
    let links = lanes.map(|(state, words, count)| {
        view! {
            <a
                href=asked.with(|asked| asked.state = state).address()
                aria-current=(state == asked.state).then_some("page")
            >
                {words}
                {(count > 0).then(|| view! { <span class="n">{count}</span> })}
            </a>
        }
    });
    view! { <nav class="lanes" aria-label="Lanes">{links.into_iter().collect::<Vec<_>>()}</nav> }
}

fn tools(asked: &Asked, kinds: &[String], agents: &[String]) -> impl IntoView + use<> {
    let agent = match &asked.agent {
        Some(agent) => parts::chip(agent, asked.with(|asked| asked.agent = None).address()).into_any(),
        None => parts::menu(
            "Agent",
            agents.iter().map(|agent| (agent.clone(), asked.with(|asked| asked.agent = Some(agent.clone())).address())),
        )
        .into_any(),
    };
    let kind = match &asked.kind {
        Some(kind) => parts::chip(kind, asked.with(|asked| asked.kind = None).address()).into_any(),
        None => parts::menu(
            "Kind",
            kinds.iter().map(|kind| (kind.clone(), asked.with(|asked| asked.kind = Some(kind.clone())).address())),
        )
        .into_any(),
    };
    let kept = asked.with(|asked| asked.q = None).pairs();
    view! {
        <form class="tools" action="/conflicts" method="get" role="search">
            <div class="filters">{kind}{agent}</div>
            <span class="search">
                {kept
                    .into_iter()
                    .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
                    .collect::<Vec<_>>()}
                <label class="unseen" for="q">"Search"</label>
                <input id="q" name="q" type="search" maxlength="200" placeholder="Part of a resource" value=asked.q.clone() />
            </span>
        </form>
    }
}

fn nothing(asked: &Asked, open: usize) -> impl IntoView + use<> {
    let filters = asked.filters();
    if !filters.is_empty() || asked.before.is_some() {
        let all = Asked { state: asked.state, ..Asked::default() }.address();
        let words: Vec<_> = filters.iter().map(|filter| parts::line(filter)).collect();
        let listed: Vec<_> =
            words.into_iter().enumerate().map(|(i, word)| view! { {(i > 0).then_some(", ")}{word} }).collect();
        return view! {
            <Empty heading="No conflict matches" way_on=Some(("Clear filters", all))>"Filters: "{listed}"."</Empty>
        }
        .into_any();
    }
    let (heading, words) = match asked.state {
        Some(ConflictState::Open) => (
            "No open conflicts",
            "Every write found its target as it had been read, or somebody has said what follows.",
        ),
        Some(ConflictState::Resolved) if open > 0 => ("None is resolved yet", "The open ones wait for a person."),
        _ => ("No conflicts", "Every write found its target as it had been read."),
    };
    view! { <Empty heading=heading symbol="done" way_on=Some(("To the desk", "/".to_owned()))>{words}</Empty> }
        .into_any()
}

fn rows(all: &[Line], now: Timestamp) -> impl IntoView + use<> {
    view! {
        <div class="rows perf conflicts" id="rows">
            <div class="row-head" aria-hidden="true">
                <div class="row-slip">
                    <span>"Risk"</span>
                    <span>"Write and what it met"</span>
                    <span>"Agent, found"</span>
                    <span></span>
                </div>
                <div class="row-stub"><span>"Number"</span><span>"Versions"</span><span>"Way on"</span></div>
            </div>
            <ol>{all.iter().map(|one| row(one, now)).collect::<Vec<_>>()}</ol>
        </div>
    }
}

fn row(one: &Line, now: Timestamp) -> impl IntoView + use<> {
    let (conflict, op) = (&one.conflict, &one.op);
    let p = &op.proposal;
    let number = p.fingerprint.short_code();
    let versions = match (p.expected_version, conflict.met.version) {
        (Some(expected), Some(met)) => format!("{expected} ≠ {met}"),
        (Some(expected), None) => format!("{expected} ≠ ?"),
        _ => "–".to_owned(),
    };
    let number_of = |number: &str| view! { <span class="no no-void">{number.to_owned()}</span> };
    view! {
        <li class="row" data-id=op.id().to_string() data-version=op.life.version.to_string()>
            <div class="row-slip">
                {parts::risk(p.risk)}
                <div class="row-what">
                    <div class="row-name">
                        <a class="row-link" href=address(&conflict.id)>
                            <b>{p.title.clone()}</b>
                            " "
                            {parts::target(p.target.as_str())}
                        </a>
                    </div>
                    <p class="row-effect">{met(one)}</p>
                </div>
                <div class="row-who">
                    <span>{parts::line(&one.agent)}</span>
                    <span>{parts::when(conflict.at, now, Form::Clock)}</span>
                </div>
                {number_of(&number)}
            </div>
            <div class="row-stub">
                {number_of(&number)}
                <span class="second">{versions}</span>
                {way_on(one)}
            </div>
        </li>
    }
}

/// What the write met, on one line.
fn met(one: &Line) -> AnyView {
    let conflict = &one.conflict;
    let versions = one.op.proposal.expected_version.zip(conflict.met.version);
    let (Code::StaleVersion, Some((expected, met))) = (conflict.code, versions) else {
        return parts::said(&sentence(&conflict.detail), Breaks::Escape).into_any();
    };
    let by = one.met.as_ref().map(|name| view! { ", by "{parts::line(name)} });
    let planned = match expected {
        0 => "Planned where nothing was".to_owned(),
        expected => format!("Planned on version {expected}"),
    };
    view! { {planned}{format!("; version {met} is there")}{by}"." }.into_any()
}

/// What follows of a conflict, in a word.
pub fn chosen(action: Action) -> &'static str {
    match action {
        Action::Replan => "re-plan",
        Action::AcceptCurrent => "accepted",
        Action::Dismiss => "dismissed",
    }
}

fn way_on(one: &Line) -> impl IntoView + use<> {
    match &one.conflict.resolution {
        Some(resolution) => view! { <span class="second">{chosen(resolution.action)}</span> }.into_any(),
        None => parts::state_mark(State::Conflicted, 0, "open".to_owned()).into_any(),
    }
}
