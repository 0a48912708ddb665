//! The browser's own word on the fingerprint: it reads what is on the screen, puts the command together again, hashes it
//! and compares. The server's word is not taken.
//!
//! What it reads:
//!
//! | | |
//! |---|---|
//! | `[data-content] tr[data-type]` | one [`Row`] of the content, in document order, folded ones too |
//! | `data-type`, `data-depth` | a row's [`Kind`] and depth |
//! | `[data-name]`, `[data-value]` in a row | its name and value; a text without `[data-value]` is empty |
//! | `[data-canonical]` | the canonical JSON |
//! | `[data-fingerprint]` | the fingerprint, shown as text or sent as the value of a field |
//! | `[data-number]` | the short code, wherever it is printed |
//! | `[data-cp]` in any of them | a character shown by its number, `U+202E` |
//!
//! What it leaves: `data-verified`, `yes` or `no`, on the `[data-operation]` around it all; the event [`VERIFIED`]; and on
//! a mismatch the notice `[data-mismatch]` is no longer hidden, with the short code it got in `[data-got]`.

use leptos::{
    prelude::*,
    wasm_bindgen::JsCast,
    web_sys::{Element, HtmlInputElement},
};
use serde_json::{Map, Value};

use super::{dom, time};
use crate::model::{
    fingerprint::{Command, Fingerprint},
    json::{self, Limits, Node, NodeKind},
};

/// Dispatched on the document with every verdict.
pub const VERIFIED: &str = "counterfoil:verified";

/// A row of the content as a reader sees it: a value, or the head of the rows one level deeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Containers around it; 0 for the members of the command.
    pub depth: usize,
    /// A member's name or an element's index.
    pub name: String,
    pub kind: Kind,
    /// Of a value; empty for heads.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    Text,
    Integer,
    Bool,
    Null,
}

impl Kind {
    const ALL: [(Kind, &str); 6] = [
        (Kind::Object, "object"),
        (Kind::Array, "array"),
        (Kind::Text, "text"),
        (Kind::Integer, "integer"),
        (Kind::Bool, "bool"),
        (Kind::Null, "null"),
    ];

    /// As `data-type` spells it.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(kind, word)| (word == name).then_some(kind))
    }
}

/// Lays a command out for reading: the parameters, then the envelope. What is the same in every command (schema, method
/// and route) is left to the canonical JSON.
pub fn layout(command: &Command) -> Vec<Node> {
    let preimage = command.preimage();
    let shown = ["params", "kind", "target", "account", "expected_version", "source_event_id", "links"];
    let members = shown.into_iter().filter_map(|name| Some((name, preimage.get(name)?)));
    members.flat_map(|(name, value)| json::flatten(value).into_iter().map(move |node| under(name, node))).collect()
}

fn under(member: &str, node: Node) -> Node {
    let name = if node.depth == 0 { Some(member.to_owned()) } else { node.name };
    Node { pointer: format!("/{member}{}", node.pointer), name, ..node }
}

impl From<&Node> for Row {
    fn from(node: &Node) -> Self {
        let (kind, text) = match &node.kind {
            NodeKind::Object { .. } => (Kind::Object, String::new()),
            NodeKind::Array { .. } => (Kind::Array, String::new()),
            NodeKind::Text(text) => (Kind::Text, text.clone()),
            NodeKind::Integer(integer) => (Kind::Integer, integer.to_string()),
            NodeKind::Bool(bool) => (Kind::Bool, bool.to_string()),
            NodeKind::Null => (Kind::Null, "null".to_owned()),
        };
        let index = || node.pointer.rsplit('/').next().unwrap_or_default().to_owned();
        Self { depth: node.depth, name: node.name.clone().unwrap_or_else(index), kind, text }
    }
}

/// The command that is laid out in these rows; none if they say anything else.
pub fn command(rows: &[Row]) -> Option<Command> {
    let mut members = object(rows, 0)?;
    let mut text = |name: &str| match members.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (account, kind, target) = (text("account")?.parse().ok()?, text("kind")?, text("target")?.parse().ok()?);
    let command = Command {
        account,
        kind,
        target,
        params: members.remove("params")?,
        expected_version: optional(members.remove("expected_version"), |value| value.as_i64())?,
        source_event_id: optional(members.remove("source_event_id"), |value| Some(value.as_str()?.to_owned()))?,
        links: optional(members.remove("links"), |value| serde_json::from_value(value.clone()).ok())?
            .unwrap_or_default(),
    };
    members.is_empty().then_some(command)
}

/// Absent, or as it should be.
fn optional<T>(value: Option<Value>, read: impl FnOnce(&Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        Some(value) => read(&value).map(Some),
        None => Some(None),
    }
}

