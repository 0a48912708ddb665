//! The audit log verified in the browser: the export is read as it arrives and judged by the same code as
//! `counterfoil audit verify`. The server's word is not taken.
//!
//! | | |
//! |---|---|
//! | `[data-audit]` | the verdict's sheet |
//! | `data-export`, `data-vkey` on it | the address of the export, and the verifier key the server names |
//! | `[data-verdict]`, `[data-facts]`, `[data-checked]` in it | replaced by what was found here |
//! | `form[data-bring]` in it | `vkey` and `pin`: a key and a checkpoint of the reader's own |
//! | `[data-forget]` in it | forgets what this browser kept; hidden while it keeps nothing |
//!
//! Without a key of the reader's own, the first visit has to trust the one the server names; it is kept, and so is the
//! newest verified checkpoint, so that the next visit sees a key exchanged or a tail cut off. `data-verified` on the sheet
//! says how it went: `yes`, `no` or `unchecked`.

use leptos::{
    prelude::*,
    wasm_bindgen::{JsCast, JsValue},
    web_sys::{
        Element, Event, HtmlInputElement, HtmlTextAreaElement, Response, Storage,
        js_sys::{Function, Promise, Reflect, Uint8Array},
    },
};
use serde::{Deserialize, Serialize};
use wasm_bindgen_futures::{JsFuture, spawn_local};

use super::{
    dom,
    time::{self, Form},
};
use crate::model::audit::{
    Verdict, Verifier,
    verify::{Obstacle, Tampered, Verified},
};

const KEPT: &str = "counterfoil:audit";

/// Fetches the verifier: a module of its own, so that no other page waits for it. `script` is its address.
#[island]
pub fn VerifyAudit(script: String) -> impl IntoView {
    Effect::new(move |_| {
        if let Some(element) = dom::element("script", "", &[]) {
            _ = element.set_attribute("type", "module");
            _ = element.set_attribute("src", &script);
            _ = document().head().map(|head| head.append_child(&element));
        }
    });
}

/// Verifies the log and wakes the form on the verdict's sheet, if the page has one.
pub fn start() {
    let Some(sheet) = dom::find("[data-audit]") else { return };
    let trust = kept().unwrap_or_else(|| Trust {
        vkey: sheet.get_attribute("data-vkey").unwrap_or_default(),
        pin: None,
        source: Source::Server,
    });
    if let Some(form) = dom::find_in(&sheet, "form[data-bring]") {
        let sheet = sheet.clone();
        dom::on(&form, "submit", move |event: Event| {
            event.prevent_default();
            check(sheet.clone(), brought(&sheet));
        });
    }
    if let Some(forget) = dom::find_in(&sheet, "[data-forget]") {
        dom::on(&forget, "click", |_: Event| {
            if let Some(storage) = storage() {
                _ = storage.remove_item(KEPT);
            }
            _ = window().location().reload();
        });
        if trust.source == Source::Kept {
            _ = forget.remove_attribute("hidden");
        }
    }
    check(sheet, trust);
}

/// What the verdict rests on from outside the export.
#[derive(Clone, Serialize, Deserialize)]
struct Trust {
    vkey: String,
    /// A signed checkpoint.
    pin: Option<String>,
    #[serde(skip, default = "Source::kept")]
    source: Source,
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Reader,
    Kept,
    Server,
}

impl Source {
    fn kept() -> Self {
        Self::Kept
    }
}

fn storage() -> Option<Storage> {
    window().local_storage().ok().flatten()
}

fn kept() -> Option<Trust> {
    serde_json::from_str(&storage()?.get_item(KEPT).ok()??).ok()
}

