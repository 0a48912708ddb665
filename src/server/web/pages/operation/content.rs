//! Every value under the fingerprint, as a table that the browser can hash again (see [`crate::ui::verify`]).

use leptos::prelude::*;

use super::{Paper, counted, slip};
use crate::{
    model::{
        json::{Node, NodeKind},
        kind::{RefForm, TargetRule},
        money::{self, Currency},
        text::{self, Breaks, Finding},
    },
    server::{service::sheet::Sheet, web::pages::parts},
    ui::verify::{self, Row},
};

/// Longer texts, in characters, are folded until somebody opens them.
const LONG_TEXT: usize = 2_000;
/// So are texts of more lines, and what stands below a value with more rows.
const MANY_ROWS: usize = 40;
/// Deeper rows are indented no further.
const DEEPEST_INDENT: usize = 8;

/// A row with what there is to say about it.
struct Line {
    row: Row,
    /// Its place in the table, which names it in addresses.
    number: usize,
    /// What it is.
    kind: String,
    /// Why a reader should look twice.
    warnings: Vec<AnyView>,
    is_container: bool,
}

/// Rows that are shown together.
enum Part {
    Open(Vec<Line>),
    Folded { name: String, lines: Vec<Line> },
}

/// The section, and its digest for the notices.
pub fn section(paper: &Paper) -> impl IntoView + use<> {
    let sheet = paper.sheet;
    let nodes = layout(sheet);
    let values = nodes.iter().filter(|node| !is_container(node)).count();
    let parts = fold(sheet, &nodes);
    let folded = parts.iter().map(folds).sum::<usize>();
    let note = match folded {
        0 => format!("{} under the fingerprint. Nothing is folded.", all(values)),
        _ => format!("{} under the fingerprint. {} folded: open to read.", all(values), are(folded, "part")),
    };
    let bytes = counted(sheet.op.proposal.canonical.len(), "byte");
    // On the page of an unknown outcome this takes the place of the headline.
    let authorised = paper.is_doubtful().then(|| {
        view! {
            <p class="effect-line">{slip::headline(paper)}</p>
            <p class="effect-line second">{slip::prose(&sheet.op.proposal.consequence)}</p>
        }
    });
    let (class, heading) = match authorised {
        Some(_) => ("sec sec-first", "What was authorised"),
        None => ("sec", "Content"),
    };
    view! {
        <section class=class aria-labelledby="h-content">
            <div class="sec-head">
                <h2 id="h-content">{heading}</h2>
                <span class="note">{note}</span>
                <span class="push">{bytes}</span>
            </div>
            {authorised}
            <div class="box" data-content="">{parts.into_iter().map(part).collect::<Vec<_>>()}</div>
        </section>
    }
}

/// The rows, with the parameters in the order in which their kind asks for them.
fn layout(sheet: &Sheet) -> Vec<Node> {
    let nodes = verify::layout(&sheet.command);
    let envelope = nodes.iter().skip(1).position(|node| node.depth == 0).map_or(nodes.len(), |at| at + 1);
    let mut members: Vec<&[Node]> = Vec::new();
    let mut rest = &nodes[1.min(envelope)..envelope];
    while let Some((_, after)) = rest.split_first() {
        let below = after.iter().take_while(|node| node.depth > 1).count();
        let (member, next) = rest.split_at(below + 1);
        members.push(member);
        rest = next;
    }
    members.sort_by_key(|member| member[0].name.as_deref().map_or(usize::MAX, |name| rank(sheet, name)));
    let params = members.into_iter().flatten().cloned();
    nodes[..1.min(envelope)].iter().cloned().chain(params).chain(nodes[envelope..].iter().cloned()).collect()
}

/// Where a parameter stands among those its kind requires; the others follow.
pub fn rank(sheet: &Sheet, param: &str) -> usize {
    let required = sheet.kind.as_ref().and_then(|compiled| compiled.kind.schema.get("required")?.as_array());
    required.and_then(|names| names.iter().position(|name| name == param)).unwrap_or(usize::MAX)
}

fn all(values: usize) -> String {
    if values == 1 { "The one value".to_owned() } else { format!("All {}", counted(values, "value")) }
}

fn are(count: usize, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

fn is_container(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Object { .. } | NodeKind::Array { .. })
}

fn fold(sheet: &Sheet, nodes: &[Node]) -> Vec<Part> {
    let shown = rows_below(nodes);
    let mut parts = Vec::new();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        open.push(line(sheet, node, at));
        at += 1;
        if node.depth > 0 && shown[at - 1] > MANY_ROWS {
            let below = nodes[at..].iter().take_while(|next| next.depth > node.depth).count();
            parts.push(Part::Open(std::mem::take(&mut open)));
            let lines = nodes[at..at + below].iter().enumerate().map(|(i, node)| line(sheet, node, at + i)).collect();
            parts.push(Part::Folded { name: Row::from(node).name, lines });
            at += below;
        }
    }
    parts.push(Part::Open(open));
    parts
}

