//! The conflict map: where live runs could collide, and what a set that nobody has yet would meet.

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    error::sentence,
    operation::counted,
    parts::{self, Empty, Head, Meaning, Notice},
    render::Visitor,
    shell::Place,
    work,
};
use crate::{
    model::{
        id::RunId,
        overlap::Collision,
        problem::{Code, Problem},
        run::{Allowance, Scope, WriteRequest},
        time::Timestamp,
    },
    server::{
        service::{
            conflict_map::{self, MapView, OverlapView, PlannedSet, PlannedView},
            error::{Error, Result},
            run::RunView,
        },
        web::{auth::Principal, body::Query, state::AppState},
    },
    ui::{textarea::TextArea, time::Form},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/conflict-map", get(show))
}

/// A set to check, as it is typed; nothing is checked while all is empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Typed {
    write: String,
    reads: String,
    defaults: String,
}

impl Typed {
    fn is_empty(&self) -> bool {
        [&self.write, &self.reads, &self.defaults].iter().all(|text| text.trim().is_empty())
    }

    /// # Errors
    /// The line that is not one, and why.
    fn set(&self) -> std::result::Result<PlannedSet, String> {
        let scopes = |text: &str| {
            let parse = |word: &str| {
                word.parse::<Scope>().map_err(|_| format!("`{word}` is no target and no beginning of one"))
            };
            text.split_whitespace().map(parse).collect::<std::result::Result<Vec<_>, _>>()
        };
        let lines = self.write.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(PlannedSet {
            write_set: lines.map(write).collect::<std::result::Result<_, _>>()?,
            reads: scopes(&self.reads)?,
            defaults: scopes(&self.defaults)?,
            expires_in_s: None,
        })
    }
}

/// `release/prod-eu deploy rollback alone`
fn write(line: &str) -> std::result::Result<WriteRequest, String> {
    let exclusive = line.split_whitespace().any(|word| word == ALONE);
    let rest: Vec<_> = line.split_whitespace().filter(|word| *word != ALONE).collect();
    let Allowance { resource, verbs } = rest.join(" ").parse().map_err(|why| format!("`{line}`: {why}"))?;
    Ok(WriteRequest { resource, verbs, exclusive, not_before: None, expires_in_s: None })
}

/// The word for a right that nobody else may have at the same time.
const ALONE: &str = "alone";

async fn show(visitor: Visitor, Query(typed): Query<Typed>) -> Result<Response> {
    let reader = Principal::Person(visitor.person.clone());
    let map = conflict_map::map(&visitor.desk, &reader).await?;
    let checked = match typed.is_empty() {
        true => None,
        false => Some(match typed.set() {
            Ok(set) => match conflict_map::check(&visitor.desk, &reader, set).await {
                Ok(answer) => Ok(answer),
                Err(Error::Refused(problem)) => Err(detail(&problem)),
                Err(error) => return Err(error),
            },
            Err(why) => Err(why),
        }),
    };
    let is_invalid = checked.as_ref().is_some_and(|checked| checked.is_err());
    let now = visitor.now;
    let page = visitor.page("Conflict map", Place::Runs, || {
        view! {
            <Head title="Conflict map" aside=Some(parts::live().into_any())>
                "Where live runs could collide, by what they declared before they started."
            </Head>
            {work::lanes(work::Lane::Map)}
            <div class="gap-top">{body(&map, now)}</div>
            {check_form(&typed, checked, now).into_any()}
        }
    });
    Ok(if is_invalid { page.refused(Code::ValidationFailed).into_response() } else { page.into_response() })
}

fn detail(problem: &Problem) -> String {
    problem.errors().first().map_or(problem.detail.clone(), |error| error.detail.clone())
}

