//! Three readings of one document: as it was read, as it is proposed, as it is now. What both sides touched comes first.

use leptos::prelude::*;
use serde_json::Value;

use super::{operation::counted, parts};
use crate::model::{conflict::ThreeWayRow, json::push_token, text::Breaks};

/// How the readings stand beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    #[default]
    SideBySide,
    /// One reading below the other.
    Unified,
}

impl Layout {
    /// As it stands in the address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SideBySide => "side-by-side",
            Self::Unified => "unified",
        }
    }

    pub fn parse(text: &str) -> Self {
        if text == Self::Unified.as_str() { Self::Unified } else { Self::SideBySide }
    }
}

/// Whether the reader may see what the document says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    Values,
    /// Only which fields differ.
    Names,
}

/// Whose change a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Others changed it, and the write would have left something else.
    Both,
    /// Others changed it to what the write wants.
    Agreed,
    /// Only the write changes it.
    Proposal,
    /// Only others changed it, perhaps back again; the write leaves it alone.
    Others,
}

impl Part {
    const ALL: [Self; 4] = [Self::Both, Self::Agreed, Self::Proposal, Self::Others];

    pub fn of(row: &ThreeWayRow) -> Self {
        match row {
            row if row.overlap => Self::Both,
            row if row.now == row.as_read && row.proposed != row.as_read => Self::Proposal,
            row if row.now == row.proposed && row.now != row.as_read => Self::Agreed,
            _ => Self::Others,
        }
    }

    fn heading(self) -> (&'static str, &'static str) {
        match self {
            Self::Both => ("Both sides", ""),
            Self::Agreed => ("Both sides, to the same", ", nothing left to do"),
            Self::Proposal => ("Only the proposal", ", free to go again"),
            Self::Others => ("Only what is there now", ", the proposal leaves it alone"),
        }
    }
}

/// A head of a column: what the reading is, and whose.
pub struct Head {
    pub title: &'static str,
    pub note: AnyView,
}

/// The comparison. `about` tells who changed a field, and how the two sides differ.
pub fn comparison(
    layout: Layout,
    sight: Sight,
    heads: [Head; 3],
    rows: &[ThreeWayRow],
    same: &[(String, Value)],
    about: &dyn Fn(&ThreeWayRow) -> Option<AnyView>,
) -> impl IntoView + use<> {
    let parts = Part::ALL.into_iter().filter_map(|part| {
        let rows: Vec<_> = rows.iter().filter(|row| Part::of(row) == part).collect();
        (!rows.is_empty()).then_some((part, rows))
    });
    let bodies: Vec<_> = parts
        .map(|(part, rows)| {
            let (words, note) = part.heading();
            let count = counted(rows.len(), "field");
            let rows: Vec<_> = rows.into_iter().map(|row| lines(layout, sight, part, row, about(row))).collect();
            let span = if layout == Layout::SideBySide { "4" } else { "2" };
            view! {
                <tbody>
                    <tr class="part"><th colspan=span scope="rowgroup">{words}" "<span>"· "{count}{note}</span></th></tr>
                    {rows}
                </tbody>
            }
        })
        .collect();
    let [read, proposed, now] = heads;
    let head = |head: Head| view! { <th scope="col">{head.title}<span>{head.note}</span></th> };
    let table = match layout {
        Layout::SideBySide => view! {
            <table class="cmp three">
                <colgroup><col class="c-field" /><col /><col /><col /></colgroup>
                <thead>
                    <tr>
                        <th scope="col"><span class="unseen">"Field"</span></th>
                        {head(read)}
                        {head(proposed)}
                        {head(now)}
                    </tr>
                </thead>
                {bodies}
            </table>
        }
        .into_any(),
        Layout::Unified => view! {
            <ul class="heads">
                <li><b>{read.title}</b>" "{read.note}</li>
                <li><b>{proposed.title}</b>" "{proposed.note}</li>
                <li><b>{now.title}</b>" "{now.note}</li>
            </ul>
            <table class="cmp one">
                <colgroup><col class="c-field" /><col /></colgroup>
                <thead class="unseen-head">
                    <tr><th scope="col"><span class="unseen">"Field"</span></th><th scope="col"><span class="unseen">"Readings"</span></th></tr>
                </thead>
                {bodies}
            </table>
        }
        .into_any(),
    };
    view! { {table}{unchanged(same)} }
}