/// For every node, the rows that are shown below it when what is too much is folded.
fn rows_below(nodes: &[Node]) -> Vec<usize> {
    let mut shown = vec![0; nodes.len()];
    for at in (0..nodes.len()).rev() {
        let depth = nodes[at].depth;
        let below = nodes[at + 1..].iter().take_while(|next| next.depth > depth).enumerate();
        let children = below.filter(|(_, next)| next.depth == depth + 1).map(|(i, _)| at + 1 + i);
        shown[at] = children.map(|child| 1 + if shown[child] > MANY_ROWS { 0 } else { shown[child] }).sum();
    }
    shown
}

fn folds(part: &Part) -> usize {
    let long = |lines: &[Line]| lines.iter().filter(|line| is_long(&line.row.text)).count();
    match part {
        Part::Open(lines) => long(lines),
        Part::Folded { lines, .. } => 1 + long(lines),
    }
}

fn is_long(text: &str) -> bool {
    text.chars().count() > LONG_TEXT || text.lines().count() > MANY_ROWS
}

fn part(part: Part) -> AnyView {
    match part {
        Part::Open(lines) => table(lines).into_any(),
        Part::Folded { name, lines } => {
            let values = lines.iter().filter(|line| !line.is_container).count();
            view! {
                <details class="fold">
                    <summary>{counted(values, "value")}" in "{parts::line(&name)}</summary>
                    {table(lines)}
                </details>
            }
            .into_any()
        }
    }
}

fn table(lines: Vec<Line>) -> impl IntoView {
    let mut rows = Vec::new();
    for line in lines {
        if line.row.depth == 0 && line.row.name == "kind" {
            rows.push(view! { <tr class="sub"><th colspan="3" scope="rowgroup">"envelope"</th></tr> }.into_any());
        }
        rows.push(row(line));
    }
    view! { <table class="fields"><tbody>{rows}</tbody></table> }
}

fn row(line: Line) -> AnyView {
    let Line { row, number, kind, warnings, is_container } = line;
    let (id, depth) = (format!("f{number}"), row.depth);
    let name = view! { <bdi data-name="">{exact(&row.name)}</bdi> };
    if is_container && depth == 0 {
        return view! {
            <tr class="sub" id=id data-type=row.kind.as_str() data-depth="0">
                <th colspan="3" scope="rowgroup">{name}{(kind != "members").then(|| format!(" ({kind})"))}</th>
            </tr>
        }
        .into_any();
    }
    let value = match (is_container, row.text.as_str()) {
        (true, _) => None,
        (false, "") => Some(view! { <span class="quiet">"empty text"</span> }.into_any()),
        (false, text) if is_long(text) => {
            let length = counted(text.chars().count(), "character");
            let lines = text.lines().count();
            let lines = (lines > 1).then(|| format!(" in {}", counted(lines, "line")));
            let long = view! {
                <details class="fold">
                    <summary>{length}{lines}</summary>
                    <bdi data-value="">{exact(text)}</bdi>
                </details>
            };
            Some(long.into_any())
        }
        (false, text) => Some(view! { <bdi data-value="">{exact(text)}</bdi> }.into_any()),
    };
    let is_heeded = !warnings.is_empty();
    view! {
        <tr class=is_heeded.then_some("heed") id=id data-type=row.kind.as_str() data-depth=depth.to_string()>
            <th scope="row" class=indent(depth)>{name}</th>
            <td>
                {value}
                {warnings.into_iter().map(|why| view! { <span class="why">{why}</span> }).collect::<Vec<_>>()}
            </td>
            <td class="kind">{kind}</td>
        </tr>
    }
    .into_any()
}

fn indent(depth: usize) -> Option<String> {
    (depth > 1).then(|| format!("in-{}", depth.min(DEEPEST_INDENT) - 1))
}

/// Text as it is, line breaks and all: hashing what is seen gives the fingerprint.
fn exact(text: &str) -> Vec<AnyView> {
    parts::shown(text, Breaks::Keep)
}

fn line(sheet: &Sheet, node: &Node, number: usize) -> Line {
    let row = Row::from(node);
    let warnings = [row.name.as_str(), row.text.as_str()].into_iter().flat_map(warnings).collect();
    Line { kind: what_it_is(sheet, node), number, warnings, is_container: is_container(node), row }
}

