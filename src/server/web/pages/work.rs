//! What the pages about running work share: the lanes between them.

use leptos::prelude::*;

/// The lists under the word Runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Runs,
    Leases,
    Map,
}

pub fn lanes(here: Lane) -> impl IntoView {
    let links = [
        (Lane::Runs, "/runs", "Runs"),
        (Lane::Leases, "/leases", "Leases"),
        (Lane::Map, "/conflict-map", "Conflict map"),
    ];
    let links = links.map(|(lane, address, words)| {
        view! { <a href=address aria-current=(lane == here).then_some("page")>{words}</a> }
    });
    view! { <nav class="lanes" aria-label="Lanes">{links.into_iter().collect::<Vec<_>>()}</nav> }
}

pub fn next_page(address: String) -> impl IntoView {
    view! {
        <nav class="pages" aria-label="Pages">
            <a class="btn btn-small" rel="next" href=address>"Next page"</a>
        </nav>
    }
}