/// Finds the values that are the same in all three documents, each as large as it is the same.
pub fn same(read: &Value, proposed: &Value, now: &Value, pointer: &mut String, found: &mut Vec<(String, Value)>) {
    if read == proposed && read == now {
        found.push((pointer.clone(), read.clone()));
        return;
    }
    let (Some(read), Some(proposed), Some(now)) = (read.as_object(), proposed.as_object(), now.as_object()) else {
        return;
    };
    for (name, value) in read {
        if let (Some(proposed), Some(now)) = (proposed.get(name), now.get(name)) {
            let here = pointer.len();
            push_token(pointer, name);
            same(value, proposed, now, pointer, found);
            pointer.truncate(here);
        }
    }
}

/// What is the same in all three. Many such fields are folded: no difference is among them.
const MANY_SAME: usize = 12;

fn unchanged(same: &[(String, Value)]) -> Option<AnyView> {
    if same.is_empty() {
        return None;
    }
    let rows: Vec<_> = same
        .iter()
        .map(|(pointer, value)| {
            let text = print(value);
            view! { <tr><th scope="row">{field(pointer)}</th><td class="same">{unfolding(&text, true)}</td></tr> }
        })
        .collect();
    let count = counted(same.len(), "field");
    let table = view! {
        <table class="cmp alike">
            <colgroup><col class="c-field" /><col /></colgroup>
            <tbody>{rows}</tbody>
        </table>
    };
    Some(
        view! {
            <details class="fold fold-part" open=same.len() <= MANY_SAME>
                <summary>"Same in all three "<span>"· "{count}</span></summary>
                {table}
            </details>
        }
        .into_any(),
    )
}

fn field(pointer: &str) -> impl IntoView + use<> {
    match pointer {
        "" => view! { <span class="quiet">"the whole document"</span> }.into_any(),
        pointer => parts::line(pointer.trim_start_matches('/')).into_any(),
    }
}

/// One reading of a field.
struct Side {
    class: &'static str,
    tag: &'static str,
    /// `None`: there is no such field.
    text: Option<String>,
}

fn sides(part: Part, row: &ThreeWayRow) -> [Side; 3] {
    let text = |value: &Option<Value>| value.as_ref().map(print);
    let is_back = part == Part::Both && row.proposed == row.as_read;
    let proposed = match part {
        _ if is_back => "new back",
        Part::Both | Part::Agreed | Part::Proposal => "new",
        Part::Others => "",
    };
    let now = if part == Part::Proposal { "" } else { "now" };
    [
        Side { class: "", tag: "as read", text: text(&row.as_read) },
        Side { class: proposed, tag: "proposed", text: text(&row.proposed) },
        Side { class: now, tag: "now", text: text(&row.now) },
    ]
}

fn lines(layout: Layout, sight: Sight, part: Part, row: &ThreeWayRow, about: Option<AnyView>) -> AnyView {
    let name = field(&row.pointer);
    let clash = (part == Part::Both).then_some("clash");
    let who = match (part, layout) {
        (Part::Both, _) => "who",
        _ => "who who-plain",
    };
    if sight == Sight::Names {
        let span = if layout == Layout::SideBySide { "3" } else { "1" };
        return view! {
            <tr class=clash>
                <th scope="row">{name}</th>
                <td class="same" colspan=span><span class="quiet">"You may not read this resource: its values are not shown."</span></td>
            </tr>
            {about.map(|words| who_row(layout, who, words))}
        }
        .into_any();
    }
    let sides = sides(part, row);
    let texts: Vec<&str> = sides.iter().filter_map(|side| side.text.as_deref()).collect();
    let alike = common(&texts);
    let value = |side: &Side| match &side.text {
        Some(text) => contrast(text, alike).into_any(),
        None => view! { <span class="quiet">"not there"</span> }.into_any(),
    };
    let cells = match layout {
        Layout::SideBySide => sides
            .iter()
            .map(|side| {
                let tag = view! { <span class="tag">{side.tag}</span> };
                view! { <td class=side.class>{tag}<div class="v">{value(side)}</div></td> }.into_any()
            })
            .collect::<Vec<_>>(),
        Layout::Unified => {
            let readings: Vec<_> = sides
                .iter()
                .map(|side| {
                    view! {
                        <li class=format!("reading {}", side.class)>
                            <span class="tag">{side.tag}</span>
                            <div class="v">{value(side)}</div>
                        </li>
                    }
                })
                .collect();
            vec![view! { <td class="readings"><ul>{readings}</ul></td> }.into_any()]
        }
    };
    view! {
        <tr class=clash><th scope="row">{name}</th>{cells}</tr>
        {about.map(|words| who_row(layout, who, words))}
    }
    .into_any()
}

