//! The agent's half: what it wants to do, rendered from the fingerprinted content.

use leptos::prelude::*;
use serde_json::Value;

use super::{Paper, Told, address, case, content, counted, number};
use crate::{
    model::{
        approval::Role,
        diff,
        json::{self, NodeKind},
        kind::Phrase,
        operation::{Decision, Operation, OutcomeSource, OutcomeStatus, ReasonCode, State},
        problem::{Code, Problem},
        resource::outcome_of,
        text::{self, Breaks, Finding},
        time::Timestamp,
    },
    server::{
        service::sheet::Document,
        store::resource,
        web::pages::{
            conflict as conflicts,
            error::sentence,
            parts::{self, Meaning},
            plans, three,
        },
    },
    ui::{time::Form, verify::Row},
};

pub fn slip(paper: &Paper) -> impl IntoView + use<> {
    let op = paper.op();
    view! {
        {paper.is_doubtful().then(|| case::do_not_retry(paper))}
        <div class="slip-top">
            {parts::state(op, paper.now())}
            {parts::risk(op.proposal.risk)}
            {case::hold(paper)}
            <span class="push"></span>
            {(!paper.is_doubtful()).then(|| number(op))}
        </div>
        {(!paper.is_doubtful()).then(|| say(paper))}
        {notices(paper)}
        {content::section(paper)}
        {case::was_doubtful(paper).then(|| case::sections(paper))}
        {comparison(paper)}
        {paper.sheet.replans.as_ref().map(|plan| plans::difference(&plan.op, op, &plan.changes).into_any())}
        {parts::agent_says(op.proposal.reason.as_deref())}
        {canonical(op)}
    }
}

/// Who asks for what. Values of the agent stand apart from our words.
pub fn headline(paper: &Paper) -> impl IntoView + use<> {
    let phrases = paper.op().proposal.headline.iter().map(|phrase| match phrase {
        Phrase::Words(words) => words.clone().into_any(),
        Phrase::Value(value) => parts::target(value).into_any(),
    });
    let phrases = phrases.collect::<Vec<_>>();
    view! { <b>{parts::line(&paper.sheet.agent.name)}</b>" "{phrases} }
}

/// The headline sentence and its effect.
fn say(paper: &Paper) -> impl IntoView + use<> {
    let (op, now) = (paper.op(), paper.now());
    let hurry = (op.state() == State::Pending).then(|| {
        view! {
            <p class="phone-line">
                {parts::votes(op.granted(), op.life.approval.required)}
                <span>{parts::left(op.life.approval.expires_at, now)}" left to decide"</span>
                <a href="#decide">"Decide"</a>
            </p>
        }
    });
    view! {
        <header class="say">
            <h1>{headline(paper)}</h1>
            <p class="effect">{prose(&op.proposal.consequence)}</p>
            <p class="by">"Written by Counterfoil from the content below, not by the agent."</p>
            {hurry}
        </header>
    }
}

/// A sentence in which values of the agent stand: digests are cut to their beginning, since the content has all of them.
pub fn prose(text: &str) -> impl IntoView + use<> {
    let text = sentence(text);
    let mut parts = Vec::new();
    for word in text.split_inclusive(' ') {
        let end = word.trim_end_matches([' ', ',', ';', '.']).len();
        let (token, rest) = word.split_at(end);
        match is_digest(token) {
            true => {
                let (short, whole) = (format!("{}…", &token[..15]), token.to_owned());
                parts.push(view! { <code title=whole>{short}</code> }.into_any());
                parts.push(rest.to_owned().into_any());
            }
            false => parts.extend(parts::shown(word, Breaks::Escape)),
        }
    }
    view! { <bdi>{parts}</bdi> }
}

