//! How the desk is doing: what nobody is sure of, what is late, and what it costs.

use axum::{Router, routing::get};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    charts::{Bar, Chart, Series, Span, Unit, bars, columns, lines},
    parts::{self, Empty, Head, Meaning, Notice},
    render::{Page, Visitor},
    shell::Place,
};
use crate::{
    model::{approval::Role, time::Timestamp},
    server::{
        service::{
            error::Result,
            measures::{self, Case, Measures, Window},
        },
        web::{body::Query, state::AppState},
    },
    ui::time::{Form, span},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/on-call", get(show))
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    window: Window,
}

async fn show(visitor: Visitor, Query(asked): Query<Asked>) -> Result<Page> {
    let measures = measures::read(&visitor.desk, asked.window).await?;
    Ok(visitor.page("On call", Place::OnCall, || {
        let charts = match is_still(&measures) {
            true => view! {
                <Empty heading="Nothing happened in this time" symbol="done" way_on=Some(("To the desk", "/".to_owned()))>
                    "No duplicate came, nothing conflicted, nobody waits, and every write that was sent has an answer."
                </Empty>
            }
            .into_any(),
            false => charts(&measures, visitor.person.role()).into_any(),
        };
        view! {
            <Head title="On call">"What nobody is sure of, what is late, and what it costs."</Head>
            {windows(asked.window)}
            {since(&measures)}
            {ledger(&measures)}
            {charts}
        }
    }))
}

fn is_still(m: &Measures) -> bool {
    let counted = [
        m.duplicates.suppressed(),
        m.duplicates.other_content,
        m.missed.granted,
        m.missed.all(),
        m.recovery.count,
        m.people.decisions,
        m.people.interventions,
        m.completed,
    ];
    m.unknown.is_empty() && m.waiting.count == 0 && m.conflicts.is_empty() && counted == [0; 8]
}

fn spelled(window: Window) -> &'static str {
    match window {
        Window::Day => "24 hours",
        Window::Week => "7 days",
        Window::Month => "30 days",
    }
}

fn windows(here: Window) -> impl IntoView {
    let links = Window::ALL.map(|window| {
        let address = format!("/on-call?window={}", window.as_str());
        view! { <a href=address aria-current=(window == here).then_some("page")>{spelled(window)}</a> }
    });
    view! { <nav class="lanes" aria-label="Time">{links.into_iter().collect::<Vec<_>>()}</nav> }
}

fn since(m: &Measures) -> impl IntoView + use<> {
    let until = m.until;
    let slots = if m.window == Window::Day { "hours" } else { "days" };
    let cut = m.cut_at.map(|at| {
        view! {
            <Notice meaning=Meaning::Heed heading="Older records are not counted">
                "The log has grown faster than one page counts. What is shown begins at "
                {parts::when(at, until, Form::Clock)}"."
            </Notice>
        }
    });
    view! {
        {cut}
        <p class="second counted">
            "Counted since "{parts::when(m.since, until, Form::Clock)}", in whole "{slots}" of UTC with the present one."
        </p>
    }
}

fn each(n: i64, one: &str, several: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {several}") }
}

fn span_s(seconds: i64) -> String {
    span(seconds * 1000)
}

fn ledger(m: &Measures) -> impl IntoView + use<> {
    let figure = |class: &'static str, name: &'static str, value: String, words: String| {
        view! { <div class=class><dt>{name}</dt><dd>{value}</dd><dd>{words}</dd></div> }
    };
    let oldest = m.unknown.iter().map(|case| case.since).min();
    let unknown = match (m.overdue, oldest) {
        (_, None) => "every answer came".to_owned(),
        (0, Some(since)) => format!("oldest {}, none overdue", span(m.until - since)),
        (overdue, Some(since)) => format!("oldest {}, {overdue} overdue", span(m.until - since)),
    };
    let doubt = if m.unknown.is_empty() { "" } else { "bad" };
    let waiting = m.waiting.oldest_s.map_or("nobody waits".to_owned(), |s| format!("oldest {}", span_s(s)));
    let recovery = match m.recovery.p50_s {
        Some(s) => format!("p50 {}, of {}", span_s(s), m.recovery.count),
        None => "no answer was lost and found".to_owned(),
    };
    let p95 = m.recovery.p95_s.map_or("–".to_owned(), span_s);
    let by_hand = each(m.people.interventions, "intervention", "interventions");
    let (each_done, cost) = match &m.cost {
        None => ("–".to_owned(), format!("no unit costs are set; {by_hand}")),
        Some(cost) => match cost.each_minor {
            Some(minor) => (cost.words(minor), format!("{by_hand}, {} done", m.completed)),
            None => ("–".to_owned(), format!("{by_hand}, nothing was completed")),
        },
    };
    view! {
        <dl class="ledger">
            {figure(doubt, "Unknown, open", m.unknown.len().to_string(), unknown)}
            {figure("", "Waiting for a vote", m.waiting.count.to_string(), waiting)}
            {figure("", "Approved, never applied", m.missed.all().to_string(), format!("of {} approved", m.missed.granted))}
            {figure(
                "",
                "Duplicates stopped",
                m.duplicates.suppressed().to_string(),
                format!("{} wrongly", m.duplicates.wrong()),
            )}
            {figure("", "Time to recover, p95", p95, recovery)}
            {figure("", "Cost, each done right", each_done, cost)}
        </dl>
    }
}

