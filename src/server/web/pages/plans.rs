//! How a new plan differs from the plan before it, and the links between the two.

use leptos::prelude::*;
use serde_json::Value;

use super::{
    operation::{address, counted},
    parts,
    three::print,
};
use crate::model::{diff::FieldDiff, operation::Operation, text::Breaks};

/// Name, before, after: what is different in `new` from the plan that was seen.
pub fn difference(old: &Operation, new: &Operation, changed: &[FieldDiff]) -> impl IntoView + use<> {
    let note = match changed.len() {
        0 => "Nothing: it is the same command.".to_owned(),
        fields => format!("{} differ.", counted(fields, "value")),
    };
    let cell = |class: &'static str, tag: &'static str, value: Option<&Value>| {
        let text = match value {
            Some(value) => parts::said(&print(value), Breaks::Keep).into_any(),
            None => view! { <span class="quiet">"not there"</span> }.into_any(),
        };
        view! { <td class=class><span class="tag">{tag}</span><span class="v">{text}</span></td> }
    };
    let rows: Vec<_> = changed
        .iter()
        .map(|field| {
            let name = field.pointer.trim_start_matches("/params").trim_start_matches('/').to_owned();
            let name = if name.is_empty() { "params".to_owned() } else { name };
            view! {
                <tr>
                    <th scope="row">{parts::line(&name)}</th>
                    {cell("old", "before", field.from.as_ref())}
                    {cell("new", "now", field.to.as_ref())}
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
                        <th scope="col"><span class="unseen">"Value"</span></th>
                        <th scope="col">"The plan you saw"<span>{short(old)}</span></th>
                        <th scope="col">"The new plan"<span>{short(new)}</span></th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        }
    });
    view! {
        <section class="sec" aria-labelledby="h-plans">
            <div class="sec-head">
                <h2 id="h-plans">"What is different from the plan you saw"</h2>
                <span class="note">{note}</span>
            </div>
            {table.into_any()}
        </section>
    }
}

fn short(op: &Operation) -> impl IntoView + use<> {
    view! { <a class="no" href=address(op.id())>{op.proposal.fingerprint.short_code()}</a> }
}

/// Another operation, by its number and what has become of it.
pub fn link(op: &Operation) -> impl IntoView + use<> {
    let state = parts::capital(op.state().as_str()).to_lowercase();
    view! { {short(op)}", "{state} }
}
