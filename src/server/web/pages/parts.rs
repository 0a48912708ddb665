//! The parts that pages are made of. Leaves are functions of a value; what holds other content is a component.
//!
//! Text from outside goes through [`said`]. Nothing here reads the store, and nothing is computed from the present
//! moment but what `now` brings.

use leptos::prelude::*;

use crate::{
    model::{
        kind::Risk,
        operation::{Operation, State},
        text::{Breaks, Piece, pieces},
        time::Timestamp,
    },
    ui::time::{self, Civil, Form},
};

/// Text that somebody else wrote: kept apart from ours in direction, with what cannot be seen shown as a chip.
pub fn said(text: &str, breaks: Breaks) -> impl IntoView + use<> {
    view! { <bdi>{shown(text, breaks)}</bdi> }
}

/// The same within text that is isolated already.
pub fn shown(text: &str, breaks: Breaks) -> Vec<AnyView> {
    let mut parts = Vec::new();
    for piece in pieces(text, breaks) {
        match piece {
            Piece::Escape { code_point, name } => parts.push(escape(code_point, name).into_any()),
            // Parsers of HTML drop the carriage return of a line break; whoever hashes what is seen would miss it.
            Piece::Plain(plain) => {
                for (i, run) in plain.split('\r').enumerate() {
                    if i > 0 {
                        parts.push(escape('\r'.into(), "carriage return").into_any());
                    }
                    if !run.is_empty() {
                        parts.push(run.to_owned().into_any());
                    }
                }
            }
        }
    }
    parts
}

/// `U+202E`. `data-cp` tells the browser's own recomputation that this stands for one character.
fn escape(code_point: u32, name: &str) -> impl IntoView + use<> {
    let number = format!("U+{code_point:04X}");
    let title = format!("{number} {}", name.to_uppercase());
    view! { <span class="esc" data-cp=format!("{code_point:X}") title=title>{number}</span> }
}

/// The same as plain text, for where no markup is possible.
pub fn plain(text: &str) -> String {
    let pieces = pieces(text, Breaks::Escape).into_iter().map(|piece| match piece {
        Piece::Plain(plain) => plain,
        Piece::Escape { code_point, .. } => format!("[U+{code_point:04X}]"),
    });
    pieces.collect()
}

/// A line of somebody else's text: a name, a title, a target.
pub fn line(text: &str) -> impl IntoView + use<> {
    said(text, Breaks::Escape)
}

/// A target, an id: what a machine reads.
pub fn target(text: &str) -> impl IntoView + use<> {
    view! { <bdi class="tgt">{shown(text, Breaks::Escape)}</bdi> }
}

/// The number, grey. On the people's half the style sheet makes it green.
pub fn number(op: &Operation) -> impl IntoView + use<> {
    let class = if is_void(op.state()) { "no no-void" } else { "no" };
    view! { <span class=class>{op.proposal.fingerprint.short_code()}</span> }
}

/// Four holes, n punched, and the word.
pub fn risk(risk: Risk) -> impl IntoView {
    let punched = match risk {
        Risk::Low => 1,
        Risk::Medium => 2,
        Risk::High => 3,
        Risk::Critical => 4,
    };
    let holes: String = (0..4)
        .map(|i| {
            let (class, radius) = if i < punched { ("p", "2.5") } else { ("h", "2") };
            format!("<circle class=\"{class}\" cx=\"{}\" cy=\"4\" r=\"{radius}\"/>", 3 + 7 * i)
        })
        .collect();
    view! {
        <span class=format!("risk risk-{}", risk.as_str())>
            <svg width="27" height="8" viewBox="0 0 27 8" aria-hidden="true" inner_html=holes></svg>
            {capital(risk.as_str())}
        </span>
    }
}

