//! The page follows what happens, through the stream of events.
//!
//! | | |
//! |---|---|
//! | `.live` | says that the page is live, and as of when |
//! | `#list` | a list: read again from the server when something happened, and brought in line |
//! | `.row[data-id][data-version]` in it | an older version never replaces a newer; a row that left stays grey for ten seconds and says why |
//! | `[data-rows]` on the list | where a row that left says why: `/leases` asks `/leases/{id}/row`; without it, `/operations`; empty, nobody is asked |
//! | `article[data-id][data-version]` | the page of one thing: told about, never replaced under its reader; `data-rows` as above |
//!
//! Nothing is decided here: what a row says is always the server's own markup.

use std::{cell::Cell, collections::HashMap, rc::Rc, time::Duration};

use leptos::{
    prelude::*,
    task::spawn_local,
    wasm_bindgen::{JsCast, JsValue},
    web_sys::{
        Document, DomParser, Element, Event, EventSource, HtmlElement, HtmlInputElement, MessageEvent, Response,
        SupportedType, js_sys,
    },
};
use wasm_bindgen_futures::JsFuture;

use super::{
    countdown::LAPSED,
    dom,
    time::{self, Form},
};

/// How long a row that left is still shown.
const GONE: Duration = Duration::from_secs(10);
/// Events that come together are answered together.
const TOGETHER: Duration = Duration::from_millis(150);
/// A page is not read again sooner than this.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a lost connection goes unmentioned.
const PATIENCE: Duration = Duration::from_secs(3);
/// When a deadline has passed here, it has passed on the server a little later at most.
const AFTER_LAPSE: Duration = Duration::from_secs(1);
/// After the server turned the stream down.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the page up to date.
#[island]
pub fn Live() -> impl IntoView {
    Effect::new(|_| {
        if dom::find(".live").is_none() {
            return;
        }
        let following = Rc::new(Following::default());
        listen(following.clone());
        dom::on(&document(), LAPSED, move |_: Event| {
            let following = following.clone();
            set_timeout(move || happened(&following), AFTER_LAPSE);
        });
    });
}

/// What is known about the connection and the page.
#[derive(Default)]
struct Following {
    is_open: Cell<bool>,
    /// A reading of the page is under way or about to be.
    is_reading: Cell<bool>,
    /// Something happened since the last reading began.
    is_stale: Cell<bool>,
}

fn listen(following: Rc<Following>) {
    let Ok(source) = EventSource::new("/api/v1/events") else { return };
    let known = following.clone();
    dom::on(&source, "open", move |_: Event| {
        known.is_open.set(true);
        said_live();
        // What happened between the page and the stream is in no event.
        happened(&known);
    });
    for topic in ["operation", "conflict", "lease", "resource", "run", "reset"] {
        let known = following.clone();
        dom::on(&source, topic, move |event: MessageEvent| {
            said_live();
            happened(&known);
            tell(&event);
        });
    }
    let stream = source.clone();
    dom::on(&source, "error", move |_: Event| {
        if following.is_open.replace(false) {
            let since = time::local(time::server_now(), Form::Clock);
            let known = following.clone();
            set_timeout(move || said_lost(&known, &since), PATIENCE);
        }
        if stream.ready_state() == EventSource::CLOSED {
            let known = following.clone();
            set_timeout(move || listen(known), AGAIN);
        }
    });
}

fn said_live() {
    let now = time::local(time::server_now(), Form::Clock);
    for mark in dom::all(".live") {
        mark.set_text_content(Some(&format!("Live, {now}")));
        _ = mark.class_list().remove_1("stale");
        _ = mark.remove_attribute("hidden");
    }
    if let Some(notice) = dom::find("#not-live") {
        notice.remove();
    }
}

fn said_lost(following: &Following, since: &str) {
    if following.is_open.get() || dom::find("#not-live").is_some() {
        return;
    }
    for mark in dom::all(".live") {
        mark.set_text_content(Some(&format!("Not live since {since}")));
        _ = mark.class_list().add_1("stale");
    }
    let sentence = "Counts and clocks may be old. Trying again by itself. Deciding still works.";
    let here = window().location().href().unwrap_or_default();
    let notice = dom::notice("h3", "heed", &format!("Not live since {since}"), sentence, Some(("Reload", &here)));
    if let (Some(notice), Some(main)) = (notice, dom::find("main")) {
        notice.set_id("not-live");
        _ = notice.set_attribute("role", "status");
        _ = main.prepend_with_node_1(&notice);
    }
}