/// What the reader typed; what was left empty is taken from what there is.
fn brought(sheet: &Element) -> Trust {
    let vkey = dom::find_in(sheet, "form [name=vkey]").and_then(|field| field.dyn_into::<HtmlInputElement>().ok());
    let pin = dom::find_in(sheet, "form [name=pin]").and_then(|field| field.dyn_into::<HtmlTextAreaElement>().ok());
    let typed = |text: String| (!text.trim().is_empty()).then(|| text.trim().to_owned());
    let named = sheet.get_attribute("data-vkey").unwrap_or_default();
    // A note ends with a line feed, and fields lose it.
    let pin = pin.and_then(|pin| typed(pin.value())).map(|pin| pin + "\n");
    match vkey.and_then(|vkey| typed(vkey.value())) {
        Some(vkey) => Trust { vkey, pin, source: Source::Reader },
        None => Trust { vkey: named, pin, source: Source::Server },
    }
}

fn check(sheet: Element, trust: Trust) {
    let export = sheet.get_attribute("data-export").unwrap_or_default();
    _ = sheet.set_attribute("aria-busy", "true");
    spawn_local(async move {
        let began = time::server_now();
        let (verdict, note) = verify(&export, &trust).await.unwrap_or_else(|why| (why, None));
        _ = sheet.remove_attribute("aria-busy");
        if let (Verdict::Verified(_), Some(note)) = (&verdict, note) {
            keep(Trust { pin: Some(note), ..trust.clone() });
        }
        tell(&sheet, &trust, &verdict, time::server_now() - began);
    });
}

fn keep(trust: Trust) {
    if let (Some(storage), Ok(text)) = (storage(), serde_json::to_string(&trust)) {
        _ = storage.set_item(KEPT, &text);
    }
}

/// The verdict, and the checkpoint that closes the export.
async fn verify(export: &str, trust: &Trust) -> Result<(Verdict, Option<String>), Verdict> {
    let unreadable = |what: &str| Verdict::CannotCheck(Obstacle::Unreadable(what.to_owned()));
    let mut verifier = Verifier::new(&trust.vkey, trust.pin.as_slice()).map_err(Verdict::CannotCheck)?;
    let lost = |_| unreadable("the export did not arrive");
    let response: Response = JsFuture::from(window().fetch_with_str(export)).await.map_err(lost)?.unchecked_into();
    if !response.ok() {
        return Err(unreadable(&format!("the server answered {}", response.status())));
    }
    let body = Reflect::get(&response, &"body".into()).map_err(lost)?;
    let reader = call(&body, "getReader").map_err(lost)?;
    let mut tail = Vec::new();
    loop {
        let read = call(&reader, "read").map_err(lost)?;
        let piece = JsFuture::from(read.unchecked_into::<Promise>()).await.map_err(lost)?;
        if Reflect::get(&piece, &"done".into()).is_ok_and(|done| done.is_truthy()) {
            break;
        }
        let piece = Reflect::get(&piece, &"value".into()).map_err(lost)?.unchecked_into::<Uint8Array>().to_vec();
        verifier.push(&piece);
        tail.extend_from_slice(&piece);
        tail.drain(..tail.len().saturating_sub(LONGEST_NOTE));
    }
    Ok((verifier.finish(), closing_note(&tail)))
}

/// Bytes of the longest closing line that is looked for.
const LONGEST_NOTE: usize = 4096;

fn call(object: &JsValue, method: &str) -> Result<JsValue, JsValue> {
    Reflect::get(object, &method.into())?.unchecked_into::<Function>().call0(object)
}

fn closing_note(tail: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Closing {
        checkpoint: String,
    }
    let lines = tail.strip_suffix(b"\n")?;
    let line = lines.rsplit(|byte| *byte == b'\n').next()?;
    Some(serde_json::from_slice::<Closing>(line).ok()?.checkpoint)
}