fn who_row(layout: Layout, class: &'static str, words: AnyView) -> impl IntoView {
    let span = if layout == Layout::SideBySide { "3" } else { "1" };
    view! { <tr class=class><td class="gut"></td><td colspan=span>{words}</td></tr> }
}

/// A value as it is read: JSON, with the line breaks of a text as line breaks, and long values over several lines.
pub fn print(value: &Value) -> String {
    let mut out = String::new();
    write(value, None, &mut out);
    if out.chars().count() > WIDE && matches!(value, Value::Object(_) | Value::Array(_)) {
        out.clear();
        write(value, Some(0), &mut out);
    }
    out
}

/// Characters up to which an object or a list stands on one line.
const WIDE: usize = 72;

fn write(value: &Value, indent: Option<usize>, out: &mut String) {
    match value {
        Value::String(text) => quote(text, out),
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| (None, element));
            enclosed('[', elements, ']', indent, out);
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (Some(name.as_str()), value));
            enclosed('{', members, '}', indent, out);
        }
        other => out.push_str(&other.to_string()),
    }
}

fn enclosed<'a>(
    open: char,
    items: impl ExactSizeIterator<Item = (Option<&'a str>, &'a Value)>,
    close: char,
    indent: Option<usize>,
    out: &mut String,
) {
    out.push(open);
    let (count, deeper) = (items.len(), indent.map(|indent| indent + 1));
    let line = |indent: Option<usize>, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.push_str(&"  ".repeat(indent));
        }
    };
    for (i, (name, value)) in items.enumerate() {
        line(deeper, out);
        if let Some(name) = name {
            quote(name, out);
            out.push_str(": ");
        }
        write(value, deeper, out);
        if i + 1 < count {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
    }
    if count > 0 {
        line(indent, out);
    }
    out.push(close);
}

/// Quotes and backslashes are escaped, so that no text reads as two; the rest is shown by [`parts::shown`].
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            out.push('\\');
        }
        out.push(char);
    }
    out.push('"');
}

/// Lines and characters from which a value is long.
const LONG_LINES: usize = 14;
const LONG_TEXT: usize = 700;
/// What is shown around a difference.
const CONTEXT_LINES: usize = 2;
const CONTEXT_TEXT: usize = 60;

fn is_long(text: &str) -> bool {
    text.lines().count() > LONG_LINES || text.chars().count() > LONG_TEXT
}

/// How many bytes all of `texts` begin and end with alike, at the ends of lines where they have many.
fn common(texts: &[&str]) -> Option<(usize, usize)> {
    if texts.len() < 2 || !texts.iter().any(|text| is_long(text)) {
        return None;
    }
    let first = texts[0];
    let shortest = texts.iter().map(|text| text.len()).min().unwrap_or(0);
    let begin = texts.iter().map(|text| alike(first.bytes(), text.bytes())).min().unwrap_or(0).min(shortest);
    let end = texts.iter().map(|text| alike(first.bytes().rev(), text.bytes().rev())).min().unwrap_or(0);
    Some((begin, end.min(shortest - begin)))
}