fn body(map: &MapView, now: Timestamp) -> impl IntoView + use<> {
    let declared = map.runs.iter().filter(|run| declares(run)).count();
    if declared == 0 {
        return view! {
            <Empty heading="No live run says what it writes" way_on=Some(("See the runs", "/runs".to_owned()))>
                "A run declares its write set, what it reads and which defaults it shares when it starts."
            </Empty>
        }
        .into_any();
    }
    let pairs: Vec<_> = map.overlaps.iter().map(|overlap| pair(overlap, now)).collect();
    let pairs = match pairs.is_empty() {
        true => view! { <p class="pane second">{format!("None of {} collides with another.", counted(declared, "live run"))}</p> }
            .into_any(),
        false => view! { <ol class="pairs">{pairs}</ol> }.into_any(),
    };
    let more = map.truncated.then_some(" There are more than are shown.");
    view! {
        <section class="card" aria-labelledby="h-pairs">
            <div class="pane">
                <h2 id="h-pairs">"Colliding pairs"</h2>
                <p class="second">"The worst first. A lease, or a set that is held alone, keeps them apart."{more}</p>
            </div>
            {pairs}
        </section>
        {matrix(map)}
    }
    .into_any()
}

fn declares(run: &RunView) -> bool {
    run.write_set.as_ref().is_some_and(|set| !set.is_empty())
        || run.reads.as_ref().is_some_and(|reads| !reads.is_empty())
        || run.defaults.as_ref().is_some_and(|defaults| !defaults.is_empty())
}

fn is_grave(collision: Collision) -> bool {
    matches!(collision, Collision::Delete | Collision::Write)
}

fn word(collision: Collision) -> &'static str {
    match collision {
        Collision::Delete => "deletes",
        Collision::Write => "both write",
        Collision::Default => "default",
        Collision::Read => "reads",
    }
}

/// One collision: a mark, a sentence, the runs and the time.
fn pair(overlap: &OverlapView, now: Timestamp) -> impl IntoView + use<> {
    let class = if is_grave(overlap.collision) { "stop" } else { "heed" };
    let run = |id: &Option<RunId>, name: &str| match id {
        Some(id) => view! { <a href=format!("/runs/{id}")>{parts::line(name)}</a> }.into_any(),
        None => parts::line(name).into_any(),
    };
    let from = (overlap.from - now > 1000).then(|| view! { "from "{parts::when(overlap.from, now, Form::Clock)}" " });
    let resource = overlap.resource.as_str();
    // A whole target has a page of its own, if anything is known of it.
    let resource = match resource.ends_with('*') {
        true => parts::target(resource).into_any(),
        false => view! { <a href=format!("/resources?prefix={resource}")>{parts::target(resource)}</a> }.into_any(),
    };
    view! {
        <li>
            {parts::flag(class, word(overlap.collision).to_owned())}
            <div>
                <p>{parts::line(&overlap.sentence)}"."</p>
                <p>
                    {run(&overlap.writer, &overlap.writer_name)}
                    " · "
                    {run(&overlap.other, &overlap.other_name)}
                    " · "
                    {resource}
                    " · "
                    {from}
                    "until "
                    {parts::when(overlap.until, now, Form::Clock)}
                </p>
            </div>
        </li>
    }
}

/// Rows and columns of the matrix at most: what collides comes first.
const MAX_ROWS: usize = 40;
const MAX_COLUMNS: usize = 12;

/// What a run does with a resource.
struct Cell {
    words: Vec<String>,
    /// The gravest collision it has part in here.
    collision: Option<Collision>,
}