fn is_digest(token: &str) -> bool {
    token.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn notices(paper: &Paper) -> Option<AnyView> {
    let mut all = Vec::new();
    all.extend(ending(paper));
    all.extend(outcome(paper));
    all.extend(mismatch(paper.op()));
    if paper.op().state() == State::Pending {
        all.extend(own_agent(paper));
    }
    all.extend(waits(paper));
    all.extend(duplicates(paper));
    all.extend(deceptive(paper));
    all.extend(empty(paper));
    (!all.is_empty()).then(|| view! { <div class="sec-notice stack-2">{all}</div> }.into_any())
}

/// As [`parts::Notice`], with a heading in which a time may stand.
fn notice(
    meaning: Meaning,
    heading: impl IntoView + 'static,
    words: impl IntoView + 'static,
    way_on: Option<(&'static str, String)>,
) -> AnyView {
    view! {
        <div class=format!("notice notice-{}", meaning.as_str()) role=meaning.role()>
            <div>
                <h2>{heading}</h2>
                <p>{words}</p>
            </div>
            {way_on.map(|(words, address)| view! { <a class="btn btn-small" href=address>{words}</a> })}
        </div>
    }
    .into_any()
}

/// How it ended, where nothing was done.
fn ending(paper: &Paper) -> Option<AnyView> {
    let (op, sheet, now) = (paper.op(), paper.sheet, paper.now());
    let ending = op.life.ending.as_ref()?;
    let at = parts::when(ending.at, now, Form::Clock);
    let agent = &sheet.agent.name;
    let by = ending.name.clone().unwrap_or_else(|| sheet.name(&ending.by).to_owned());
    let reason = ending.reason.clone();
    let quoted = move || reason.clone().map(|words| view! { " “"{parts::said(&words, Breaks::Keep)}"”" });
    Some(match op.state() {
        State::Rejected => {
            let code =
                op.standing_votes().filter(|vote| vote.decision == Decision::Reject).last().and_then(|v| v.reason_code);
            let code = code.map_or("Other", ReasonCode::label);
            let words = view! { {code}". "{format!("{agent} was told.")}{quoted()} };
            notice(Meaning::Stop, view! { {parts::line(&by)}" rejected this at "{at} }, words, None)
        }
        State::Expired if op.life.approval.granted_at.is_some() => notice(
            Meaning::Heed,
            view! { "Expired at "{at} },
            format!(
                "It was approved and not run in time. Nothing was sent. {agent} may propose it again with a new key."
            ),
            None,
        ),
        State::Expired => notice(
            Meaning::Heed,
            view! { "Expired at "{at} },
            format!("Not approved, not rejected. {agent} may propose it again with a new key."),
            None,
        ),
        State::Cancelled => notice(
            Meaning::Heed,
            view! { {parts::line(&by)}" cancelled this at "{at} },
            view! { "Nothing was sent."{quoted()} },
            None,
        ),
        State::Superseded => {
            let newer = ending.reason.as_deref().and_then(|reason| reason.rsplit(' ').next()?.parse().ok());
            let way_on = newer.as_ref().map(|id| ("Show it", address(id)));
            let words = format!("{agent} proposed something newer in its place. Nothing of this one was sent.");
            notice(Meaning::Flow, view! { "Superseded at "{at} }, words, way_on)
        }
        _ => return None,
    })
}

/// What came of it, where something was done or proven not to be.
fn outcome(paper: &Paper) -> Option<AnyView> {
    let op = paper.op();
    if let (State::Conflicted, Some(conflict)) = (op.state(), &paper.sheet.conflict) {
        let words = view! {
            {parts::said(&sentence(&conflict.detail), Breaks::Escape)}
            " Nothing was changed. A new plan takes a new approval."
        };
        let way_on = Some(("See the conflict", conflicts::address(&conflict.id)));
        return Some(notice(Meaning::Stop, "It no longer fits what is there".to_owned(), words, way_on));
    }
    let outcome = op.life.outcome.as_ref()?;
    let whose = match outcome.source {
        OutcomeSource::Run => "Reported by its own run",
        OutcomeSource::Executor => "Reported by the executor",
        OutcomeSource::Callback => "The provider said so",
        OutcomeSource::Lookup => "The provider was asked",
        OutcomeSource::Operator => "An operator found so",
        OutcomeSource::System => "The desk found so",
    };
    let confirmed = if outcome.confirmed { "" } else { ", not confirmed" };
    let reference = outcome.provider_reference.clone();
    let words = view! {
        {format!("{whose}{confirmed}. ")}
        {reference.map(|reference| view! { "Reference "<code>{parts::line(&reference)}</code>". " })}
        {outcome.resulting_version.map(|version| format!("Version {version} is there now. "))}
        {parts::when(outcome.at, paper.now(), Form::Clock)}
    };
    Some(match outcome.status {
        OutcomeStatus::Succeeded => notice(Meaning::Sign, "It was carried out".to_owned(), words, None),
        OutcomeStatus::Failed => notice(Meaning::Stop, "It failed, provably without effect".to_owned(), words, None),
        OutcomeStatus::Conflicted | OutcomeStatus::Unknown => return None,
    })
}

/// Shown by the browser when its own recomputation differs.
fn mismatch(op: &Operation) -> Option<AnyView> {
    let number = op.proposal.fingerprint.short_code();
    let notice = view! {
        <div class="notice notice-stop" role="alert" data-mismatch="" hidden>
            <div>
                <h2>"What you see is not what was proposed"</h2>
                <p>
                    "This browser gets "<code data-got=""></code>", the record says "<code>{number}</code>
                    ". Approve is off. Tell an admin."
                </p>
            </div>
        </div>
    };
    Some(notice.into_any())
}

fn own_agent(paper: &Paper) -> Option<AnyView> {
    let rights = &paper.sheet.rights;
    if !rights.approve.as_ref().is_err_and(|problem| problem.code == Code::SelfApproval) {
        return None;
    }
    let others = match rights.others {
        0 => "Nobody else can.".to_owned(),
        1 => "1 other person can.".to_owned(),
        others => format!("{others} other people can."),
    };
    let heading = format!("You own {}", paper.sheet.agent.name);
    Some(notice(Meaning::Flow, heading, format!("You may reject its work, not approve it. {others}"), None))
}

/// An earlier write to the target whose outcome nobody knows.
fn waits(paper: &Paper) -> Option<AnyView> {
    let (op, first) = (paper.op(), paper.sheet.waits_for.as_ref()?);
    if !matches!(op.state(), State::Pending | State::Approved) {
        return None;
    }
    let words = format!(
        "{} {} was sent, and its outcome is not known. This one is not claimed before that is settled.",
        first.proposal.title,
        first.proposal.fingerprint.short_code()
    );
    let heading = format!("{} is on hold", op.proposal.target);
    Some(notice(Meaning::Doubt, heading, words, Some(("Show it", address(first.id())))))
}

fn duplicates(paper: &Paper) -> Option<AnyView> {
    let (op, same) = (paper.op(), &paper.sheet.duplicates);
    let first = same.first()?;
    if op.state() != State::Pending {
        return None;
    }
    let since = parts::when(first.proposal.created_at, paper.now(), Form::Clock);
    let more = (same.len() > 1).then(|| format!(" and {} more", same.len() - 1));
    let state = parts::capital(first.state().as_str()).to_lowercase();
    let words = view! {
        {format!("{} proposed the same content before, at ", paper.sheet.agent.name)}
        {since}
        {format!(": it is {state}")}
        {more}
        ". Approving both may do it twice."
    };
    Some(notice(
        Meaning::Heed,
        "The same command is open already".to_owned(),
        words,
        Some(("Show it", address(first.id()))),
    ))
}

fn deceptive(paper: &Paper) -> Vec<AnyView> {
    let suspects = content::suspects(paper.sheet);
    let is_hidden = |finding: &Finding| matches!(finding, Finding::Hidden { .. });
    let hidden: Vec<_> = suspects.iter().filter(|suspect| suspect.findings.iter().any(is_hidden)).collect();
    let alike: Vec<_> = suspects.iter().filter(|suspect| !suspect.findings.iter().all(is_hidden)).collect();
    let mut notices = Vec::new();
    if let Some(first) = hidden.first() {
        let heading = match hidden.len() {
            1 => "One field holds a character you cannot see".to_owned(),
            fields => format!("{} hold characters you cannot see", counted(fields, "field")),
        };
        notices.push(notice(Meaning::Heed, heading, hidden_words(first), Some(("Show field", first.anchor.clone()))));
    }
    if let Some(first) = alike.first() {
        let heading = match alike.len() {
            1 => "One field holds a name that is not what it looks like".to_owned(),
            fields => format!("{} hold names that are not what they look like", counted(fields, "field")),
        };
        let word = first.findings.iter().find_map(|finding| match finding {
            Finding::MixedScript { word, punycode } => Some((word, punycode.clone(), " is spelled ")),
            Finding::Punycode { word, decoded } => Some((word, decoded.clone(), " stands for ")),
            Finding::Hidden { .. } => None,
        });
        let words = word.map(|(word, other, how)| {
            view! {
                <code>{parts::line(&first.name)}</code>
                ": "
                <code>{parts::line(word)}</code>
                {other.map(|other| view! { {how}<code>{parts::line(&other)}</code> })}
                "."
            }
        });
        notices.push(notice(Meaning::Heed, heading, words, Some(("Show field", first.anchor.clone()))));
    }
    notices
}

/// Characters of a value up to which it is worth telling how it would have read.
const READABLE: usize = 80;

fn hidden_words(suspect: &content::Suspect) -> impl IntoView + use<> {
    let first = text::pieces(&suspect.text, Breaks::Keep).into_iter().find_map(|piece| match piece {
        text::Piece::Escape { code_point, name } => Some(format!("U+{code_point:04X} ({})", name.to_lowercase())),
        text::Piece::Plain(_) => None,
    });
    let reads_as = text::reads_as(&suspect.text);
    let careless = (suspect.text.chars().count() <= READABLE && !reads_as.trim().is_empty()).then(|| {
        view! {
            " Left unmarked it would read "<code>{parts::line(&reads_as)}</code>". It is not "
            <code>{parts::line(&reads_as)}</code>"."
        }
    });
    view! { <code>{parts::line(&suspect.name)}</code>" contains "{first}"."{careless} }
}

fn empty(paper: &Paper) -> Option<AnyView> {
    let is_empty = paper.sheet.command.params.as_object().is_none_or(|params| params.is_empty());
    is_empty.then(|| {
        let words = view! { <code>"params"</code>" is empty. What this does is set by its kind alone." };
        notice(Meaning::Heed, "There is no content".to_owned(), words, None)
    })
}

/// What a refusal says on the page it sends back, for the top of the strip.
pub fn refused(paper: &Paper, problem: &Problem) -> AnyView {
    let said = |name: &str| problem.members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kept = "Your form is closed; what you wrote is kept below.";
    let afresh = Some(("Show what is new", address(paper.op().id())));
    let next = paper.sheet.place.next.as_ref().map(|id| ("Next item", address(id)));
    match problem.code {
        Code::AlreadyDecided => {
            let (whose, words) = match said("by") == paper.visitor.person.id().as_str() {
                true => ("You".to_owned(), "One vote each. Withdraw it to vote otherwise."),
                false => (said("by_name"), kept),
            };
            let how = if said("decision") == "approve" { "approved" } else { "rejected" };
            let at: Option<Timestamp> =
                problem.members.get("at").and_then(|at| serde_json::from_value(at.clone()).ok());
            let at = at.map(|at| view! { " at "{parts::when(at, paper.now(), Form::Clock)} });
            notice(Meaning::Flow, view! { {parts::line(&whose)}{format!(" {how} this")}{at} }, words, next)
        }
        Code::StaleView => notice(
            Meaning::Heed,
            "This page was older than the operation".to_owned(),
            "Your vote was not counted. This is what is there now: read again, then decide.",
            None,
        ),
        Code::ApprovalExpired => notice(Meaning::Heed, "Too late".to_owned(), sentence(&problem.detail), next),
        Code::ValidationFailed => {
            let detail = problem.errors().first().map_or(problem.detail.clone(), |error| error.detail.clone());
            notice(Meaning::Heed, "Nothing was decided yet".to_owned(), sentence(&detail), None)
        }
        code => notice(
            Meaning::Heed,
            code.title().to_owned(),
            sentence(&problem.detail),
            afresh.filter(|_| code != Code::Forbidden),
        ),
    }
}

/// Leaves of a value with their names, `severity`, `window.from`.
fn leaves(value: &Value) -> Vec<(String, Row)> {
    let nodes = json::flatten(value);
    let leaves = nodes.iter().filter(|node| match node.kind {
        NodeKind::Object { len } | NodeKind::Array { len } => len == 0 && node.depth > 0,
        _ => true,
    });
    leaves.map(|node| (node.pointer.clone(), Row::from(node))).collect()
}

/// Name, now, proposed: what differs first.
fn comparison(paper: &Paper) -> Option<AnyView> {
    let (op, sheet) = (paper.op(), paper.sheet);
    op.proposal.expected_version?;
    if op.proposal.managed {
        return of_document(paper);
    }
    if !op.nothing_sent() && op.state() != State::Conflicted {
        return None;
    }
    let current = sheet.review.current.as_ref()?;
    let (old, new) = (leaves(current), leaves(&sheet.command.params));
    let mut names: Vec<_> = new.iter().chain(&old).map(|(pointer, _)| pointer.clone()).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|pointer| seen.insert(pointer.clone()));
    names.sort_by_key(|pointer| content::rank(sheet, pointer.split('/').nth(1).unwrap_or_default()));
    let find = |side: &[(String, Row)], pointer: &str| {
        side.iter().find(|(other, _)| other == pointer).map(|(_, row)| (row.kind, row.text.clone()))
    };
    let rows: Vec<_> = names.into_iter().map(|name| (find(&old, &name), find(&new, &name), name)).collect();
    let changed = rows.iter().filter(|(old, new, _)| old != new).count();
    let note = match (changed, rows.len()) {
        (0, _) => "Nothing changes.".to_owned(),
        (changed, all) => format!("{changed} of {} change.", counted(all, "field")),
    };
    let (mut first, last): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(old, new, _)| old != new);
    first.extend(last);
    let known = sheet.known.as_ref();
    let since = known.map(|known| {
        view! {
            {format!("version {}, reported ", known.version)}
            {parts::when(known.updated_at, paper.now(), Form::Clock)}
            " by "
            {parts::line(sheet.name_of(&known.updated_by))}
        }
    });
    let now = known.map_or("Now".to_owned(), |known| format!("Now, version {}", known.version));
    let rows = first.into_iter().map(|(old, new, pointer)| {
        let is_same = old == new;
        let (was, will) = if is_same { ("same", "same") } else { ("old", "new") };
        view! {
            <tr>
                <th scope="row">{parts::line(pointer.trim_start_matches('/'))}</th>
                {cell(was, "now", old.map(|(_, text)| text))}
                {cell(will, "proposed", new.map(|(_, text)| text))}
            </tr>
        }
    });
    let table = view! {
        <section class="sec" aria-labelledby="h-diff">
            <div class="sec-head">
                <h2 id="h-diff">"Against what is there"</h2>
                <span class="note">{note}</span>
                <span class="push">{since}</span>
            </div>
            <table class="cmp">
                <colgroup><col class="c-field" /><col /><col /></colgroup>
                <thead>
                    <tr>
                        <th scope="col"><span class="unseen">"Field"</span></th>
                        <th scope="col">{now}</th>
                        <th scope="col">"Proposed"</th>
                    </tr>
                </thead>
                <tbody>{rows.collect::<Vec<_>>()}</tbody>
            </table>
        </section>
    };
    Some(table.into_any())
}

