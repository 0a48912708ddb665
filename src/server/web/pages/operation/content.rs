//! Every value under the fingerprint, as a table that the browser can hash again (see [`crate::ui::verify`]).

use leptos::prelude::*;

use super::{Paper, counted, slip};
use crate::{
    model::{
        json::{Node, NodeKind},
        kind::{RefForm, TargetRule},
        money::{self, Currency},
        text::{self, Finding},
    },
    server::{service::sheet::Sheet, web::pages::fields},
    ui::verify::{self, Row},
};

/// The section, and its digest for the notices.
pub fn section(paper: &Paper) -> impl IntoView + use<> {
    let sheet = paper.sheet;
    let nodes = layout(sheet);
    let values = nodes.iter().filter(|node| !fields::is_container(node)).count();
    let parts = fields::fold(&nodes, &|node| what_it_is(sheet, node));
    let folded = parts.iter().map(fields::folds).sum::<usize>();
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
            <div class="box" data-content="">{parts.into_iter().map(fields::part).collect::<Vec<_>>()}</div>
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
        _ => fields::type_of(node),
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