fn alike(a: impl Iterator<Item = u8>, b: impl Iterator<Item = u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// A value with what is the same on all sides folded away; every difference stays in sight.
fn contrast(text: &str, alike: Option<(usize, usize)>) -> impl IntoView + use<> {
    let Some((begin, end)) = alike.filter(|_| is_long(text)) else { return unfolding(text, false).into_any() };
    let is_lines = text.contains('\n');
    let head = shorten(&text[..floor(text, begin)], is_lines, Edge::End);
    let tail_from = ceil(text, text.len() - end).max(head.len());
    let tail = shorten(&text[tail_from..], is_lines, Edge::Start);
    let middle = &text[head.len()..text.len() - tail.len()];
    view! {
        {(!head.is_empty()).then(|| folded(head))}
        <bdi>{parts::shown(middle, Breaks::Keep)}</bdi>
        {(!tail.is_empty()).then(|| folded(tail))}
    }
    .into_any()
}

/// Which end of a stretch borders on a difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

/// The part of a stretch that is far enough from the difference to be folded.
fn shorten(text: &str, is_lines: bool, edge: Edge) -> &str {
    let far = |at: Option<usize>| at.unwrap_or(0);
    let cut = match (is_lines, edge) {
        (true, Edge::End) => far(text.rmatch_indices('\n').nth(CONTEXT_LINES).map(|(at, _)| at + 1)),
        (true, Edge::Start) => {
            text.len() - text.match_indices('\n').nth(CONTEXT_LINES).map_or(text.len(), |(at, _)| at)
        }
        (false, Edge::End) => far(text.char_indices().rev().nth(CONTEXT_TEXT).map(|(at, _)| at)),
        (false, Edge::Start) => text.len() - text.char_indices().nth(CONTEXT_TEXT).map_or(text.len(), |(at, _)| at),
    };
    match edge {
        Edge::End => &text[..cut],
        Edge::Start => &text[text.len() - cut..],
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

fn folded(text: &str) -> impl IntoView + use<> {
    view! {
        <details class="fold fold-same">
            <summary>{size(text)}" the same"</summary>
            <bdi>{parts::shown(text, Breaks::Keep)}</bdi>
        </details>
    }
}

/// `38 lines`, or `1,980 characters`.
fn size(text: &str) -> String {
    match text.matches('\n').count() {
        0 => counted(text.chars().count(), "character"),
        _ => counted(text.lines().count(), "line"),
    }
}

/// A whole value; a long one that differs from nothing may be folded.
fn unfolding(text: &str, may_fold: bool) -> impl IntoView + use<> {
    let shown = view! { <bdi class="v">{parts::shown(text, Breaks::Keep)}</bdi> };
    match may_fold && is_long(text) {
        true => view! { <details class="fold"><summary>{size(text)}</summary>{shown}</details> }.into_any(),
        false => shown.into_any(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_reads_as_json_and_no_text_reads_as_two() {
        for (value, text) in [
            (json!("high"), r#""high""#),
            (json!("high\", \"low"), r#""high\", \"low""#),
            (json!("a\nb\\"), "\"a\nb\\\\\""),
            (json!({"from": "23:00", "to": null}), r#"{"from": "23:00", "to": null}"#),
            (json!([]), "[]"),
            (json!(["x".repeat(80)]), &format!("[\n  \"{}\"\n]", "x".repeat(80))),
        ] {
            assert_eq!(print(&value), text);
        }
    }

    #[test]
    fn a_long_value_folds_only_what_is_the_same_on_all_sides() {
        let lines = |n: usize| (0..n).map(|i| format!("line {i}\n")).collect::<String>();
        let (a, b) = (format!("{}old\n{}", lines(30), lines(20)), format!("{}new\n{}", lines(30), lines(20)));
        let alike = common(&[&a, &b]);
        for (text, word) in [(&a, "old"), (&b, "new")] {
            let html = contrast(text, alike).to_html();
            let outside: String =
                html.split("<details").map(|part| part.rsplit("</details>").next().unwrap()).collect();
            assert!(outside.contains(word), "{html}");
            assert_eq!(html.matches("the same").count(), 2, "{html}");
            assert!(html.contains("28 lines") && html.contains("line 29") && html.contains("line 0"), "{html}");
        }
        let (a, b) =
            (format!("{}é{}", "x".repeat(900), "y".repeat(900)), format!("{}è{}", "x".repeat(900), "y".repeat(900)));
        let html = contrast(&a, common(&[&a, &b])).to_html();
        assert!(html.contains('é') && html.contains("840 characters"), "{html}");
    }

    #[test]
    fn texts_that_overlap_in_what_they_share_are_not_cut_twice() {
        let (a, b) = ("ab\n".repeat(20), "ab\n".repeat(25));
        let alike = common(&[&a, &b]);
        for text in [&a, &b] {
            let html = contrast(text, alike).to_html();
            let plain: String = html.split('>').map(|part| part.split('<').next().unwrap()).collect();
            assert_eq!(plain.matches("ab\n").count(), text.matches("ab\n").count(), "{html}");
        }
    }
}