fn warnings(text: &str) -> Vec<AnyView> {
    let mut warnings: Vec<_> = text::findings(text).iter().map(|finding| warning(finding, text)).collect();
    if text.starts_with(' ') || text.ends_with(' ') {
        warnings.push("begins or ends with spaces".into_any());
    }
    warnings
}

fn warning(finding: &Finding, text: &str) -> AnyView {
    match finding {
        Finding::Hidden { count, .. } => {
            let hidden = counted(*count, "hidden character");
            format!("{hidden}, {} in all", counted(text.chars().count(), "character")).into_any()
        }
        Finding::MixedScript { word, punycode } => view! {
            {parts::line(word)}
            " mixes letters that look alike"
            {punycode.as_ref().map(|name| view! { "; spelled out it is "{parts::line(name)} })}
        }
        .into_any(),
        Finding::Punycode { word, decoded } => view! {
            {parts::line(word)}
            {match decoded {
                Some(decoded) => view! { " stands for "{parts::line(decoded)} }.into_any(),
                None => " stands for nothing readable".into_any(),
            }}
        }
        .into_any(),
    }
}

/// What a value is, in a word or two.
fn what_it_is(sheet: &Sheet, node: &Node) -> String {
    let of_kind = sheet.kind.as_ref().map(|compiled| &compiled.kind);
    if let Some(name) = node.pointer.strip_prefix("/params/").filter(|_| node.depth == 1) {
        let immutable = of_kind.and_then(|kind| kind.immutable_refs.iter().find(|reference| reference.param == name));
        match immutable.map(|reference| reference.form) {
            Some(RefForm::Artifact) => return "digest, immutable".to_owned(),
            Some(RefForm::Commit) => return "commit, immutable".to_owned(),
            None => {}
        }
        if let Some(money) = of_kind.and_then(|kind| kind.money.as_ref()) {
            if name == money.currency {
                return "ISO 4217".to_owned();
            }
            let currency = sheet.command.params.get(&money.currency).and_then(|code| code.as_str());
            if let (true, NodeKind::Integer(minor), Some(currency)) =
                (name == money.amount, &node.kind, currency.and_then(Currency::parse))
            {
                return money::format(*minor, currency);
            }
        }
    }
    match node.pointer.as_str() {
        "/params" => "members".to_owned(),
        "/kind" => format!("kind version {}", sheet.op.proposal.kind_version),
        "/account" => sheet.agent.name.clone(),
        "/target" => match of_kind.map(|kind| &kind.target) {
            Some(TargetRule::Derived(pattern)) => format!("from {}", pattern.names().collect::<Vec<_>>().join(", ")),
            _ => "named in the proposal".to_owned(),
        },
        "/expected_version" => match (&node.kind, sheet.review.current_version) {
            (NodeKind::Integer(expected), Some(current)) if *expected == current => "still current".to_owned(),
            (_, Some(current)) => format!("now {current}"),
            (NodeKind::Integer(0), None) => "does not exist yet".to_owned(),
            (_, None) => "not known here".to_owned(),
        },
        _ => match node.kind {
            NodeKind::Object { len } => counted(len, "member"),
            NodeKind::Array { len } => counted(len, "element"),
            NodeKind::Text(_) => "text".to_owned(),
            NodeKind::Integer(_) => "number".to_owned(),
            NodeKind::Bool(_) => "yes or no".to_owned(),
            NodeKind::Null => "nothing".to_owned(),
        },
    }
}

/// A field that may deceive, for the notice on top.
pub struct Suspect {
    pub name: String,
    /// The address of its row on the page.
    pub anchor: String,
    pub text: String,
    pub findings: Vec<Finding>,
}

/// In the order of the table.
pub fn suspects(sheet: &Sheet) -> Vec<Suspect> {
    let nodes = layout(sheet);
    let suspects = nodes.iter().enumerate().filter_map(|(number, node)| {
        let row = Row::from(node);
        let in_value = text::findings(&row.text);
        let (text, findings) = match in_value.is_empty() {
            false => (row.text, in_value),
            true => (row.name.clone(), text::findings(&row.name)),
        };
        (!findings.is_empty()).then(|| Suspect { name: row.name, anchor: format!("#f{number}"), text, findings })
    });
    suspects.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::json;

    #[test]
    fn what_is_too_much_is_folded_where_it_stands_and_nothing_around_it() {
        let many: Vec<_> = (0..500).collect();
        let nodes = json::flatten(&json!({"value": {"a": many, "b": {"c": 1}}, "z": []}));
        let shown = rows_below(&nodes);
        let of = |pointer: &str| shown[nodes.iter().position(|node| node.pointer == pointer).unwrap()];
        assert_eq!((of("/value/a"), of("/value"), of("/value/b"), of("")), (500, 3, 1, 5));
    }
}