/// The same of a document that is held here: what the write would make of it, as it is now.
fn of_document(paper: &Paper) -> Option<AnyView> {
    let (op, sheet) = (paper.op(), paper.sheet);
    if !matches!(op.state(), State::Pending | State::Approved) {
        return None;
    }
    let known = sheet.known.as_ref();
    let heading = view! { <h2 id="h-diff">"Against what is there"</h2> };
    let Document::Shown(current) = &sheet.document else {
        let section = view! {
            <section class="sec" aria-labelledby="h-diff">
                <div class="sec-head">
                    {heading}
                    <span class="note">"What is there is not shown to you: its rules name the groups that may read it."</span>
                </div>
            </section>
        };
        return Some(section.into_any());
    };
    let after = outcome_of(op.proposal.verb, &sheet.command.params, current.as_ref());
    let changed = diff::diff(current.as_ref(), after.as_ref(), &sheet.array_keys);
    let note = match (changed.len(), &after) {
        (_, None) => "All of it goes.".to_owned(),
        (0, _) => "Nothing changes.".to_owned(),
        (fields, _) => {
            let is_apart = |pointer: &&String| !changed.iter().any(|field| diff::touches(&field.pointer, pointer));
            let all: Vec<_> = current.iter().flat_map(leaves).map(|(pointer, _)| pointer).collect();
            format!("{fields} of {} change.", counted(fields + all.iter().filter(is_apart).count(), "field"))
        }
    };
    let since = known.filter(|known| known.current() > 0).map(|known| {
        view! {
            {format!("version {}, ", known.version)}
            {parts::when(known.updated_at, paper.now(), Form::Clock)}
            ", by "
            {parts::line(sheet.name_of(&known.updated_by))}
        }
    });
    let now = match known.map(resource::Known::current) {
        Some(version @ 1..) => format!("Now, version {version}"),
        _ => "Now".to_owned(),
    };
    let rows: Vec<_> = changed
        .iter()
        .map(|field| {
            let name = match field.pointer.trim_start_matches('/') {
                "" => "the whole document".to_owned(),
                name => name.to_owned(),
            };
            view! {
                <tr>
                    <th scope="row">{parts::line(&name)}</th>
                    {cell("old", "now", field.from.as_ref().map(three::print))}
                    {cell("new", "proposed", field.to.as_ref().map(three::print))}
                </tr>
            }
        })
        .collect();
    let table = (!rows.is_empty()).then(|| {
        view! {
            <table class="cmp">
                <colgroup><col class="c-field" /><col /><col /></colgroup>
                <thead>
                    <tr>
                        <th scope="col"><span class="unseen">"Field"</span></th>
                        <th scope="col">{now}</th>
                        <th scope="col">"Proposed"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        }
    });
    let section = view! {
        <section class="sec" aria-labelledby="h-diff">
            <div class="sec-head">{heading}<span class="note">{note}</span><span class="push">{since}</span></div>
            {table}
        </section>
    };
    Some(section.into_any())
}