fn charts(m: &Measures, role: Role) -> impl IntoView + use<> {
    view! {
        <div class="charts">
            {unknown(m)}
            {recovery(m)}
            {duplicates(m)}
            {conflicts(m)}
            {pairs(m)}
            {waiting(m)}
            {missed(m)}
            {people(m, role)}
        </div>
    }
}

/// A chart's place while there is nothing to draw.
fn nothing(heading: &'static str, words: &'static str, wide: Span) -> AnyView {
    let class = if wide == Span::Whole { "chart chart-wide chart-none" } else { "chart chart-none" };
    view! { <section class=class><h2>{heading}</h2><p>{words}</p></section> }.into_any()
}

fn slot_labels(m: &Measures) -> Vec<String> {
    let form = if m.window == Window::Day { Form::Minute } else { Form::Day };
    m.slots.iter().map(|slot| parts::utc(slot.at, form, m.until)).collect()
}

fn by_slot(m: &Measures) -> &'static str {
    if m.window == Window::Day { "by hour of UTC" } else { "by day of UTC" }
}

fn slot_head(m: &Measures) -> &'static str {
    if m.window == Window::Day { "Hour" } else { "Day" }
}

fn cell(value: impl ToString) -> AnyView {
    value.to_string().into_any()
}

fn due(case: &Case, now: Timestamp) -> String {
    let owner = case.owner.as_deref().unwrap_or("no owner");
    match case.due_at {
        None => "no case yet".to_owned(),
        Some(at) if case.overdue => format!("{owner}, {} overdue", span(now - at)),
        Some(at) => format!("{owner}, due in {}", span(at - now)),
    }
}

/// Bars of one chart: the rest is in the table.
const BARS: usize = 12;

fn unknown(m: &Measures) -> AnyView {
    const HEADING: &str = "Unknown outcomes, open";
    if m.unknown.is_empty() {
        return nothing(HEADING, "Every write that was sent has a definite outcome.", Span::Whole);
    }
    let now = m.until;
    let mut oldest: Vec<_> = m.unknown.iter().collect();
    oldest.sort_by_key(|case| case.since);
    let drawn: Vec<_> = oldest
        .iter()
        .take(BARS)
        .map(|case| {
            let label = format!("{} {} {}", case.short_code, case.title, case.target);
            let value = (now - case.since) / 1000;
            let mark = case.due_at.map(|at| (at - case.since) / 1000);
            (label, value, due(case, now), mark)
        })
        .collect();
    let draw = move |room| {
        let rows = drawn.iter().map(|(label, value, words, mark)| {
            let label = parts::plain(&shortened(label, 60));
            Bar { label, colour: "doubt", value: *value, words: parts::plain(words), mark: *mark }
        });
        bars(room, &rows.collect::<Vec<_>>(), Unit::Seconds)
    };
    let rows = m.unknown.iter().map(|case| {
        let address = format!("/operations/{}", case.operation);
        let name = view! { <a href=address>{case.title.clone()}" "{parts::target(&case.target)}</a> };
        let due_at = match case.due_at {
            Some(at) if case.overdue => {
                view! { <span class="flag flag-doubt">"overdue"</span>" "{span(now - at)} }.into_any()
            }
            Some(at) => view! { "in "{span(at - now)} }.into_any(),
            None => "no case yet".into_any(),
        };
        let owner = case.owner.as_ref().map_or("nobody".into_any(), |owner| parts::line(owner).into_any());
        vec![name.into_any(), cell(&case.short_code), cell(span(now - case.since)), owner, due_at]
    });
    let describes = format!(
        "{} open, the oldest for {}, {} overdue",
        each(m.unknown.len() as i64, "unknown outcome", "unknown outcomes"),
        oldest.first().map_or(String::new(), |case| span(now - case.since)),
        m.overdue,
    );
    view! {
        <Chart
            id="unknown"
            heading=HEADING
            words="Since the answer was lost, the oldest first. The broken line is the due time; passing it decides nothing.".to_owned()
            describes=describes
            draw=Box::new(draw)
            span=Span::Whole
            heads=vec!["Operation", "Number", "Unknown for", "Owner", "Due"]
            rows=rows.collect()
        />
    }
    .into_any()
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most - 1).collect();
    short.push('…');
    short
}