fn matrix(map: &MapView) -> Option<AnyView> {
    let mut rows: Vec<&Scope> = Vec::new();
    for overlap in &map.overlaps {
        if !rows.contains(&&overlap.resource) {
            rows.push(&overlap.resource);
        }
    }
    let declared = map.runs.iter().flat_map(|run| {
        let writes = run.write_set.iter().flatten().map(|grant| &grant.resource);
        writes.chain(run.reads.iter().flatten()).chain(run.defaults.iter().flatten())
    });
    for scope in declared {
        if !rows.contains(&scope) {
            rows.push(scope);
        }
    }
    let collides = |run: &RunView| {
        map.overlaps
            .iter()
            .any(|overlap| overlap.writer.as_ref() == Some(&run.id) || overlap.other.as_ref() == Some(&run.id))
    };
    let mut columns: Vec<&RunView> = map.runs.iter().filter(|run| declares(run)).collect();
    columns.sort_by_key(|run| !collides(run));
    let left_out = (rows.len().saturating_sub(MAX_ROWS), columns.len().saturating_sub(MAX_COLUMNS));
    rows.truncate(MAX_ROWS);
    columns.truncate(MAX_COLUMNS);
    if rows.is_empty() || columns.is_empty() {
        return None;
    }
    let note = match left_out {
        (0, 0) => String::new(),
        (rows, 0) => format!("{} more are not shown.", counted(rows, "resource")),
        (0, runs) => format!("{} more are not shown.", counted(runs, "run")),
        (rows, runs) => format!("{} and {} more are not shown.", counted(rows, "resource"), counted(runs, "run")),
    };
    let heads: Vec<_> = columns
        .iter()
        .map(|run| {
            view! {
                <th scope="col">
                    <b>{parts::line(&run.agent_name)}</b>
                    <a href=format!("/runs/{}", run.id)>{parts::line(&run.label)}</a>
                </th>
            }
        })
        .collect();
    let lines: Vec<_> = rows
        .iter()
        .map(|scope| {
            let cells: Vec<_> = columns.iter().map(|run| in_table(cell(map, run, scope))).collect();
            view! { <tr><th scope="row">{parts::target(scope.as_str())}</th>{cells}</tr> }
        })
        .collect();
    let listed: Vec<_> = rows
        .iter()
        .map(|scope| {
            let uses: Vec<_> = columns
                .iter()
                .filter_map(|run| {
                    let Cell { words, collision } = cell(map, run, scope);
                    (!words.is_empty()).then(|| {
                        view! {
                            <li class=shade(collision)>
                                {parts::line(&run.agent_name)}
                                ", "
                                <a href=format!("/runs/{}", run.id)>{parts::line(&run.label)}</a>
                                ": "
                                {words.join(", ")}
                                {sign(collision)}
                            </li>
                        }
                    })
                })
                .collect();
            view! { <li>{parts::target(scope.as_str())}<ul>{uses}</ul></li> }
        })
        .collect();
    let section = view! {
        <section class="card gap-top" aria-labelledby="h-matrix">
            <div class="pane">
                <h2 id="h-matrix">"Runs and resources"</h2>
                <p class="second">
                    "≠ both write or delete it; ! one writes what the other reads or relies on. "{note}
                </p>
            </div>
            <div class="pane scroll-x matrix-wide" role="region" tabindex="0" aria-label="Matrix of runs and resources">
                <table class="matrix">
                    <thead><tr><td></td>{heads}</tr></thead>
                    <tbody>{lines}</tbody>
                </table>
            </div>
            <ul class="pane map-list">{listed}</ul>
        </section>
    };
    Some(section.into_any())
}

fn cell(map: &MapView, run: &RunView, scope: &Scope) -> Cell {
    let meets = |other: &Scope| other.covers(scope) || scope.covers(other);
    let mut words = Vec::new();
    for grant in run.write_set.iter().flatten().filter(|grant| meets(&grant.resource)) {
        let verbs: Vec<_> = grant.verbs.iter().map(|verb| verb.as_str()).collect();
        words.push(format!("{}{}", verbs.join(" "), if grant.exclusive { ", alone" } else { "" }));
    }
    if run.reads.iter().flatten().any(meets) {
        words.push("reads".to_owned());
    }
    if run.defaults.iter().flatten().any(meets) {
        words.push("default".to_owned());
    }
    let has_part = |overlap: &&OverlapView| {
        overlap.resource == *scope
            && (overlap.writer.as_ref() == Some(&run.id) || overlap.other.as_ref() == Some(&run.id))
    };
    let collision = map.overlaps.iter().filter(has_part).map(|overlap| overlap.collision).min();
    Cell { words, collision }
}

fn shade(collision: Option<Collision>) -> &'static str {
    match collision {
        Some(collision) if is_grave(collision) => "hit",
        Some(_) => "near",
        None => "",
    }
}

fn sign(collision: Option<Collision>) -> Option<AnyView> {
    let collision = collision?;
    let sign = if is_grave(collision) { "≠" } else { "!" };
    Some(view! { " "<span aria-hidden="true">{sign}</span><span class="unseen">", collides"</span> }.into_any())
}