fn cell(class: &'static str, tag: &'static str, text: Option<String>) -> impl IntoView {
    let text = match text {
        Some(text) if text.is_empty() => view! { <span class="quiet">"empty"</span> }.into_any(),
        Some(text) => parts::said(&text, Breaks::Keep).into_any(),
        None => view! { <span class="quiet">"not there"</span> }.into_any(),
    };
    view! { <td class=class><span class="tag">{tag}</span><span class="v">{text}</span></td> }
}

/// Longer text is not open from the start: all of it stands in the table.
const LONG_JSON: usize = 4_000;

fn canonical(op: &Operation) -> impl IntoView + use<> {
    view! {
        <section class="sec" aria-label="Canonical JSON">
            <details class="raw" open=op.proposal.canonical.len() <= LONG_JSON>
                <summary>"Canonical JSON, byte for byte what the fingerprint covers"</summary>
                <pre data-canonical="">{parts::shown(&op.proposal.canonical, Breaks::Escape)}</pre>
            </details>
        </section>
    }
}

/// Whether somebody with this role looks after what has gone wrong.
pub fn is_operator(role: Role) -> bool {
    matches!(role, Role::Operator | Role::Admin)
}

/// What the reader wrote before their form was closed.
pub fn kept_words(paper: &Paper) -> Option<AnyView> {
    let Told::Refused(_, draft) = &paper.told else { return None };
    let words = (!draft.words.trim().is_empty()).then(|| parts::said(&draft.words, Breaks::Keep))?;
    Some(
        view! { <div class="claim kept"><p class="claim-title">"You wrote"</p><blockquote>{words}</blockquote></div> }
            .into_any(),
    )
}
