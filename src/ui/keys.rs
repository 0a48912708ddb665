//! The keyboard. A key moves, opens or puts the reader in front of a decision; no key decides.
//!
//! Off in fields, off with any modifier, and off altogether where the reader says so (WCAG 2.2, 2.1.4): that is
//! remembered in this browser.

use leptos::{
    prelude::*,
    wasm_bindgen::JsCast,
    web_sys::{
        Element, Event, HtmlDialogElement, HtmlElement, HtmlInputElement, KeyboardEvent, ScrollIntoViewOptions,
        ScrollLogicalPosition, Storage,
    },
};

use super::{dom, live};

/// What each key does, as the help and the settings list it.
pub const KEYS: [(&str, &str); 9] = [
    ("j", "next row"),
    ("k", "row before"),
    ("Enter", "open it"),
    ("a", "go to Approve"),
    ("r", "go to Reject"),
    ("x", "select the row, or not"),
    ("/", "search"),
    ("?", "all keys"),
    ("Esc", "out of a field, out of a selection"),
];

/// Where the choice is kept: `off`, or nothing.
const CHOICE: &str = "keys";

/// Listens to the keyboard.
#[island]
pub fn Keys() -> impl IntoView {
    Effect::new(|_| {
        show_choice();
        count_picked();
        dom::on(&document(), "keydown", pressed);
        dom::on(&document(), "change", |_: Event| count_picked());
        dom::on(&document(), live::CHANGED, |_: Event| count_picked());
        dom::on(&document(), "click", |event: Event| {
            let button = event.target().and_then(|target| target.dyn_into::<Element>().ok());
            if button.is_some_and(|button| button.has_attribute("data-keys-toggle")) {
                toggle();
            }
        });
    });
}

fn storage() -> Option<Storage> {
    window().local_storage().ok().flatten()
}

fn are_on() -> bool {
    storage().and_then(|storage| storage.get_item(CHOICE).ok().flatten()).as_deref() != Some("off")
}

fn toggle() {
    if let Some(storage) = storage() {
        _ = if are_on() { storage.set_item(CHOICE, "off") } else { storage.remove_item(CHOICE) };
    }
    show_choice();
}

/// Hints are shown while the keys are on; the switch says what it would do.
fn show_choice() {
    let on = are_on();
    for hint in dom::all(".keys") {
        _ = hint.toggle_attribute_with_force("hidden", !on);
    }
    for switch in dom::all("[data-keys-toggle]") {
        _ = switch.remove_attribute("hidden");
        switch.set_text_content(Some(if on { "Turn the keys off" } else { "Turn the keys on" }));
    }
    for word in dom::all("[data-keys-state]") {
        word.set_text_content(Some(if on { "On in this browser." } else { "Off in this browser." }));
    }
}

fn pressed(event: KeyboardEvent) {
    let has_modifier = event.ctrl_key() || event.meta_key() || event.alt_key();
    if has_modifier || event.default_prevented() || event.is_composing() || !are_on() {
        return;
    }
    let field = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok()).filter(is_field);
    let key = event.key();
    let done = match (key.as_str(), field) {
        ("Escape", Some(field)) => {
            _ = field.blur();
            true
        }
        (_, Some(_)) => false,
        ("j", None) => step(1),
        ("k", None) => step(-1),
        ("x", None) => pick(),
        ("a", None) => !event.repeat() && go_to("approve"),
        ("r", None) => !event.repeat() && go_to("reject"),
        ("/", None) => focus_on("#q"),
        ("?", None) => help(),
        ("Escape", None) => leave(),
        _ => false,
    };
    if done {
        event.prevent_default();
    }
}

/// Where keys are text or have a meaning of their own.
fn is_field(element: &HtmlElement) -> bool {
    let is_typed_in = match element.dyn_ref::<HtmlInputElement>() {
        Some(input) => !matches!(input.type_().as_str(), "checkbox" | "radio" | "button" | "submit"),
        None => matches!(element.tag_name().as_str(), "TEXTAREA" | "SELECT"),
    };
    is_typed_in || element.is_content_editable()
}

fn rows() -> Vec<Element> {
    dom::all("#list .row:not(.row-gone)")
}

