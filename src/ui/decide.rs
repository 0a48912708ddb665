//! The decision strip: Approve only when nothing is left to see or to type, one request per decision, and what came of it
//! said in place. It is complete without this: whatever happens here that is not foreseen, the form is sent as it stands
//! and the server answers with a page.
//!
//! | | |
//! |---|---|
//! | `[data-decide]` | the strip; `data-lapsed` on it means the deadline has passed (see [`super::countdown`]) |
//! | `data-post`, `data-next` on it | where a decision is sent, and where to go once it counts (the decision is appended) |
//! | `data-me`, `data-agent` on it | the reader's id, and the name of the agent |
//! | `data-expires` on it | the deadline, RFC 3339 |
//! | `[data-notices]` in it | where notices appear |
//! | `form[data-decision]` | `approve` or `reject`; its named fields are the ballot |
//! | `li[data-need]` | `fingerprint`, `unfolded`, `target`: what Approve waits for |
//! | `[data-why]` in a form | why its button is off |
//! | `[data-target]` | the field for the target, with the target to type |
//!
//! What it leaves: `data-live` on the strip once it listens, and `data-closed` when nothing can be decided any more.

use std::time::Duration;

use leptos::{
    prelude::*,
    task::spawn_local,
    wasm_bindgen::{JsCast, JsValue},
    web_sys::{
        Element, Event, Headers, HtmlDetailsElement, HtmlFormElement, HtmlInputElement, HtmlTextAreaElement,
        RequestInit, Response, Storage,
    },
};
use serde_json::{Map, Value};
use wasm_bindgen_futures::JsFuture;

use super::{countdown::LAPSED, dom, time, verify};

/// Wakes the strip around it.
#[island]
pub fn Decide() -> impl IntoView {
    Effect::new(|_| {
        forget_the_deed();
        if let Some(strip) = dom::find("[data-decide]") {
            start(Strip(strip));
        }
    });
}

/// How long what the reader just did stays on top of the page. The page itself shows it too.
const NEWS: Duration = Duration::from_secs(12);

/// What the reader just did is said once: the address does not say it again.
fn forget_the_deed() {
    let Some(toast) = dom::find("[data-toast]") else { return };
    if let (Ok(history), Ok(path)) = (window().history(), window().location().pathname()) {
        _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&path));
    }
    set_timeout(move || toast.remove(), NEWS);
}

fn start(strip: Strip) {
    strip.restore_draft();
    let refresh = {
        let strip = strip.clone();
        move |_: Event| strip.refresh()
    };
    dom::on(&document(), verify::VERIFIED, refresh.clone());
    dom::on(&document(), LAPSED, refresh.clone());
    dom::on(&document(), "toggle", refresh.clone());
    dom::on(&strip.0, "input", refresh);
    for form in dom::all_in(&strip.0, "form[data-decision]") {
        let strip = strip.clone();
        dom::on(&form.clone(), "submit", move |event: Event| strip.submitted(&form, &event));
    }
    strip.refresh();
    _ = strip.0.set_attribute("data-live", "");
}

#[derive(Clone)]
struct Strip(Element);

/// What a decision came to.
enum Answer {
    Counted,
    /// A problem document.
    Refused(Value),
    /// Nobody knows whether it arrived.
    Lost,
}

impl Strip {
    fn given(&self, name: &str) -> String {
        self.0.get_attribute(name).unwrap_or_default()
    }

    /// Brings needs, reasons and buttons in line with the page as it is now.
    fn refresh(&self) {
        if self.0.has_attribute("data-lapsed") && !self.is_closed() {
            self.tell_expired();
        }
        let unmet = self.unmet();
        for form in dom::all_in(&self.0, "form[data-decision]") {
            let reason = match (self.is_closed(), form.has_attribute("aria-busy"), is_approval(&form)) {
                (true, ..) => Some("This form is closed.".to_owned()),
                (_, true, _) => Some("Sending.".to_owned()),
                (.., true) => unmet.clone(),
                (.., false) => None,
            };
            for button in dom::all_in(&form, "button") {
                match reason {
                    Some(_) => dom::disable(&button),
                    None => dom::enable(&button),
                }
            }
            if let Some(why) = dom::find_in(&form, "[data-why]") {
                let usual = why.get_attribute("data-why").unwrap_or_default();
                why.set_text_content(Some(&reason.unwrap_or(usual)));
            }
        }
    }

