//! The queue: what waits, for whom and until when.

use axum::{Router, response::Html, routing::get};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    conflict,
    parts::{self, Empty, Head},
    render::{Page, Visitor, link},
    shell::Place,
};
use crate::{
    model::{
        conflict::Action,
        id::{OperationId, PersonId},
        kind::{Risk, short_digests},
        operation::{
            Decision, Operation, State,
            rules::{next_lapse, state_at},
        },
        problem::{Code, Problem},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            desk::{self, Asked, Counted, Cursor, Lane, Looks, Queue, Row, Standing, Whose},
            error::Result,
        },
        store::operation,
        web::{auth::PersonIdentity, body, state::AppState},
    },
    ui::time::{CALM_MS, Form, SOON_MS},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/", get(show)).route("/operations/{id}/row", get(gone))
}

/// The query of the address. What it does not understand is as if it were not there: the link may be old.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Given {
    lane: String,
    who: String,
    kind: String,
    risk: String,
    agent: String,
    q: String,
    after: String,
}

impl From<Given> for Asked {
    fn from(given: Given) -> Self {
        let some = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text.len() <= 200);
        Self {
            lane: Lane::parse(&given.lane).unwrap_or_default(),
            whose: if given.who == "all" { Whose::Everyones } else { Whose::Mine },
            kind: some(given.kind),
            risk: Risk::ALL.into_iter().find(|risk| risk.as_str() == given.risk),
            agent: some(given.agent),
            q: some(given.q),
            after: Cursor::parse(&given.after),
        }
    }
}

impl Asked {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        if self.lane != Lane::Review {
            pairs.push(("lane", self.lane.as_str().to_owned()));
        }
        if self.whose == Whose::Everyones {
            pairs.push(("who", "all".to_owned()));
        }
        pairs.extend(self.kind.clone().map(|kind| ("kind", kind)));
        pairs.extend(self.risk.map(|risk| ("risk", risk.as_str().to_owned())));
        pairs.extend(self.agent.clone().map(|agent| ("agent", agent)));
        pairs.extend(self.q.clone().map(|q| ("q", q)));
        pairs.extend(self.after.as_ref().map(|after| ("after", after.to_string())));
        pairs
    }

    fn address(&self) -> String {
        link("/", &self.pairs())
    }

    /// The same list from its start, with one thing changed.
    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut asked = Self { after: None, ..self.clone() };
        change(&mut asked);
        asked
    }

    /// The filters in words.
    fn filters(&self) -> Vec<String> {
        let risk = self.risk.map(|risk| risk.as_str().to_owned());
        [self.kind.clone(), risk, self.agent.clone(), self.q.clone()].into_iter().flatten().collect()
    }
}

async fn show(visitor: Visitor, body::Query(given): body::Query<Given>) -> Result<Page> {
    let asked = Asked::from(given);
    let queue = desk::queue(&visitor.desk, &visitor.person.voter(), &asked, visitor.now).await?;
    let kinds = desk::kind_names(&visitor.desk).await?;
    let now = visitor.now;
    let title = heading(&asked, &queue);
    Ok(visitor.page(&title, Place::Desk, || {
        view! {
            <Head title=title.clone() aside=Some(parts::live().into_any())>
                {subtitle(asked.lane)}
            </Head>
            {lanes(&asked, &queue)}
            {tools(&asked, &kinds, &queue.agents)}
            <div id="list">
                {if queue.rows.is_empty() {
                    nothing(&asked, &queue).into_any()
                } else {
                    rows(&asked, &queue, now).into_any()
                }}
            </div>
            {hints()}
        }
    }))
}

fn heading(asked: &Asked, queue: &Queue) -> String {
    let count = |n: usize, one: &str, many: &str, none: &str| match (n, queue.counted) {
        (0, _) => none.to_owned(),
        (1, Counted::All) => format!("1 {one}"),
        (n, Counted::All) => format!("{n} {many}"),
        (n, Counted::AtLeast) => format!("{n} or more {many}"),
    };
    match (asked.lane, asked.whose) {
        (Lane::Review, Whose::Mine) => count(queue.mine, "waits for you", "wait for you", "Nothing waits for you"),
        (Lane::Review, Whose::Everyones) => {
            count(queue.pending, "waits for a decision", "wait for a decision", "Nothing waits for a decision")
        }
        (Lane::Approved, _) => "Approved, not run".to_owned(),
        (Lane::Conflicts, _) => "Conflicts".to_owned(),
        (Lane::Unknown, _) => "Unknown".to_owned(),
        (Lane::Expiring, _) => "Expiring".to_owned(),
        (Lane::Done, _) => "Done".to_owned(),
    }
}