fn object(rows: &[Row], depth: usize) -> Option<Map<String, Value>> {
    let mut members = Map::new();
    for (name, value) in children(rows, depth)? {
        if members.insert(name.to_owned(), value).is_some() {
            return None;
        }
    }
    Some(members)
}

fn children(mut rows: &[Row], depth: usize) -> Option<Vec<(&str, Value)>> {
    if depth > Limits::STORED.max_depth.into() {
        return None;
    }
    let mut found = Vec::new();
    while let Some((row, after)) = rows.split_first() {
        if row.depth != depth {
            return None;
        }
        let (inside, after) = after.split_at(after.iter().position(|next| next.depth <= depth).unwrap_or(after.len()));
        found.push((row.name.as_str(), value(row, inside)?));
        rows = after;
    }
    Some(found)
}

fn value(row: &Row, inside: &[Row]) -> Option<Value> {
    let is_leaf = inside.is_empty();
    match (row.kind, row.text.as_str()) {
        (Kind::Object, "") => object(inside, row.depth + 1).map(Value::Object),
        (Kind::Array, "") => {
            let elements = children(inside, row.depth + 1)?.into_iter().enumerate();
            elements.map(|(at, (index, value))| (index == at.to_string()).then_some(value)).collect()
        }
        (Kind::Text, text) if is_leaf => Some(text.into()),
        (Kind::Integer, text) if is_leaf => {
            let integer =
                text.parse().ok().filter(|integer| json::is_exact(*integer) && integer.to_string() == text)?;
            Some(integer.into())
        }
        (Kind::Bool, "true") if is_leaf => Some(true.into()),
        (Kind::Bool, "false") if is_leaf => Some(false.into()),
        (Kind::Null, "null") if is_leaf => Some(Value::Null),
        _ => None,
    }
}

/// What a reader of the page is told.
#[derive(Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    pub canonical: String,
    /// Wherever it is shown or sent.
    pub fingerprints: Vec<String>,
    /// The short code, wherever it is printed.
    pub numbers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Matches,
    /// With the fingerprint of what is on the page, unless that is no command at all.
    Differs(Option<Fingerprint>),
}

/// Whether everything on the page says the same.
pub fn judge(page: &Page) -> Verdict {
    let Some(command) = command(&page.rows) else { return Verdict::Differs(None) };
    let canonical = command.canonical();
    let found = Fingerprint::of_canonical(&canonical);
    let fingerprints_agree =
        !page.fingerprints.is_empty() && page.fingerprints.iter().all(|shown| shown == found.as_str());
    let numbers_agree = page.numbers.iter().all(|shown| *shown == found.short_code());
    match (canonical == page.canonical, fingerprints_agree && numbers_agree) {
        (true, true) => Verdict::Matches,
        (false, true) => Verdict::Differs(Some(Fingerprint::of_canonical(&page.canonical))),
        (_, false) => Verdict::Differs(Some(found)),
    }
}

/// Reads the page; none if there is a piece of it that cannot be read.
fn read() -> Option<Page> {
    let row = |row: Element| {
        Some(Row {
            depth: row.get_attribute("data-depth")?.parse().ok()?,
            name: dom::seen(&dom::find_in(&row, "[data-name]")?)?,
            kind: Kind::parse(&row.get_attribute("data-type")?)?,
            text: dom::find_in(&row, "[data-value]").map_or(Some(String::new()), |value| dom::seen(&value))?,
        })
    };
    let stated = |element: Element| match element.dyn_ref::<HtmlInputElement>() {
        Some(field) => Some(field.value()),
        None => dom::seen(&element),
    };
    Some(Page {
        rows: dom::all("[data-content] tr[data-type]").into_iter().map(row).collect::<Option<_>>()?,
        canonical: dom::seen(&dom::find("[data-canonical]")?)?,
        fingerprints: dom::all("[data-fingerprint]").into_iter().map(stated).collect::<Option<_>>()?,
        numbers: dom::all("[data-number]").into_iter().map(stated).collect::<Option<_>>()?,
    })
}

/// Reads the page as it is now, judges it and leaves the verdict on it.
pub fn check() -> Verdict {
    let verdict = read().map_or(Verdict::Differs(None), |page| judge(&page));
    if let Some(sheet) = dom::find("[data-operation]") {
        _ = sheet.set_attribute("data-verified", if verdict == Verdict::Matches { "yes" } else { "no" });
    }
    if let (Verdict::Differs(found), Some(notice)) = (&verdict, dom::find("[data-mismatch]")) {
        let found = found.as_ref().map_or("no command at all".to_owned(), Fingerprint::short_code);
        if let Some(got) = dom::find_in(&notice, "[data-got]") {
            got.set_text_content(Some(&found));
        }
        _ = notice.remove_attribute("hidden");
    }
    dom::announce(VERIFIED);
    verdict
}