fn minutes(seconds: i64) -> String {
    format!("{}.{} min", seconds / 60, seconds % 60 / 6)
}

fn recovery(m: &Measures) -> AnyView {
    const HEADING: &str = "Time to recover";
    let (Some(p50), Some(p95)) = (m.recovery.p50_s, m.recovery.p95_s) else {
        return nothing(HEADING, "No lost answer was settled in this time.", Span::Half);
    };
    let labels = slot_labels(m);
    let in_minutes = |of: fn(&measures::Recovered) -> Option<i64>| -> Vec<_> {
        m.slots.iter().map(|slot| of(&slot.recovery).map(|s| (s + 30) / 60)).collect()
    };
    let (fast, slow) = (in_minutes(|recovered| recovered.p50_s), in_minutes(|recovered| recovered.p95_s));
    let named = labels.clone();
    let draw = move |room| {
        let slow = Series { name: "p95", colour: "doubt", values: slow.clone() };
        let fast = Series { name: "p50", colour: "ink", values: fast.clone() };
        lines(room, &named, &[slow, fast])
    };
    let rows = m.slots.iter().zip(labels).rev().filter(|(slot, _)| slot.recovery.count > 0).map(|(slot, label)| {
        let of = |s: Option<i64>| cell(s.map_or("–".to_owned(), minutes));
        vec![cell(label), cell(slot.recovery.count), of(slot.recovery.p50_s), of(slot.recovery.p95_s)]
    });
    view! {
        <Chart
            id="recovery"
            heading=HEADING
            words=format!("Minutes from the lost answer to what settled it, {}. Through: the slowest 5 in 100. Broken: the middle.", by_slot(m))
            describes=format!("{} settled, half of them within {}, 95 in 100 within {}", m.recovery.count, span_s(p50), span_s(p95))
            draw=Box::new(draw)
            heads=vec![slot_head(m), "Settled", "p50", "p95"]
            rows=rows.collect()
        />
    }
    .into_any()
}

fn duplicates(m: &Measures) -> AnyView {
    const HEADING: &str = "Duplicates stopped";
    let d = m.duplicates;
    if d.suppressed() + d.other_content == 0 {
        return nothing(HEADING, "No request came twice in this time.", Span::Half);
    }
    let labels = slot_labels(m);
    let values = |of: fn(&measures::Slot) -> i64| -> Vec<_> { m.slots.iter().map(|slot| Some(of(slot))).collect() };
    let (key, event, command) =
        (values(|slot| slot.same_key), values(|slot| slot.same_event), values(|slot| slot.same_command));
    let named = labels.clone();
    let draw = move |room| {
        let series = [
            Series { name: "same key again", colour: "ink", values: key.clone() },
            Series { name: "same event, new key", colour: "soft", values: event.clone() },
            Series { name: "same command, new key", colour: "flow", values: command.clone() },
        ];
        columns(room, &named, &series)
    };
    let mut rows: Vec<_> = m
        .slots
        .iter()
        .zip(labels)
        .rev()
        .map(|(slot, label)| vec![cell(label), cell(slot.same_key), cell(slot.same_event), cell(slot.same_command)])
        .collect();
    let total = vec![cell("All"), cell(d.same_key), cell(d.same_event), cell(d.same_command)];
    rows.insert(0, total);
    let besides = [
        (d.refused, "repeated event was refused", "repeated events were refused"),
        (d.other_content, "known key came with other content", "known keys came with other content"),
    ];
    let besides: String = besides
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, one, several)| format!(" Besides, {}.", each(n, one, several)))
        .collect();
    let wrong = match (d.wrongly_held, d.wrongly_refused) {
        (0, 0) => String::new(),
        (held, refused) => format!(
            " Stopped wrongly, as people found: {held} held and then approved as a second one, {refused} refused and then asked for."
        ),
    };
    view! {
        <Chart
            id="duplicates"
            heading=HEADING
            words=format!("Requests that did not act twice, {}.{besides}{wrong}", by_slot(m))
            describes=format!(
                "{} under the same key, {} for the same event, {} of the same command",
                d.same_key,
                d.same_event,
                d.same_command,
            )
            series=vec![("ink", "same key again"), ("soft", "same event, new key"), ("flow", "same command, held")]
            draw=Box::new(draw)
            heads=vec![slot_head(m), "Same key", "Same event", "Same command"]
            rows=rows
        />
    }
    .into_any()
}