/// `needs_review` → `Needs review`.
pub fn capital(word: &str) -> String {
    let word = word.replace('_', " ");
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// How a state is drawn: the symbol in the [`SPRITE`] and the meaning of its colour.
fn mark(state: State, granted: i64) -> (&'static str, &'static str) {
    match state {
        State::Pending if granted > 0 => ("half", ""),
        State::Pending => ("pending", ""),
        State::Approved => ("approved", "state-sign"),
        State::Claimed => ("spent", "state-flow"),
        State::Sent | State::Accepted => ("sent", "state-flow"),
        State::Unknown | State::NeedsReview => ("unknown", "state-doubt"),
        State::Succeeded => ("done", "state-sign"),
        State::Failed => ("failed", "state-stop"),
        State::Conflicted => ("conflict", "state-stop"),
        State::Rejected => ("rejected", "state-stop"),
        State::Expired | State::Cancelled | State::Superseded => ("expired", "state-off"),
        State::Abandoned => ("unknown", "state-off"),
    }
}

/// A tiny counterfoil, 28 × 14.
pub fn glyph(symbol: &str) -> impl IntoView + use<> {
    let symbol = format!("<use href=\"#g-{symbol}\"/>");
    view! { <svg width="28" height="14" viewBox="0 0 28 14" aria-hidden="true" inner_html=symbol></svg> }
}

/// The state as a mark and a word. `now` decides what has lapsed unnoticed.
pub fn state(op: &Operation, now: Timestamp) -> impl IntoView + use<> {
    let state = crate::model::operation::rules::state_at(op, now);
    let words = match (state, op.granted()) {
        (State::Pending, granted @ 1..) => format!("Pending, {granted} of {} votes", op.life.approval.required),
        _ => capital(state.as_str()),
    };
    state_mark(state, op.granted(), words)
}

/// A state's mark with words of its own.
pub fn state_mark(state: State, granted: i64, words: String) -> impl IntoView {
    let (symbol, meaning) = mark(state, granted);
    view! { <span class=format!("state {meaning}")>{glyph(symbol)}{words}</span> }
}

/// Rejected, expired, cancelled, superseded, conflicted: the number is struck out, the sheet hatched.
pub fn is_void(state: State) -> bool {
    matches!(state, State::Rejected | State::Expired | State::Cancelled | State::Superseded | State::Conflicted)
}

/// The classes of the sheet: its edge tells the state.
pub fn edge(state: State) -> &'static str {
    match state {
        State::Pending => "perf",
        State::Approved => "torn",
        _ if is_void(state) => "perf void",
        _ => "torn punched",
    }
}

/// One square for each signature asked for, filled when given, and the words.
pub fn votes(granted: i64, required: i64) -> impl IntoView {
    // Beyond this many, squares are counted by nobody.
    let squares =
        (0..required.min(8)).map(|i| view! { <i class=(i < granted).then_some("y")></i> }).collect::<Vec<_>>();
    let words = if required == 0 { "by rule".to_owned() } else { format!("{granted} of {required}") };
    view! { <span class="votes">{squares}<span>{words}</span></span> }
}

/// A moment: UTC here, local with UTC on hover once the browser is awake.
pub fn when(at: Timestamp, now: Timestamp, form: Form) -> impl IntoView {
    view! {
        <time datetime=at.to_string() data-form=form.as_str() title=title(at)>
            {utc(at, form, now)}
        </time>
    }
}

/// `2026-12-01 01:14:08 UTC`
fn title(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(..19).unwrap_or(&text).replace('T', " "))
}

/// In words, in UTC.
pub fn utc(at: Timestamp, form: Form, now: Timestamp) -> String {
    civil(at).words(form, civil(now))
}

fn civil(at: Timestamp) -> Civil {
    use chrono::{DateTime, Datelike, Timelike};
    let at = DateTime::from_timestamp_millis(at.as_millis()).unwrap_or_default();
    Civil {
        year: at.year(),
        month: at.month(),
        day: at.day(),
        hour: at.hour(),
        minute: at.minute(),
        second: at.second(),
    }
}

/// How long until a deadline. The countdown goes on in the browser.
pub fn left(until: Timestamp, now: Timestamp) -> impl IntoView {
    let ms = until - now;
    view! {
        <time class=time::left_class(ms) datetime=until.to_string() data-left="" title=title(until)>
            {time::left(ms)}
        </time>
    }
}

/// How long ago something was. It goes on in the browser.
pub fn since(at: Timestamp, now: Timestamp) -> impl IntoView {
    view! { <time datetime=at.to_string() data-since="" title=title(at)>{time::span(now - at)}</time> }
}