    /// What Approve waits for, as its reason; the list of needs is marked on the way.
    fn unmet(&self) -> Option<String> {
        let verified = dom::find("[data-operation]").and_then(|sheet| sheet.get_attribute("data-verified"));
        let folded = still_folded();
        let target = self.target();
        let is_typed = target.as_ref().is_none_or(|(field, target)| field.value() == *target);
        self.mark("fingerprint", verified.as_deref() == Some("yes"), verified.as_deref() == Some("no"));
        self.mark("unfolded", folded == 0, false);
        self.mark("target", is_typed, false);
        match (verified.as_deref(), folded) {
            (None, _) => Some("Off until this browser has recomputed the fingerprint.".to_owned()),
            (Some("no"), _) => Some("Off: what you see is not what was proposed.".to_owned()),
            (_, 1) => Some("Off until all of the content was unfolded: 1 part is left.".to_owned()),
            (_, 2..) => Some(format!("Off until all of the content was unfolded: {folded} parts are left.")),
            _ if !is_typed => Some("Off until the target is typed.".to_owned()),
            _ => None,
        }
    }

    fn mark(&self, need: &str, met: bool, impossible: bool) {
        if let Some(item) = dom::find_in(&self.0, &format!("[data-need={need}]")) {
            _ = item.class_list().toggle_with_force("ok", met);
            _ = item.class_list().toggle_with_force("no-go", impossible);
        }
    }

    /// The field for the target and what is to be typed; none where nothing is.
    fn target(&self) -> Option<(HtmlInputElement, String)> {
        let field = dom::find_in(&self.0, "[data-target]")?;
        let target = field.get_attribute("data-target")?;
        Some((field.dyn_into().ok()?, target))
    }

    fn submitted(&self, form: &Element, event: &Event) {
        if self.is_closed() || form.has_attribute("aria-busy") {
            return event.prevent_default();
        }
        if is_approval(form) {
            // The page may have been changed since it was checked.
            verify::check();
            if self.unmet().is_some() {
                self.refresh();
                return event.prevent_default();
            }
        }
        let Some(form) = form.dyn_ref::<HtmlFormElement>().cloned() else { return };
        let ballot = ballot(&form);
        event.prevent_default();
        _ = form.set_attribute("aria-busy", "true");
        self.refresh();
        let strip = self.clone();
        spawn_local(async move {
            let answer = send(&strip.given("data-post"), &ballot).await;
            _ = form.remove_attribute("aria-busy");
            strip.answered(&form, answer);
            strip.refresh();
        });
    }

    fn answered(&self, form: &HtmlFormElement, answer: Answer) {
        let problem = match answer {
            Answer::Counted => {
                let decision = form.get_attribute("data-decision").unwrap_or_default();
                _ = form.set_attribute("aria-busy", "true");
                _ = window().location().assign(&format!("{}{decision}", self.given("data-next")));
                return;
            }
            Answer::Lost => {
                let sentence = "Your vote may have arrived. Send it again: the same vote counts once.";
                return self.tell("heed", "No answer came back", sentence, None);
            }
            Answer::Refused(problem) => problem,
        };
        let said = |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let afresh = Some(("Show what is new", self.here()));
        match said("code").as_str() {
            "already_decided" => {
                let time = clock(&said("at"));
                let how = if said("decision") == "approve" { "approved" } else { "rejected" };
                let (who, sentence) = match said("by") == self.given("data-me") {
                    true => ("You".to_owned(), "One vote each. Your form is closed; what you wrote is kept below."),
                    false => (said("by_name"), "Your form is closed; what you wrote is kept below."),
                };
                self.close();
                self.tell("flow", &format!("{who} {how} this at {time}"), sentence, afresh);
            }
            "approval_expired" => self.tell_expired(),
            "invalid_state" => {
                self.close();
                let sentence = "Nothing was decided. Your form is closed; what you wrote is kept below.";
                self.tell("heed", &format!("{}.", said("detail")), sentence, afresh);
            }
            "stale_view" => {
                self.close();
                let sentence = "Your vote was not counted. Read again, then decide; what you wrote is kept.";
                self.tell("heed", "This page is older than the operation", sentence, afresh);
                self.keep_draft();
            }
            "unavailable" => {
                let sentence = "The desk is too busy to take this. Your vote was not recorded; send it again in 5 s.";
                self.tell("heed", "Nothing was done", sentence, None);
            }
            "paused" => {
                let sentence = "Your vote would start the work at once. It was not recorded; send it again later.";
                self.tell("heed", "The desk is paused", sentence, None);
            }
            // The server has a page for it.
            _ => _ = form.submit(),
        }
    }