/// Bars that are counted, with the number behind each.
fn counted(rows: Vec<(String, i64)>, colour: &'static str) -> impl Fn(super::charts::Room) -> super::charts::Drawing {
    move |room| {
        let bar = |(label, n): &(String, i64)| Bar {
            label: shortened(&parts::plain(label), 34),
            colour,
            value: *n,
            words: n.to_string(),
            mark: None,
        };
        bars(room, &rows.iter().take(BARS).map(bar).collect::<Vec<_>>(), Unit::Count)
    }
}

fn conflicts(m: &Measures) -> AnyView {
    const HEADING: &str = "Conflicts by kind";
    if m.conflicts.is_empty() {
        return nothing(HEADING, "Nothing was written on a stale plan, and nothing met.", Span::Half);
    }
    let named: Vec<_> = m.conflicts.iter().map(|kind| (kind.code.replace('_', " "), kind.count)).collect();
    let rows = m.conflicts.iter().map(|kind| {
        let address = format!("/problems/{}", kind.code);
        vec![view! { <a href=address>{kind.code.replace('_', " ")}</a> }.into_any(), cell(kind.count)]
    });
    let told: Vec<_> = named.iter().map(|(code, n)| format!("{code} {n}")).collect();
    view! {
        <Chart
            id="conflicts"
            heading=HEADING
            words="Writes that were refused because something else came before or stood in the way.".to_owned()
            describes=told.join(", ")
            draw=Box::new(counted(named, "stop"))
            heads=vec!["Kind", "Count"]
            rows=rows.collect()
        />
    }
    .into_any()
}

fn pairs(m: &Measures) -> AnyView {
    const HEADING: &str = "Conflicts by pair of agents";
    if m.pairs.is_empty() {
        return nothing(HEADING, "No two agents met at one resource.", Span::Half);
    }
    let met = |pair: &measures::Pair| pair.met.clone().unwrap_or_else(|| "somebody outside this desk".to_owned());
    let named: Vec<_> = m.pairs.iter().map(|pair| (format!("{} met {}", pair.agent, met(pair)), pair.count)).collect();
    let rows = m
        .pairs
        .iter()
        .map(|pair| vec![parts::line(&pair.agent).into_any(), parts::line(&met(pair)).into_any(), cell(pair.count)]);
    let told: Vec<_> = named.iter().map(|(pair, n)| format!("{pair}: {n}")).collect();
    view! {
        <Chart
            id="pairs"
            heading=HEADING
            words="Whose write was refused, and whose change it met.".to_owned()
            describes=parts::plain(&told.join(", "))
            draw=Box::new(counted(named, "ink"))
            heads=vec!["Refused", "Met", "Count"]
            rows=rows.collect()
        />
    }
    .into_any()
}

const AGES: [&str; 5] = ["under 1 min", "1 to 5", "5 to 15", "15 to 60", "over 60"];