/// Says under the fingerprint what this browser found.
#[island]
pub fn Verify() -> impl IntoView {
    let found = RwSignal::new(None);
    Effect::new(move |_| found.set(Some((check(), time::server_now()))));
    move || match found.get() {
        None => view! { <p>"Not recomputed here: that takes scripts."</p> }.into_any(),
        Some((verdict, at)) => {
            let (class, sign, words) = match verdict {
                Verdict::Matches => ("match", "✓", "Matches what you see"),
                Verdict::Differs(_) => ("match match-bad", "≠", "Does not match what you see"),
            };
            view! {
                <p class=class><span aria-hidden="true">{sign}</span>{words}</p>
                <p>"Recomputed by this browser "<time>{time::local(at, time::Form::Clock)}</time>" from the content on this page."</p>
            }
            .into_any()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::json::tests::values;

    fn vectors() -> Vec<Command> {
        let vectors: Vec<Value> = serde_json::from_str(include_str!("../model/vectors/fingerprint-v1.json")).unwrap();
        vectors.iter().map(|vector| Command::parse_canonical(vector["canonical"].as_str().unwrap()).unwrap()).collect()
    }

    fn rows(command: &Command) -> Vec<Row> {
        layout(command).iter().map(Row::from).collect()
    }

    fn page(command: &Command) -> Page {
        let fingerprint = command.fingerprint();
        Page {
            rows: rows(command),
            canonical: command.canonical(),
            fingerprints: vec![fingerprint.to_string(); 3],
            numbers: vec![fingerprint.short_code(); 2],
        }
    }

    fn with_params(params: Value) -> Command {
        Command { params, ..vectors().remove(0) }
    }

    #[test]
    fn every_golden_vector_is_read_back_from_its_rows() {
        for command in vectors() {
            assert_eq!(super::command(&rows(&command)), Some(command.clone()));
            assert_eq!(judge(&page(&command)), Verdict::Matches);
        }
    }

    #[test]
    fn what_deceives_the_eye_does_not_deceive_the_hash() {
        let (hidden, plain) =
            (with_params(json!({"service": "checkout\u{202e}ipa-"})), with_params(json!({"service": "checkout-api"})));
        let mut shown = page(&hidden);
        assert_eq!(judge(&shown), Verdict::Matches);
        shown.rows = rows(&plain);
        assert_eq!(judge(&shown), Verdict::Differs(Some(plain.fingerprint())));
    }

    #[test]
    fn a_value_changed_anywhere_on_the_page_is_a_mismatch() {
        let command = with_params(
            json!({"environment": "prod-eu", "replicas": 3, "dry": false, "note": null, "tags": ["a", {}]}),
        );
        let whole = page(&command);
        for at in 0..whole.rows.len() {
            for change in [
                |row: &mut Row| row.text.push('1'),
                |row: &mut Row| row.name.push('x'),
                |row: &mut Row| row.depth += 1,
                |row: &mut Row| row.kind = if row.kind == Kind::Text { Kind::Null } else { Kind::Text },
            ] {
                let mut page = page(&command);
                change(&mut page.rows[at]);
                assert_ne!(judge(&page), Verdict::Matches, "{:?} for {:?}", page.rows[at], whole.rows[at]);
            }
            let mut page = page(&command);
            page.rows.remove(at);
            assert_ne!(judge(&page), Verdict::Matches);
            let again = whole.rows[at].clone();
            page.rows.insert(at, again.clone());
            page.rows.insert(at, again);
            assert_ne!(judge(&page), Verdict::Matches);
        }
        let other = with_params(json!({})).fingerprint();
        for change in [
            |page: &mut Page, _: &Fingerprint| page.canonical.push(' '),
            |page: &mut Page, other: &Fingerprint| page.fingerprints[1] = other.to_string(),
            |page: &mut Page, other: &Fingerprint| page.numbers[1] = other.short_code(),
            |page: &mut Page, _: &Fingerprint| page.fingerprints.clear(),
        ] {
            let mut page = page(&command);
            change(&mut page, &other);
            assert_ne!(judge(&page), Verdict::Matches);
        }
    }

    #[test]
    fn rows_that_are_no_command_are_told_apart_from_another_command() {
        assert_eq!(judge(&Page::default()), Verdict::Differs(None));
        let deep = |depth| Row { depth, name: "params".into(), kind: Kind::Object, text: String::new() };
        assert_eq!(command(&(0..10_000).map(deep).collect::<Vec<_>>()), None);
    }

    proptest! {
        #[test]
        fn any_command_is_read_back_from_its_rows(params in values()) {
            let command = with_params(params);
            prop_assert_eq!(judge(&page(&command)), Verdict::Matches);
        }
    }
}
