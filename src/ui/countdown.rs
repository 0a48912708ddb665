//! Clocks that run by the server's time.
//!
//! | | |
//! |---|---|
//! | `time[data-left]` | runs down to its `datetime`; the classes of [`time::left_class`] say how urgent it is |
//! | `progress` in the `.clock` around it | filled with the seconds left |
//! | `time[data-since]` | runs up from its `datetime` |
//! | `[data-lapses]` around a clock | given `data-lapsed` at zero; its buttons and fields are switched off |
//!
//! [`LAPSED`] is dispatched on the document when a deadline passes in front of the reader. Clocks that appear later run too.

use std::time::Duration;

use leptos::{
    prelude::*,
    wasm_bindgen::JsCast,
    web_sys::{Element, HtmlProgressElement},
};

use super::{dom, time};

/// Dispatched on the document when a deadline passes.
pub const LAPSED: &str = "counterfoil:lapsed";

/// Runs every clock of the page.
#[island]
pub fn Countdown() -> impl IntoView {
    Effect::new(|_| {
        tick();
        set_interval(tick, Duration::from_secs(1));
    });
}

fn tick() {
    let now = time::server_now();
    for clock in dom::all("time[data-since]") {
        if let Some(since) = moment(&clock) {
            clock.set_text_content(Some(&time::span(now - since)));
        }
    }
    let mut lapsed = false;
    for clock in dom::all("time[data-left]:not([data-over])") {
        if let Some(until) = moment(&clock) {
            show(&clock, until - now);
            if until <= now {
                lapse(&clock);
                lapsed = true;
            }
        }
    }
    if lapsed {
        dom::announce(LAPSED);
    }
}

fn moment(clock: &Element) -> Option<i64> {
    time::parse(&clock.get_attribute("datetime")?)
}

fn show(clock: &Element, left: i64) {
    clock.set_text_content(Some(&time::left(left)));
    let class = time::left_class(left);
    for urgency in ["left-soon", "left-last", "left-over"] {
        _ = clock.class_list().toggle_with_force(urgency, class.ends_with(urgency));
    }
    let Some(around) = clock.closest(".clock").ok().flatten() else { return };
    _ = around.class_list().toggle_with_force("clock-soon", left < time::SOON_MS);
    if let Some(bar) = dom::find_in(&around, "progress").and_then(|bar| bar.dyn_into::<HtmlProgressElement>().ok()) {
        bar.set_value((left.max(0) / 1000) as f64);
    }
}

fn lapse(clock: &Element) {
    _ = clock.set_attribute("data-over", "");
    clock.set_text_content(Some("expired"));
    if let Ok(Some(subject)) = clock.closest("[data-lapses]") {
        _ = subject.set_attribute("data-lapsed", "");
        dom::all_in(&subject, "button, input").iter().for_each(dom::disable);
    }
}