fn waiting(m: &Measures) -> AnyView {
    const HEADING: &str = "Approvals waiting, by age";
    if m.waiting.count == 0 {
        return nothing(HEADING, "Nothing waits for a vote.", Span::Half);
    }
    let ages = m.waiting.ages;
    let draw = move |room| {
        let labels = AGES.map(str::to_owned);
        // The last one has waited too long.
        let [a, b, c, d, late] = ages.map(Some);
        let waiting = Series { name: "waiting", colour: "ink", values: vec![a, b, c, d, None] };
        let late = Series { name: "waiting", colour: "heed", values: vec![None, None, None, None, late] };
        columns(room, &labels, &[waiting, late])
    };
    let rows = AGES.iter().zip(ages).map(|(age, n)| vec![cell(age), cell(n)]);
    let told: Vec<_> = AGES.iter().zip(ages).map(|(age, n)| format!("{age} {n}")).collect();
    view! {
        <Chart
            id="waiting"
            heading=HEADING
            words="Minutes since the proposal, right now.".to_owned()
            describes=told.join(", ")
            draw=Box::new(draw)
            heads=vec!["Minutes", "Waiting"]
            rows=rows.collect()
        />
    }
    .into_any()
}

fn missed(m: &Measures) -> AnyView {
    const HEADING: &str = "Approved, never applied";
    if m.missed.all() == 0 {
        return nothing(HEADING, "Nothing that was approved came to nothing.", Span::Half);
    }
    let named = [
        ("expired before it was sent", m.missed.expired),
        ("failed", m.missed.failed),
        ("conflicted after approval", m.missed.conflicted),
    ];
    let rows = named.iter().map(|(why, n)| vec![cell(why), cell(n)]).collect();
    let told: Vec<_> = named.iter().map(|(why, n)| format!("{why} {n}")).collect();
    let named: Vec<_> = named.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect();
    view! {
        <Chart
            id="missed"
            heading=HEADING
            words=format!("Why, of {}.", each(m.missed.granted, "approval", "approvals"))
            describes=told.join(", ")
            draw=Box::new(counted(named, "ink"))
            heads=vec!["Why", "Count"]
            rows=rows
        />
    }
    .into_any()
}

fn people(m: &Measures, role: Role) -> AnyView {
    const HEADING: &str = "What people did, and what it cost";
    let cost = match &m.cost {
        None => "Unit costs are not set, so that no cost is shown.".to_owned(),
        Some(cost) => {
            let total = cost.words(cost.total_minor);
            let done = each(m.completed, "operation was", "operations were");
            let unknown = each(cost.unknown_minutes, "unknown minute", "unknown minutes");
            match cost.each_minor {
                Some(minor) => {
                    format!("{total} with {unknown}; {done} completed correctly, {} each.", cost.words(minor))
                }
                None => format!("{total} with {unknown}; nothing was completed."),
            }
        }
    };
    let labels = slot_labels(m);
    let values = |of: fn(&measures::Slot) -> i64| -> Vec<_> { m.slots.iter().map(|slot| Some(of(slot))).collect() };
    let (decisions, interventions) = (values(|slot| slot.people.decisions), values(|slot| slot.people.interventions));
    let named = labels.clone();
    let draw = move |room| {
        let series = [
            Series { name: "interventions", colour: "ink", values: interventions.clone() },
            Series { name: "votes", colour: "soft", values: decisions.clone() },
        ];
        columns(room, &named, &series)
    };
    let mut rows: Vec<_> = m
        .slots
        .iter()
        .zip(labels)
        .rev()
        .map(|(slot, label)| {
            vec![cell(label), cell(slot.people.decisions), cell(slot.people.interventions), cell(slot.completed)]
        })
        .collect();
    rows.insert(0, vec![cell("All"), cell(m.people.decisions), cell(m.people.interventions), cell(m.completed)]);
    let describes = format!("{} votes and {} interventions", m.people.decisions, m.people.interventions);
    let change = match (role, &m.cost) {
        (Role::Admin, None) => "Set unit costs",
        (Role::Admin, Some(_)) => "Change unit costs",
        (_, _) => "Unit costs",
    };
    view! {
        <Chart
            id="people"
            heading=HEADING
            words=format!("Votes, and whatever else people did about one operation, lease or run, {}. {cost}", by_slot(m))
            describes=describes
            series=vec![("ink", "interventions"), ("soft", "votes")]
            draw=Box::new(draw)
            span=Span::Whole
            heads=vec![slot_head(m), "Votes", "Interventions", "Completed"]
            rows=rows
            way_on=("/settings/costs", change)
        />
    }
    .into_any()
}