fn subtitle(lane: Lane) -> &'static str {
    match lane {
        Lane::Review => "Soonest deadline first.",
        Lane::Approved => "May run once, until the deadline. Soonest first, those under way among them.",
        Lane::Conflicts => "The target had moved. Nothing of these was applied. Newest first.",
        Lane::Unknown => "Sent, and nobody can tell yet. Do not retry.",
        Lane::Expiring => "Less than 5 minutes left to decide or to run.",
        Lane::Done => "Newest first.",
    }
}

fn lanes(asked: &Asked, queue: &Queue) -> impl IntoView + use<> {
    let links = Lane::ALL.map(|lane| {
        let (words, count) = match lane {
            Lane::Review => ("Review", queue.mine as i64),
            Lane::Approved => ("Approved, not run", queue.tally.approved),
            Lane::Conflicts => ("Conflicts", queue.tally.conflicted),
            Lane::Unknown => ("Unknown", queue.tally.unknown),
            Lane::Expiring => ("Expiring", queue.tally.expiring),
            Lane::Done => ("Done", 0),
        };
        let overdue = (lane == Lane::Unknown && queue.overdue > 0).then(|| {
            view! { <span class="late">{queue.overdue}" overdue"</span> }
        });
        view! {
            <a href=asked.with(|asked| asked.lane = lane).address() aria-current=(lane == asked.lane).then_some("page")>
                {words}
                {(count > 0).then(|| view! { <span class="n">{count}</span> })}
                {overdue}
            </a>
        }
    });
    view! { <nav class="lanes" aria-label="Lanes">{links.into_iter().collect::<Vec<_>>()}</nav> }
}

fn tools(asked: &Asked, kinds: &[String], agents: &[String]) -> impl IntoView + use<> {
    let mine = (asked.lane == Lane::Review).then(|| match asked.whose {
        Whose::Mine => {
            parts::chip("Waiting for me", asked.with(|asked| asked.whose = Whose::Everyones).address()).into_any()
        }
        Whose::Everyones => {
            let address = asked.with(|asked| asked.whose = Whose::Mine).address();
            view! { <a class="filter" href=address>"Waiting for me"</a> }.into_any()
        }
    });
    let kind = match &asked.kind {
        Some(kind) => parts::chip(kind, asked.with(|asked| asked.kind = None).address()).into_any(),
        None => parts::menu(
            "Kind",
            kinds.iter().map(|kind| (kind.clone(), asked.with(|asked| asked.kind = Some(kind.clone())).address())),
        )
        .into_any(),
    };
    let risk = match asked.risk {
        Some(risk) => {
            parts::chip(&parts::capital(risk.as_str()), asked.with(|asked| asked.risk = None).address()).into_any()
        }
        None => parts::menu(
            "Risk",
            Risk::ALL
                .into_iter()
                .map(|risk| (parts::capital(risk.as_str()), asked.with(|asked| asked.risk = Some(risk)).address())),
        )
        .into_any(),
    };
    let agent = match &asked.agent {
        Some(agent) => parts::chip(agent, asked.with(|asked| asked.agent = None).address()).into_any(),
        None => parts::menu(
            "Agent",
            agents.iter().map(|agent| (agent.clone(), asked.with(|asked| asked.agent = Some(agent.clone())).address())),
        )
        .into_any(),
    };
    let kept = asked.with(|asked| asked.q = None).pairs();
    view! {
        <form class="tools" action="/" method="get" role="search">
            <div class="filters">{mine}{kind}{risk}{agent}</div>
            <span class="search">
                {kept
                    .into_iter()
                    .map(|(name, value)| view! { <input type="hidden" name=name value=value /> })
                    .collect::<Vec<_>>()}
                <label class="unseen" for="q">"Search"</label>
                <input
                    id="q"
                    name="q"
                    type="search"
                    maxlength="200"
                    placeholder="Target, number or agent"
                    value=asked.q.clone().unwrap_or_default()
                />
            </span>
        </form>
    }
}