/// Reads the list again, soon, and once for everything that happens meanwhile.
fn happened(following: &Rc<Following>) {
    following.is_stale.set(true);
    if dom::find("#list").is_none() || following.is_reading.replace(true) {
        return;
    }
    let known = following.clone();
    set_timeout(move || spawn_local(read(known)), TOGETHER);
}

async fn read(following: Rc<Following>) {
    following.is_stale.set(false);
    set_busy(true);
    let page = match window().location().href() {
        Ok(here) => fetch(&here).await,
        Err(error) => Err(error),
    };
    set_busy(false);
    // A page that could not be read, or is another one by now, leaves things as they are.
    if let Some(page) = page.ok().and_then(|html| parse(&html)).filter(|page| find_in_page(page, "#list").is_some()) {
        bring_in_line(&page, &following);
    }
    set_timeout(
        move || {
            following.is_reading.set(false);
            if following.is_stale.get() {
                happened(&following);
            }
        },
        PAUSE,
    );
}

fn set_busy(busy: bool) {
    if let Some(rows) = dom::find("#rows") {
        _ = if busy { rows.set_attribute("aria-busy", "true") } else { rows.remove_attribute("aria-busy") };
    }
}

async fn fetch(address: &str) -> Result<String, JsValue> {
    let response: Response = JsFuture::from(window().fetch_with_str(address)).await?.unchecked_into();
    if !response.ok() || response.redirected() {
        return Err(JsValue::NULL);
    }
    let text = JsFuture::from(response.text()?).await?;
    text.as_string().ok_or(JsValue::NULL)
}

fn parse(html: &str) -> Option<Document> {
    DomParser::new().ok()?.parse_from_string(html, SupportedType::TextHtml).ok()
}

fn find_in_page(page: &Document, selector: &str) -> Option<Element> {
    page.query_selector(selector).ok().flatten()
}

fn id(row: &Element) -> String {
    row.get_attribute("data-id").unwrap_or_default()
}