fn current() -> Option<Element> {
    dom::find("#list .row[aria-current]")
}

fn step(by: i32) -> bool {
    let rows = rows();
    let here = rows.iter().position(|row| row.has_attribute("aria-current"));
    let next = match (here, by) {
        (None, _) => Some(0),
        (Some(here), 1) => Some(here + 1),
        (Some(here), _) => here.checked_sub(1),
    };
    let Some(row) = next.and_then(|next| rows.get(next)) else { return !rows.is_empty() };
    forget_current();
    _ = row.set_attribute("aria-current", "true");
    if let Some(link) = dom::find_in(row, ".row-link").and_then(|link| link.dyn_into::<HtmlElement>().ok()) {
        _ = link.focus();
    }
    let nearest = ScrollIntoViewOptions::new();
    nearest.set_block(ScrollLogicalPosition::Nearest);
    row.scroll_into_view_with_scroll_into_view_options(&nearest);
    true
}

fn forget_current() {
    if let Some(row) = current() {
        _ = row.remove_attribute("aria-current");
    }
}

fn pick() -> bool {
    let pick = current().and_then(|row| dom::find_in(&row, "[name=pick]"));
    let Some(pick) = pick.and_then(|pick| pick.dyn_into::<HtmlInputElement>().ok()) else { return false };
    pick.click();
    true
}

/// In a list: opens the operation at that part of its decision. On its page: puts the reader there.
fn go_to(decision: &str) -> bool {
    if let Some(row) = current() {
        let link = dom::find_in(&row, ".row-link").and_then(|link| link.get_attribute("href"));
        return link.is_some_and(|href| window().location().assign(&format!("{href}#{decision}")).is_ok());
    }
    let form = format!("form[data-decision={decision}]");
    let Some(form) = dom::find(&form) else { return false };
    form.scroll_into_view();
    let first = dom::find_in(&form, "input:not([type=hidden]), textarea, button:not([disabled])");
    first.and_then(|first| first.dyn_into::<HtmlElement>().ok()).is_some_and(|first| first.focus().is_ok())
}

fn focus_on(selector: &str) -> bool {
    let field = dom::find(selector).and_then(|field| field.dyn_into::<HtmlElement>().ok());
    field.is_some_and(|field| field.focus().is_ok())
}

/// Out of the selection, then out of the list.
fn leave() -> bool {
    let picked = dom::all("#list [name=pick]:checked");
    for pick in picked.iter().filter_map(|pick| pick.dyn_ref::<HtmlInputElement>()) {
        pick.set_checked(false);
    }
    count_picked();
    if picked.is_empty() {
        forget_current();
    }
    true
}

/// `3 selected`, where the form of the selection says so.
fn count_picked() {
    if let Some(words) = dom::find("[data-picked]") {
        words.set_text_content(Some(&format!("{} selected", dom::all("#list [name=pick]:checked").len())));
    }
}

/// The keys, over the page.
fn help() -> bool {
    let open = dom::find("#keys").or_else(draw_help).and_then(|dialog| dialog.dyn_into::<HtmlDialogElement>().ok());
    show_choice();
    open.is_some_and(|dialog| dialog.open() || dialog.show_modal().is_ok())
}

fn draw_help() -> Option<Element> {
    let title = dom::text("h2", "", "Keys")?;
    title.set_id("h-keys");
    let mut list = Vec::new();
    for (key, words) in KEYS {
        list.push(dom::element("dt", "", &[dom::text("kbd", "", key)?])?);
        list.push(dom::text("dd", "", words)?);
    }
    let switch = dom::text("button", "btn btn-small", "")?;
    _ = switch.set_attribute("type", "button");
    _ = switch.set_attribute("data-keys-toggle", "");
    let close = dom::text("button", "btn btn-small btn-ink", "Close")?;
    let acts = dom::element("form", "acts", &[close, switch])?;
    _ = acts.set_attribute("method", "dialog");
    let dialog = dom::element("dialog", "card dialog", &[title, dom::element("dl", "facts", &list)?, acts])?;
    dialog.set_id("keys");
    _ = dialog.set_attribute("aria-labelledby", "h-keys");
    document().body()?.append_child(&dialog).ok()?;
    Some(dialog)
}