fn nothing(asked: &Asked, queue: &Queue) -> impl IntoView + use<> {
    let filters = asked.filters();
    if !filters.is_empty() || asked.after.is_some() {
        let all = asked.with(|asked| {
            (asked.kind, asked.risk, asked.agent, asked.q) = (None, None, None, None);
        });
        let without = match asked.lane {
            Lane::Review if asked.whose == Whose::Mine => format!(" {} without them.", waiting(queue.mine, "for you")),
            Lane::Review => format!(" {} without them.", waiting(queue.pending, "")),
            _ => String::new(),
        };
        let words: Vec<_> = filters.iter().map(|filter| parts::line(filter)).collect();
        let listed: Vec<_> =
            words.into_iter().enumerate().map(|(i, word)| view! { {(i > 0).then_some(", ")}{word} }).collect();
        return view! {
            <Empty heading="No operation matches" way_on=Some(("Clear filters", all.address()))>
                "Filters: "{listed}"."{without}
            </Empty>
        }
        .into_any();
    }
    match (asked.lane, asked.whose) {
        (Lane::Review, Whose::Mine) if queue.pending > 0 => {
            let all = asked.with(|asked| asked.whose = Whose::Everyones).address();
            let others = waiting(queue.pending, "for others");
            view! {
                <Empty heading="Nothing waits for you" symbol="pending" way_on=Some(("See all waiting", all))>
                    {others}" New ones appear by themselves while this page is live."
                </Empty>
            }
            .into_any()
        }
        (Lane::Review, _) => view! {
            <Empty heading="Nothing waits" symbol="pending" way_on=Some(("See what is done", "/?lane=done".to_owned()))>
                "No agent has asked for anything that is still open."
            </Empty>
        }
        .into_any(),
        (lane, _) => {
            let (heading, words) = match lane {
                Lane::Approved => ("Nothing is approved and open", "What is approved runs once, until its deadline."),
                Lane::Conflicts => ("No conflicts", "Every write found its target as it had been read."),
                Lane::Unknown => ("Nothing is unknown", "Every write that was sent has an answer."),
                Lane::Expiring => ("Nothing is about to expire", "No deadline is less than 5 minutes away."),
                Lane::Done | Lane::Review => ("Nothing is done yet", "Decided and ended operations are kept here."),
            };
            view! { <Empty heading=heading symbol="pending" way_on=Some(("To the desk", "/".to_owned()))>{words}</Empty> }.into_any()
        }
    }
}

/// `3 operations wait for others.`
fn waiting(n: usize, whom: &str) -> String {
    let words = if n == 1 { "1 operation waits" } else { &format!("{n} operations wait") };
    format!("{words} {whom}").trim_end().to_owned() + "."
}

/// A heading in the list, and which rows stand under it.
struct Group<'a> {
    title: &'static str,
    rows: Vec<&'a Row>,
}

fn groups<'a>(lane: Lane, rows: &'a [Row], now: Timestamp) -> Vec<Group<'a>> {
    let title = |row: &Row| match (lane, row.deadline) {
        (Lane::Review | Lane::Approved, Some(until)) => match until - now {
            ms if ms < SOON_MS => "Under 5 minutes",
            ms if ms < CALM_MS => "Under 15 minutes",
            _ => "Later",
        },
        _ => "",
    };
    let mut groups: Vec<Group<'a>> = Vec::new();
    for row in rows {
        let title = title(row);
        match groups.last_mut().filter(|group| group.title == title) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { title, rows: vec![row] }),
        }
    }
    groups
}

fn rows(asked: &Asked, queue: &Queue, now: Timestamp) -> impl IntoView + use<> {
    let lane = asked.lane;
    let groups: Vec<_> = groups(lane, &queue.rows, now)
        .into_iter()
        .map(|Group { title, rows }| {
            let head = (!title.is_empty()).then(|| {
                view! { <h2 class="row-group"><span>{title}" "<i>{rows.len()}</i></span><span></span></h2> }
            });
            let rows: Vec<_> = rows.into_iter().map(|one| row(one, last(lane), Pick::Offered, now)).collect();
            view! { {head}<ol>{rows}</ol> }
        })
        .collect();
    let may_pick = queue.rows.iter().any(may_pick);
    let next = queue.next.as_ref().map(|cursor| {
        let next = Asked { after: Some(cursor.clone()), ..asked.clone() };
        view! { <a class="btn btn-small" rel="next" href=next.address()>"Next page"</a> }
    });
    let first = asked.after.is_some().then(|| {
        view! { <a class="btn btn-small" href=asked.with(|_| {}).address()>"First page"</a> }
    });
    let last_column = match lane {
        Lane::Review => "Left to decide",
        Lane::Approved => "Left to run",
        Lane::Expiring => "Left",
        Lane::Conflicts | Lane::Unknown | Lane::Done => "State",
    };
    view! {
        <form class="queue" action="/decide" method="get">
            <div class="rows perf" id="rows" data-lane=lane.as_str()>
                <div class="row-head" aria-hidden="true">
                    <div class="row-slip">
                        <span></span>
                        <span>"Risk"</span>
                        <span>"Operation and effect"</span>
                        <span>"Agent, waiting"</span>
                        <span></span>
                    </div>
                    <div class="row-stub">
                        <span>"Number"</span>
                        <span>"Votes"</span>
                        <span>{last_column}</span>
                    </div>
                </div>
                {groups}
            </div>
            {may_pick
                .then(|| {
                    view! {
                        <div class="bulk bulk-pick">
                            <b data-picked="">"Selected"</b>
                            <span class="second">"The next page lists exactly what is ticked, and decides nothing by itself."</span>
                            <span class="push"></span>
                            <button class="btn btn-small" type="submit">"Decide the selected"</button>
                        </div>
                    }
                })}
        </form>
        {(next.is_some() || first.is_some()).then(|| view! { <nav class="pages" aria-label="Pages">{first}{next}</nav> })}
    }
}