    fn tell_expired(&self) {
        self.close();
        let time = clock(&self.given("data-expires"));
        let sentence =
            format!("Not approved, not rejected. {} may propose it again with a new key.", self.given("data-agent"));
        self.tell("heed", &format!("Expired at {time}"), &sentence, Some(("Show what is new", self.here())));
    }

    fn tell(&self, meaning: &str, heading: &str, sentence: &str, way_on: Option<(&str, String)>) {
        let way_on = way_on.as_ref().map(|(label, address)| (*label, address.as_str()));
        let notice = dom::notice("h3", meaning, heading, sentence, way_on);
        if let (Some(place), Some(notice)) = (dom::find_in(&self.0, "[data-notices]"), notice) {
            place.set_text_content(None);
            _ = place.append_child(&notice);
            place.scroll_into_view();
        }
    }

    fn close(&self) {
        _ = self.0.set_attribute("data-closed", "");
    }

    fn is_closed(&self) -> bool {
        self.0.has_attribute("data-closed")
    }

    fn here(&self) -> String {
        window().location().pathname().unwrap_or_default()
    }

    /// Keeps the note over the next loading of this page.
    fn keep_draft(&self) {
        if let (Some(storage), Some(note)) = (storage(), self.note()) {
            _ = storage.set_item(&self.here(), &note.value());
        }
    }

    fn restore_draft(&self) {
        let Some(storage) = storage() else { return };
        if let (Ok(Some(draft)), Some(note)) = (storage.get_item(&self.here()), self.note()) {
            note.set_value(&draft);
        }
        _ = storage.remove_item(&self.here());
    }

    fn note(&self) -> Option<HtmlTextAreaElement> {
        dom::find_in(&self.0, "textarea")?.dyn_into().ok()
    }
}

/// The time of an RFC 3339 text, where the reader is.
fn clock(at: &str) -> String {
    time::parse(at).map_or_else(|| at.to_owned(), |at| time::local(at, time::Form::Clock))
}

fn storage() -> Option<Storage> {
    window().session_storage().ok().flatten()
}

fn is_approval(form: &Element) -> bool {
    form.get_attribute("data-decision").as_deref() == Some("approve")
}

/// How many folded parts of the content were never opened.
fn still_folded() -> usize {
    let parts = dom::all("[data-content] details").into_iter().filter(|part| {
        if part.dyn_ref::<HtmlDetailsElement>().is_some_and(HtmlDetailsElement::open) {
            _ = part.set_attribute("data-opened", "");
        }
        !part.has_attribute("data-opened")
    });
    parts.count()
}

fn ballot(form: &HtmlFormElement) -> String {
    let mut members = Map::new();
    let mut put = |name: String, value: String| {
        if !value.is_empty() {
            members.insert(name, value.into());
        }
    };
    put("decision".to_owned(), form.get_attribute("data-decision").unwrap_or_default());
    for field in dom::all_in(form, "[name]") {
        let name = field.get_attribute("name").unwrap_or_default();
        if let Some(input) = field.dyn_ref::<HtmlInputElement>() {
            if input.type_() != "radio" || input.checked() {
                put(name, input.value());
            }
        } else if let Some(text) = field.dyn_ref::<HtmlTextAreaElement>() {
            put(name, text.value());
        }
    }
    Value::Object(members).to_string()
}

async fn send(address: &str, body: &str) -> Answer {
    let Ok((status, text)) = post(address, body).await else { return Answer::Lost };
    match status {
        200..300 => Answer::Counted,
        _ => Answer::Refused(serde_json::from_str(&text).unwrap_or_default()),
    }
}

async fn post(address: &str, body: &str) -> Result<(u16, String), JsValue> {
    let headers = Headers::new()?;
    headers.set("content-type", "application/json")?;
    let request = RequestInit::new();
    request.set_method("POST");
    request.set_headers(&headers);
    request.set_body(&body.into());
    let response: Response =
        JsFuture::from(window().fetch_with_str_and_init(address, &request)).await?.unchecked_into();
    let text = JsFuture::from(response.text()?).await?;
    Ok((response.status(), text.as_string().unwrap_or_default()))
}