/// Whether the page is live; unseen until the browser is awake.
pub fn live() -> impl IntoView {
    view! { <span class="live" hidden>"Live"</span> }
}

/// What a notice or a flag means: each is an ink, a wash and a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Signed, done.
    Sign,
    /// Refused, conflict.
    Stop,
    /// Look twice.
    Heed,
    /// Nobody can tell yet.
    Doubt,
    /// Under way, for your information.
    Flow,
}

impl Meaning {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Stop => "stop",
            Self::Heed => "heed",
            Self::Doubt => "doubt",
            Self::Flow => "flow",
        }
    }

    /// Refusals interrupt a screen reader; the rest waits.
    pub fn role(self) -> &'static str {
        if self == Self::Stop { "alert" } else { "status" }
    }
}

/// A bar, a heading that states the fact, a sentence with the way on, and at most one action.
#[component]
pub fn Notice(
    meaning: Meaning,
    #[prop(into)] heading: String,
    /// The sentence.
    children: Children,
    /// Words and address.
    #[prop(optional_no_strip)]
    way_on: Option<(&'static str, String)>,
) -> impl IntoView {
    view! {
        <div class=format!("notice notice-{}", meaning.as_str()) role=meaning.role()>
            <div>
                <h2>{heading}</h2>
                <p>{children()}</p>
            </div>
            {way_on.map(|(words, address)| view! { <a class="btn btn-small" href=address>{words}</a> })}
        </div>
    }
}

/// A filter that holds; following it takes it off.
pub fn chip(words: &str, without: String) -> impl IntoView + use<> {
    view! {
        <a class="filter on" href=without>
            {line(words)}
            <span class="x" aria-hidden="true">"×"</span>
            <span class="unseen">", remove filter"</span>
        </a>
    }
}

/// A filter that does not hold: its values are links.
pub fn menu(words: &'static str, values: impl Iterator<Item = (String, String)>) -> impl IntoView {
    let items: Vec<_> = values.map(|(value, address)| view! { <li><a href=address>{line(&value)}</a></li> }).collect();
    view! {
        <details class="pick" name="filter">
            <summary class="filter">{words}</summary>
            <ul>{items}</ul>
        </details>
    }
}

/// A small mark in a row. At most two stand in one.
pub fn flag(class: &str, words: String) -> impl IntoView + use<> {
    view! { <span class=format!("flag flag-{class}")>{words}</span> }
}

/// Nothing to show, and the way on.
#[component]
pub fn Empty(
    #[prop(into)] heading: String,
    children: Children,
    #[prop(optional_no_strip)] way_on: Option<(&'static str, String)>,
    /// A symbol of the [`SPRITE`].
    #[prop(optional)]
    symbol: Option<&'static str>,
) -> impl IntoView {
    let drawing = symbol.map(|symbol| {
        let symbol = format!("<use href=\"#g-{symbol}\"/>");
        view! { <svg width="56" height="28" viewBox="0 0 28 14" aria-hidden="true" inner_html=symbol></svg> }
    });
    view! {
        <div class="card empty">
            {drawing}
            <h2>{heading}</h2>
            <p>{children()}</p>
            {way_on
                .map(|(words, address)| {
                    view! { <div class="acts"><a class="btn btn-small" href=address>{words}</a></div> }
                })}
        </div>
    }
}

/// The two halves of one sheet. The tear line stands at the same place on every page.
#[component]
pub fn Sheet(
    /// [`edge`], or `perf`.
    #[prop(default = "perf")]
    edge: &'static str,
    slip: AnyView,
    stub: AnyView,
    /// What the stub is, for those who cannot see it.
    stub_label: &'static str,
    /// The decision, along the foot.
    #[prop(optional_no_strip)]
    decide: Option<AnyView>,
) -> impl IntoView {
    let signed = if decide.is_some() { "signed" } else { "" };
    view! {
        <article class=format!("sheet split {signed} {edge}")>
            <div class="slip">{slip}</div>
            <aside class="stub" aria-label=stub_label>{stub}</aside>
            {decide.map(|decide| view! { <section class="decide" id="decide" aria-label="Decision">{decide}</section> })}
        </article>
    }
}

/// The head of a page, split at the tear line.
#[component]
pub fn Head(
    #[prop(into)] title: String,
    children: Children,
    #[prop(optional_no_strip)] aside: Option<AnyView>,
) -> impl IntoView {
    view! {
        <div class="split head">
            <div>
                <h1>{line(&title)}</h1>
                <p>{children()}</p>
            </div>
            <div>{aside}</div>
        </div>
    }
}

/// A table of things, wider than a phone: it scrolls by itself, also by keyboard.
#[component]
pub fn List(
    /// What is listed, for those who cannot see it.
    label: &'static str,
    /// An empty head is for a column that needs no words.
    heads: Vec<&'static str>,
    /// The `<tr>`s.
    children: Children,
) -> impl IntoView {
    let head = |words: &'static str| match words {
        "" => view! { <td></td> }.into_any(),
        words => view! { <th scope="col">{words}</th> }.into_any(),
    };
    view! {
        <div class="scroll-x" role="region" tabindex="0" aria-label=label>
            <table class="list">
                <thead>
                    <tr>{heads.into_iter().map(head).collect::<Vec<_>>()}</tr>
                </thead>
                <tbody>{children()}</tbody>
            </table>
        </div>
    }
}