/// The keys; unseen until the browser listens to them.
fn hints() -> impl IntoView {
    view! {
        <p class="keys" hidden>
            <span><kbd>"j"</kbd><kbd>"k"</kbd>" move"</span>
            <span><kbd>"Enter"</kbd>" open"</span>
            <span><kbd>"a"</kbd>" approve"</span>
            <span><kbd>"r"</kbd>" reject"</span>
            <span><kbd>"x"</kbd>" select"</span>
            <span><kbd>"/"</kbd>" search"</span>
            <span><kbd>"?"</kbd>" all keys, or turn them off"</span>
        </p>
    }
}

/// Only low and medium risk is ever decided together with others, and only by those who may.
fn may_pick(row: &Row) -> bool {
    row.state == State::Pending && row.standing == Standing::Open && !row.op.proposal.risk.needs_care()
}

/// Whether a list lets its reader select rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    Offered,
    None,
}

/// What stands in the last column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    TimeLeft,
    State,
}

fn last(lane: Lane) -> Last {
    match lane {
        Lane::Review | Lane::Approved | Lane::Expiring => Last::TimeLeft,
        Lane::Conflicts | Lane::Unknown | Lane::Done => Last::State,
    }
}

/// One operation in a list.
pub fn row(row: &Row, last: Last, pick: Pick, now: Timestamp) -> impl IntoView + use<> {
    let op = &row.op;
    let p = &op.proposal;
    let code = p.fingerprint.short_code();
    let pick = if pick == Pick::None {
        view! { <span class="lone"></span> }.into_any()
    } else if may_pick(row) {
        let label = format!("Select {code}");
        view! { <input type="checkbox" name="pick" value=p.id.to_string() aria-label=label /> }.into_any()
    } else {
        let why = match (row.state, row.standing) {
            (State::Pending, Standing::Open) => "Decided one at a time",
            (State::Pending, Standing::Own) => "Your own agent's: you may reject it",
            (State::Pending, Standing::Voted) => "You have voted",
            (State::Pending, Standing::Closed) => "Not open to you",
            _ => "Decided",
        };
        view! { <span class="lone" title=why></span> }.into_any()
    };
    let waiting = match row.state {
        State::Pending => view! { <span>"waiting "{parts::since(p.created_at, now)}</span> }.into_any(),
        _ => view! { <span>{parts::when(op.life.updated_at, now, Form::Clock)}</span> }.into_any(),
    };
    let last = match last {
        Last::TimeLeft => row.deadline.map(|until| parts::left(until, now)).into_any(),
        Last::State => parts::state_mark(row.state, op.granted(), parts::capital(row.state.as_str())).into_any(),
    };
    view! {
        <li class="row" data-id=p.id.to_string() data-version=op.life.version data-lapses="">
            <div class="row-slip">
                {pick}
                {parts::risk(p.risk)}
                <div class="row-what">
                    <div class="row-name">
                        <a class="row-link" href=page_of(op)>
                            <b>{p.title.clone()}</b>
                            " "
                            {parts::target(p.target.as_str())}
                        </a>
                        {flags(row, now)}
                    </div>
                    <p class="row-effect">{parts::said(&short_digests(&p.consequence), Breaks::Escape)}</p>
                </div>
                <div class="row-who">
                    <span>{parts::line(&row.agent)}</span>
                    {waiting}
                </div>
                {parts::number(op)}
            </div>
            <div class="row-stub">
                {parts::number(op)}
                {parts::votes(op.granted(), op.life.approval.required)}
                {last}
            </div>
        </li>
    }
}

/// Where a row leads: a conflict has a page of its own.
fn page_of(op: &Operation) -> String {
    match &op.life.conflict {
        Some(id) => conflict::address(id),
        None => format!("/operations/{}", op.id()),
    }
}

