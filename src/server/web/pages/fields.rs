//! A JSON value as a table: a row for every value, nothing cut, what is too much folded where it stands.

use leptos::prelude::*;

use super::{operation::counted, parts};
use crate::{
    model::{
        json::{Node, NodeKind},
        text::{self, Breaks, Finding},
    },
    ui::verify::Row,
};

/// Longer texts, in characters, are folded until somebody opens them.
const LONG_TEXT: usize = 2_000;
/// So are texts of more lines, and what stands below a value with more rows.
const MANY_ROWS: usize = 40;
/// Deeper rows are indented no further.
const DEEPEST_INDENT: usize = 8;

/// A row with what there is to say about it.
pub struct Line {
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
pub enum Part {
    Open(Vec<Line>),
    Folded { name: String, lines: Vec<Line> },
}

pub fn is_container(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Object { .. } | NodeKind::Array { .. })
}

/// Groups the rows of `nodes`; `what` says in a word or two what a value is.
pub fn fold(nodes: &[Node], what: &dyn Fn(&Node) -> String) -> Vec<Part> {
    let shown = rows_below(nodes);
    let mut parts = Vec::new();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        open.push(line(what, node, at));
        at += 1;
        if node.depth > 0 && shown[at - 1] > MANY_ROWS {
            let below = nodes[at..].iter().take_while(|next| next.depth > node.depth).count();
            parts.push(Part::Open(std::mem::take(&mut open)));
            let lines = nodes[at..at + below].iter().enumerate().map(|(i, node)| line(what, node, at + i)).collect();
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

/// How much of a part has to be opened to be read.
pub fn folds(part: &Part) -> usize {
    let long = |lines: &[Line]| lines.iter().filter(|line| is_long(&line.row.text)).count();
    match part {
        Part::Open(lines) => long(lines),
        Part::Folded { lines, .. } => 1 + long(lines),
    }
}

pub fn is_long(text: &str) -> bool {
    text.chars().count() > LONG_TEXT || text.lines().count() > MANY_ROWS
}

pub fn part(part: Part) -> AnyView {
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
pub fn exact(text: &str) -> Vec<AnyView> {
    parts::shown(text, Breaks::Keep)
}

fn line(what: &dyn Fn(&Node) -> String, node: &Node, number: usize) -> Line {
    let row = Row::from(node);
    let warnings = [row.name.as_str(), row.text.as_str()].into_iter().flat_map(warnings).collect();
    Line { kind: what(node), number, warnings, is_container: is_container(node), row }
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

/// What a value is by its type alone.
pub fn type_of(node: &Node) -> String {
    match node.kind {
        NodeKind::Object { len } => counted(len, "member"),
        NodeKind::Array { len } => counted(len, "element"),
        NodeKind::Text(_) => "text".to_owned(),
        NodeKind::Integer(_) => "number".to_owned(),
        NodeKind::Bool(_) => "yes or no".to_owned(),
        NodeKind::Null => "nothing".to_owned(),
    }
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