fn tell(sheet: &Element, trust: &Trust, verdict: &Verdict, took_ms: i64) {
    let at = time::local(time::server_now(), Form::Clock);
    let (state, notice, facts) = match verdict {
        Verdict::Verified(verified) => {
            let last = grouped(verified.checkpoint.size.saturating_sub(1));
            let notice = dom::notice("h2", "sign", &format!("Verified to record {last}"), WHOLE, None);
            ("yes", notice, facts(trust, verified))
        }
        Verdict::Tampered(Tampered { seq, reason }) => {
            let heading = match seq {
                Some(seq) => format!("Record {} is not what was signed", grouped(*seq)),
                None => "The log is not what was signed".to_owned(),
            };
            ("no", dom::notice("h2", "stop", &heading, &format!("{}.", capital(&reason.to_string())), None), Vec::new())
        }
        Verdict::CannotCheck(obstacle) => {
            let sentence = format!("{}. Nothing is known about the log.", capital(&obstacle.to_string()));
            ("unchecked", dom::notice("h2", "heed", "Not checked", &sentence, None), Vec::new())
        }
    };
    _ = sheet.set_attribute("data-verified", state);
    if let Some(notice) = &notice {
        _ = notice.class_list().add_1("notice-top");
        _ = notice.set_attribute("role", "status");
    }
    put(sheet, "[data-verdict]", notice);
    let facts = facts.iter().flat_map(|(name, text)| [dom::text("dt", "", name), dom::text("dd", "", text)]);
    put(sheet, "[data-facts]", facts.flatten());
    let records = match verdict {
        Verdict::Verified(verified) => format!("{} records in ", grouped(verified.checkpoint.size)),
        _ => String::new(),
    };
    let took =
        format!("{at}, {records}{}.{:02} s. The server’s word was not taken.", took_ms / 1000, took_ms % 1000 / 10);
    let sign = if state == "yes" { "✓ Checked in this browser" } else { "Checked in this browser" };
    put(sheet, "[data-checked]", [dom::text("p", "match", sign), dom::text("p", "", &took)].into_iter().flatten());
    dom::announce(CHECKED);
}

/// Dispatched on the document with every verdict.
pub const CHECKED: &str = "counterfoil:checked";

const WHOLE: &str =
    "Chain whole, signature good, rules replayed: no send without a spent approval, no approval spent twice.";

fn facts(trust: &Trust, verified: &Verified) -> Vec<(&'static str, String)> {
    let size = verified.checkpoint.size;
    let last = size.saturating_sub(1);
    let whose = match trust.source {
        Source::Reader => "the key you brought",
        Source::Kept => "the key this browser kept",
        Source::Server => "the key this server names; this browser keeps it from now on",
    };
    let mut facts = vec![
        ("Chain", format!("{} records, 0 to {}, none missing", grouped(size), grouped(last))),
        ("Signed", format!("all of them in one checkpoint, under {whose}")),
    ];
    let pinned = verified.anchored_to.unwrap_or(0);
    facts.push(match verified.anchored_to {
        Some(pinned) => (
            "Pinned",
            format!("a checkpoint kept outside the server, {} records, is a prefix of this log", grouped(pinned)),
        ),
        None => ("Pinned", "no checkpoint kept outside the server: records may be missing at the end".to_owned()),
    });
    if pinned > 0 && pinned < size {
        facts.push(("Newer than the pin", format!("records {} to {}", grouped(pinned), grouped(last))));
    }
    facts
}

fn put(sheet: &Element, selector: &str, parts: impl IntoIterator<Item = Element>) {
    if let Some(place) = dom::find_in(sheet, selector) {
        place.set_text_content(None);
        for part in parts {
            _ = place.append_child(&part);
        }
    }
}

/// `18,434`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (18_434, "18,434"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_note_is_found_in_the_last_line_of_an_export() {
        let closing = crate::model::audit::verify::closing_line("log\n1\nabc\n\n— log sig\n");
        let export = format!("half a record\"}}\n{closing}\n");
        assert_eq!(closing_note(export.as_bytes()).as_deref(), Some("log\n1\nabc\n\n— log sig\n"));
        assert_eq!(closing_note(b"no line feed"), None);
        assert_eq!(closing_note(b"{}\n"), None);
    }
}