/// What in the content may deceive.
pub fn deceptions(looks: Looks) -> Vec<AnyView> {
    let hidden = match looks.hidden {
        0 => None,
        1 => Some("1 hidden character".to_owned()),
        n => Some(format!("{n} hidden characters")),
    };
    let look_alike = (looks.look_alikes > 0).then(|| "Look-alike name".to_owned());
    [hidden, look_alike].into_iter().flatten().map(|words| parts::flag("heed", words).into_any()).collect()
}

/// At most two, the gravest first.
fn flags(row: &Row, now: Timestamp) -> Vec<AnyView> {
    let mut flags = deceptions(row.looks);
    if let Some((state, at)) = row.repeats {
        let words = match state {
            State::Pending => "also waiting since ",
            State::Unknown | State::NeedsReview => "unknown since ",
            state => state.as_str(),
        };
        let time = matches!(state, State::Pending | State::Unknown | State::NeedsReview)
            .then(|| parts::when(at, now, Form::Minute));
        flags.push(view! { <span class="flag flag-same"><span>"Same command, "{words}{time}</span></span> }.into_any());
    }
    if row.state == State::Pending {
        match row.standing {
            Standing::Voted => flags.push(parts::flag("sign", "You voted".to_owned()).into_any()),
            Standing::Own => flags.push(parts::flag("own", "Your agent".to_owned()).into_any()),
            Standing::Open | Standing::Closed => {}
        }
    }
    if row.op.life.disputed {
        flags.insert(0, parts::flag("doubt", "Disputed".to_owned()).into_any());
    }
    flags.truncate(2);
    flags
}

/// What has become of a row that left a list: for the page that still shows it, for ten seconds.
async fn gone(visitor: Visitor, body::Path(id): body::Path<OperationId>) -> Result<Html<String>> {
    let op = operation::find(&mut visitor.desk.store.read().await?, &id).await?;
    let op = op.ok_or_else(|| Problem::new(Code::NotFound, "there is no such operation"))?;
    let now = visitor.now;
    let state = state_at(&op, now);
    let (words, at) = became(&op, now, &visitor.person);
    let p = &op.proposal;
    let view = view! {
        <li class="row row-gone" data-id=p.id.to_string() data-version=op.life.version>
            <div class="row-slip">
                <span></span>
                {parts::state_mark(state, op.granted(), String::new())}
                <span>{p.title.clone()}" "{parts::line(p.target.as_str())}</span>
                <span class="no">{p.fingerprint.short_code()}</span>
            </div>
            <div class="row-stub">
                <span class="no">{p.fingerprint.short_code()}</span>
                <span class="wide">{words}" "{parts::when(at, now, Form::Clock)}</span>
            </div>
        </li>
    };
    Ok(Html(view.to_html()))
}

/// `approved by omar`, and when.
pub fn became(op: &Operation, now: Timestamp, reader: &PersonIdentity) -> (String, Timestamp) {
    let (state, life) = (state_at(op, now), &op.life);
    let name = |by: &PersonId, name: &str| if by == reader.id() { "you".to_owned() } else { name.to_owned() };
    let last_vote = op.standing_votes().last();
    if let (State::Conflicted, Some(done)) = (state, &life.conflict_resolution) {
        let how = match done.action {
            Action::Replan => "sent back for a new plan",
            Action::AcceptCurrent => "settled as it is there",
            Action::Dismiss => "dismissed",
        };
        let by = if done.by.id == reader.id().as_str() { "you" } else { &done.by_name };
        return (format!("{how} by {by}"), done.at);
    }
    match (state, &life.ending, last_vote) {
        (State::Pending, _, Some(vote)) => {
            let words = format!("{} of {}, {} voted", op.granted(), life.approval.required, name(&vote.by, &vote.name));
            (words, vote.at)
        }
        (State::Pending, _, None) => ("no longer open to you".to_owned(), life.updated_at),
        (State::Expired, None, _) => ("expired".to_owned(), next_lapse(op).unwrap_or(life.updated_at)),
        (State::Rejected, _, Some(vote)) => (format!("rejected by {}", name(&vote.by, &vote.name)), vote.at),
        (state, Some(ending), _) => (state.as_str().to_owned(), ending.at),
        (State::Conflicted, ..) => ("in conflict".to_owned(), life.updated_at),
        (_, None, Some(vote)) if vote.decision == Decision::Approve => {
            (format!("approved by {}", name(&vote.by, &vote.name)), vote.at)
        }
        (_, None, _) => ("granted by rule".to_owned(), life.approval.granted_at.unwrap_or(life.updated_at)),
    }
}