fn in_table(cell: Cell) -> impl IntoView {
    match cell.words.is_empty() {
        true => {
            view! { <td class="none"><span aria-hidden="true">"·"</span><span class="unseen">"nothing"</span></td> }
                .into_any()
        }
        false => {
            view! { <td class=shade(cell.collision)>{cell.words.join("; ")}{sign(cell.collision)}</td> }.into_any()
        }
    }
}

fn check_form(
    typed: &Typed,
    checked: Option<std::result::Result<PlannedView, String>>,
    now: Timestamp,
) -> impl IntoView + use<> {
    let wrong = matches!(checked, Some(Err(_)));
    let answer = checked.map(|checked| match checked {
        Ok(answer) => verdict(&answer, now).into_any(),
        Err(why) => view! { <p class="err" id="bad-set" role="alert">{parts::line(&sentence(&why))}</p> }.into_any(),
    });
    view! {
        <section class="card gap-top" id="check" aria-labelledby="h-check">
            <div class="pane">
                <h2 id="h-check">"Check a set before it is granted"</h2>
                <p class="second">"Nothing is granted or kept by asking."</p>
            </div>
            {answer.map(|answer| view! { <div class="pane">{answer}</div> })}
            <form class="pane" action="/conflict-map" method="get" aria-label="Check a write set">
                <div class="stack narrow">
                <label class="field" for="write"><span>"Would write, one a line"</span></label>
                <TextArea
                    id="write"
                    name="write"
                    rows=3
                    class="mono"
                    maxlength=20000
                    value=typed.write.clone()
                    described_by=Some(if wrong { "bad-set" } else { "how-set" })
                    invalid=wrong.then_some("true")
                />
                <p class="hint" id="how-set">
                    "The target or its beginning, then what is done to it: "<code>"release/prod-* deploy rollback"</code>
                    ". "<code>"alone"</code>" keeps others off."
                </p>
                <div class="pair">
                    <div>
                        <label class="field" for="reads"><span>"Would read"</span></label>
                        <TextArea id="reads" name="reads" rows=2 class="mono" maxlength=20000 value=typed.reads.clone() />
                    </div>
                    <div>
                        <label class="field" for="defaults"><span>"Would rely on as defaults"</span></label>
                        <TextArea
                            id="defaults"
                            name="defaults"
                            rows=2
                            class="mono"
                            maxlength=20000
                            value=typed.defaults.clone()
                        />
                    </div>
                </div>
                <div class="foot"><button class="btn btn-ink" type="submit">"Check"</button></div>
                </div>
            </form>
        </section>
    }
}

fn verdict(answer: &PlannedView, now: Timestamp) -> impl IntoView + use<> {
    let count = answer.overlaps.len();
    let collisions = counted(count, "collision");
    let (meaning, heading, words) = match (&answer.refusal, count) {
        (Some(refusal), _) => {
            (Meaning::Stop, format!("{collisions}, and it would be refused"), sentence(&refusal.detail))
        }
        (None, 0) => (
            Meaning::Sign,
            "Nothing is in the way".to_owned(),
            "No live run has declared anything that meets this set.".to_owned(),
        ),
        (None, _) => (
            Meaning::Heed,
            format!("{collisions}, and it could be granted all the same"),
            "A lease, or a set that is held alone, keeps them apart.".to_owned(),
        ),
    };
    let pairs: Vec<_> = answer.overlaps.iter().map(|overlap| pair(overlap, now)).collect();
    let words = parts::line(&words);
    view! {
        <Notice meaning=meaning heading=heading>{words}</Notice>
        {(!pairs.is_empty()).then(|| view! { <ol class="pairs pairs-bare">{pairs}</ol> })}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_scope_its_verbs_and_perhaps_alone() {
        let asked = write("release/prod-* deploy alone rollback").unwrap();
        assert_eq!((asked.resource.as_str(), asked.verbs.len(), asked.exclusive), ("release/prod-*", 2, true));
        for bad in ["release/prod-eu", "release deploy", "release/prod-eu fly", "alone"] {
            assert!(write(bad).is_err(), "{bad}");
        }
    }
}