/// The product's mark.
pub fn brand() -> impl IntoView {
    view! { <svg width="24" height="16" viewBox="0 0 24 16" aria-hidden="true" inner_html=BRAND></svg> }
}

const BRAND: &str = concat!(
    r#"<path fill="none" stroke="currentColor" stroke-width="1.5" d="M2.5 .75H14v1.15a1.1 1.1 0 0 0 0 2.2v2.8a1.1 1.1 0 0 0 0 "#,
    r#"2.2v2.8a1.1 1.1 0 0 0 0 2.2v1.15H2.5A1.75 1.75 0 0 1 .75 13.5v-11A1.75 1.75 0 0 1 2.5.75z"/>"#,
    r#"<path fill="currentColor" d="M17 0h5a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2h-5v-1.9a1.1 1.1 0 0 0 0-2.2V9.1a1.1 1.1 0 0 0 0-2.2V"#,
    r#"4.1a1.1 1.1 0 0 0 0-2.2z"/>"#,
);

/// The marks of the states, drawn once per page.
pub const SPRITE: &str = include_str!("marks.svg");

/// The agent's own words, kept apart.
pub fn agent_says(reason: Option<&str>) -> impl IntoView + use<> {
    let words = match reason {
        Some(reason) if !reason.trim().is_empty() => {
            view! { <blockquote>{said(reason, Breaks::Keep)}</blockquote> }.into_any()
        }
        _ => view! { <p class="quiet">"It gave no reason."</p> }.into_any(),
    };
    view! {
        <section class="sec" aria-labelledby="h-claim">
            <div class="claim">
                <div class="claim-head">
                    <h2 id="h-claim" class="claim-title">"The agent says"</h2>
                    <span>"Its own words. Nobody has checked them, and the fingerprint does not cover them."</span>
                </div>
                {words}
            </div>
        </section>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_writes_is_never_markup_and_never_unseen() {
        let html = line("</bdi><img src=x onerror=alert(1)> a\u{202e}b\n").to_html();
        assert!(html.starts_with("<bdi>&lt;/bdi&gt;&lt;img src=x onerror=alert(1)&gt; a"), "{html}");
        assert!(html.contains(r#"data-cp="202E""#) && html.contains(">U+202E</span>"), "{html}");
        assert!(html.contains(r#"data-cp="A""#), "{html}");
        let html = shown("\" onmouseover=\"x", Breaks::Keep).to_html();
        assert!(!html.contains('<') || html.contains("&quot;") || !html.contains("<span"), "{html}");
    }

    #[test]
    fn every_state_has_a_mark() {
        for state in State::ALL {
            let (symbol, _) = mark(state, 0);
            assert!(SPRITE.contains(&format!("id=\"g-{symbol}\"")), "{symbol}");
        }
        assert!(SPRITE.contains("id=\"g-half\""));
    }
}