fn version(row: &Element) -> i64 {
    row.get_attribute("data-version").and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Makes the page what the server says it is now, keeping what the reader has done to it.
fn bring_in_line(page: &Document, following: &Rc<Following>) {
    for words in ["h1", ".lanes", ".nav"] {
        if let (Some(old), Some(new)) = (dom::find(words), find_in_page(page, words))
            && old.inner_html() != new.inner_html()
        {
            old.set_inner_html(&new.inner_html());
        }
    }
    document().set_title(&page.title());
    let (Some(old), Some(new)) = (dom::find("#list"), find_in_page(page, "#list")) else { return };
    // Rows that are moved lose the focus.
    let focused = document().active_element().and_then(|element| element.closest(".row").ok().flatten());
    let before = dom::all_in(&old, ".row");
    let after = dom::all_in(&new, ".row");
    let mut departed: HashMap<String, Element> = before.iter().map(|row| (id(row), row.clone())).collect();
    time::localise(&new);
    // What has not changed stays: somebody may be about to press it.
    if old.inner_html() == new.inner_html() {
        return;
    }
    for row in after {
        match departed.remove(&id(&row)) {
            Some(shown) if version(&shown) >= version(&row) && !is_gone(&shown) => {
                _ = row.replace_with_with_node_1(&shown);
            }
            Some(shown) => keep_pick(&shown, &row),
            None => {}
        }
    }
    // A list that has become empty goes on showing what left it, until that is gone too.
    let has_rows = dom::find_in(&new, ".rows").is_some();
    if has_rows {
        weave(&before, &departed, &new);
    }
    if has_rows || departed.is_empty() {
        old.set_text_content(None);
        while let Some(child) = new.first_child() {
            _ = old.append_child(&child);
        }
        if let Some(row) = focused {
            focus(&old, &id(&row));
        }
    }
    for (_, row) in departed.into_iter().filter(|(_, row)| !is_gone(row)) {
        spawn_local(let_go(row, following.clone()));
    }
    dom::announce(CHANGED);
}

/// Puts the rows that left the list back where they stood: under the row that was above them.
fn weave(before: &[Element], departed: &HashMap<String, Element>, new: &Element) {
    for (i, row) in before.iter().enumerate().filter(|(_, row)| departed.contains_key(&id(row))) {
        let mut above = before[..i].iter().rev().map(id);
        match (above.find_map(|id| row_of(new, &id)), dom::find_in(new, ".rows ol")) {
            (Some(above), _) => _ = above.after_with_node_1(row),
            (None, Some(list)) => _ = list.prepend_with_node_1(row),
            (None, None) => {}
        }
    }
}

fn row_of(list: &Element, id: &str) -> Option<Element> {
    dom::find_in(list, &format!(".row[data-id=\"{id}\"]"))
}

fn focus(list: &Element, id: &str) {
    let link = row_of(list, id).and_then(|row| dom::find_in(&row, ".row-link"));
    if let Some(link) = link.and_then(|link| link.dyn_into::<HtmlElement>().ok()) {
        _ = link.focus();
    }
}

/// Dispatched on the document when the list was brought in line.
pub const CHANGED: &str = "counterfoil:changed";

fn is_gone(row: &Element) -> bool {
    row.class_list().contains("row-gone")
}

/// A row that is still there stays selected and current.
fn keep_pick(old: &Element, new: &Element) {
    let pick =
        |row: &Element| dom::find_in(row, "[name=pick]").and_then(|pick| pick.dyn_into::<HtmlInputElement>().ok());
    if let (Some(old), Some(new)) = (pick(old), pick(new)) {
        new.set_checked(old.checked());
    }
    if let Some(current) = old.get_attribute("aria-current") {
        _ = new.set_attribute("aria-current", &current);
    }
}

/// What the server says has become of a row, or of the thing a page is about.
async fn became(shown: &Element, part: &str) -> Option<Element> {
    let around = shown.closest("[data-rows]").ok().flatten();
    let rows = around.and_then(|around| around.get_attribute("data-rows")).unwrap_or("/operations".to_owned());
    if rows.is_empty() {
        return None;
    }
    let here = window().location().origin().ok()?;
    let address = format!("{here}{rows}/{}/row", id(shown));
    find_in_page(&parse(&fetch(&address).await.ok()?)?, part)
}

/// Turns a row grey, lets it say what became of it, and takes it away after a while.
async fn let_go(row: Element, following: Rc<Following>) {
    match became(&row, ".row-gone").await {
        Some(told) => {
            time::localise(&told);
            _ = row.replace_with_with_node_1(&told);
            set_timeout(move || leave(&told, &following), GONE);
        }
        None => leave(&row, &following),
    }
    dom::announce(CHANGED);
}

fn leave(row: &Element, following: &Rc<Following>) {
    let list = row.parent_element();
    row.remove();
    if let Some(list) = list.filter(|list| list.child_element_count() == 0) {
        if let Some(heading) = list.previous_element_sibling().filter(|above| above.class_list().contains("row-group"))
        {
            heading.remove();
        }
        list.remove();
    }
    if dom::find("#list .row").is_none() {
        happened(following);
    }
}

/// Tells the reader of a page about one thing that it has moved on. The page itself stays as it was read.
fn tell(event: &MessageEvent) {
    let Some(sheet) = dom::find("article[data-id][data-version]") else { return };
    let Some(data) = event.data().as_string().and_then(|data| js_sys::JSON::parse(&data).ok()) else { return };
    let member = |name: &str| js_sys::Reflect::get(&data, &name.into()).unwrap_or_default();
    let is_newer = member("version").as_f64().is_some_and(|newer| newer as i64 > version(&sheet));
    if member("id").as_string() != Some(id(&sheet)) || !is_newer {
        return;
    }
    spawn_local(async move {
        let told = became(&sheet, ".wide").await;
        if let Some(told) = &told {
            time::localise(told);
        }
        let words = told.and_then(|told| told.text_content()).unwrap_or_else(|| "changed".to_owned());
        let sentence = "This page shows it as it was. What you wrote stays until you read it again.";
        let here = window().location().pathname().unwrap_or_default();
        let notice =
            dom::notice("h3", "flow", &format!("This was {words}"), sentence, Some(("Show what is new", &here)));
        if let (Some(notice), Some(main)) = (notice, dom::find("main")) {
            if let Some(old) = dom::find("#moved-on") {
                old.remove();
            }
            notice.set_id("moved-on");
            _ = notice.set_attribute("role", "status");
            _ = main.prepend_with_node_1(&notice);
        }
    });
}
