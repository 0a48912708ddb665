//! Times and spans as people read them: the server prints UTC, the browser rewrites it where the reader is.

use leptos::{
    prelude::*,
    wasm_bindgen::JsValue,
    web_sys::{Element, js_sys},
};

use super::dom;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Under this many milliseconds a deadline is to be looked at twice.
pub const SOON_MS: i64 = 5 * MINUTE;
/// Under this many it is about to pass.
pub const LAST_MS: i64 = MINUTE;
/// From this many on, seconds say nothing.
pub const CALM_MS: i64 = 15 * MINUTE;

/// What is left of a time, in milliseconds: `8:41` under a quarter of an hour, then `41 min`, `2 h 05 min`, `3 d 4 h`.
pub fn left(ms: i64) -> String {
    let ms = ms.max(0);
    // Rounded up, so that `0:00` means that it has passed.
    let seconds = (ms + SECOND - 1) / SECOND;
    if ms < CALM_MS { format!("{}:{:02}", seconds / 60, seconds % 60) } else { span(ms) }
}

/// The class that goes with [`left`].
pub fn left_class(ms: i64) -> &'static str {
    match ms {
        ms if ms <= 0 => "left left-over",
        ms if ms < LAST_MS => "left left-last",
        ms if ms < SOON_MS => "left left-soon",
        _ => "left",
    }
}

/// A span of time in milliseconds: `50 s`, `12 min`, `1 h 54 min`, `3 d 4 h`.
pub fn span(ms: i64) -> String {
    match ms.max(0) {
        ms @ ..MINUTE => format!("{} s", ms / SECOND),
        ms @ ..HOUR => format!("{} min", ms / MINUTE),
        ms @ ..DAY => match ms % HOUR / MINUTE {
            0 => format!("{} h", ms / HOUR),
            minutes => format!("{} h {minutes:02} min", ms / HOUR),
        },
        ms => match ms % DAY / HOUR {
            0 => format!("{} d", ms / DAY),
            hours => format!("{} d {hours} h", ms / DAY),
        },
    }
}

/// How much of a moment is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `02:14`, of today.
    Minute,
    /// `02:14:08` today, `24 Nov 02:14` before, `24 Nov 2025` in other years.
    Clock,
    /// `24 Nov`, `24 Nov 2025` in other years.
    Day,
}

impl Form {
    const ALL: [Self; 3] = [Self::Minute, Self::Clock, Self::Day];

    /// As it stands in `data-form`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Clock => "clock",
            Self::Day => "day",
        }
    }
}

/// A moment on somebody's calendar and clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    pub year: i32,
    /// From 1.
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

impl Civil {
    /// In words, read by somebody whose clock says `now`.
    pub fn words(self, form: Form, now: Self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        let name = MONTHS[(month.clamp(1, 12) - 1) as usize];
        let is_today = (year, month, day) == (now.year, now.month, now.day);
        match form {
            Form::Minute => format!("{hour:02}:{minute:02}"),
            Form::Clock if is_today => format!("{hour:02}:{minute:02}:{second:02}"),
            Form::Clock if year == now.year => format!("{day} {name} {hour:02}:{minute:02}"),
            Form::Day if year == now.year => format!("{day} {name}"),
            Form::Clock | Form::Day => format!("{day} {name} {year}"),
        }
    }
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Rewrites every time on the page where the reader is, and keeps the clock of the top bar.
#[island]
pub fn LocalTimes() -> impl IntoView {
    Effect::new(|| {
        if let Some(root) = document().document_element() {
            localise(&root);
        }
        for zone in dom::all("[data-zone]") {
            zone.set_text_content(Some(&format!("Times in {}; hover for UTC.", zone_name())));
        }
        for (zone, name) in dom::all(".you .zone").into_iter().zip(letters()) {
            zone.set_text_content(Some(&name));
        }
        if let Some(clock) = dom::find("time[data-now]") {
            keep(clock);
        }
    });
}

/// Rewrites the times below `root`; what the server wrote stays in `title`.
pub fn localise(root: &Element) {
    let now = civil(server_now());
    for time in dom::all_in(root, "time[data-form]") {
        let at = time.get_attribute("datetime").and_then(|at| parse(&at));
        let form = time.get_attribute("data-form");
        let form = Form::ALL.into_iter().find(|known| form.as_deref() == Some(known.as_str()));
        if let (Some(form), Some(at)) = (form, at) {
            time.set_text_content(Some(&civil(at).words(form, now)));
        }
    }
}

/// A moment where the reader is.
pub fn local(at_ms: i64, form: Form) -> String {
    civil(at_ms).words(form, civil(server_now()))
}

/// The moment an RFC 3339 text names, in milliseconds since the epoch.
pub fn parse(text: &str) -> Option<i64> {
    let at = js_sys::Date::parse(text);
    at.is_finite().then_some(at as i64)
}

/// What the server's clock says, in milliseconds since the epoch: this machine's, corrected by what the page brought.
pub fn server_now() -> i64 {
    let root = document().document_element();
    let ahead = root.and_then(|root| root.get_attribute("data-ahead")).and_then(|ahead| ahead.parse::<i64>().ok());
    js_sys::Date::now() as i64 + ahead.unwrap_or(0)
}

/// On the reader's calendar and clock.
fn civil(ms: i64) -> Civil {
    let at = js_sys::Date::new(&JsValue::from_f64(ms as f64));
    Civil {
        year: at.get_full_year() as i32,
        month: at.get_month() + 1,
        day: at.get_date(),
        hour: at.get_hours(),
        minute: at.get_minutes(),
        second: at.get_seconds(),
    }
}

/// `CET (UTC+1)`, or `UTC+5:30` where the zone has no letters.
fn zone_name() -> String {
    let east = -js_sys::Date::new_0().get_timezone_offset() as i64;
    let (hours, minutes) = (east.abs() / 60, east.abs() % 60);
    let offset = match (east, minutes) {
        (0, _) => "UTC".to_owned(),
        (_, 0) => format!("UTC{}{hours}", if east < 0 { '−' } else { '+' }),
        _ => format!("UTC{}{hours}:{minutes:02}", if east < 0 { '−' } else { '+' }),
    };
    match letters() {
        Some(name) if !name.starts_with("GMT") && !name.starts_with("UTC") => format!("{name} ({offset})"),
        _ => offset,
    }
}

/// `CET`, from the end of what the browser calls the time.
fn letters() -> Option<String> {
    let options = js_sys::Object::new();
    js_sys::Reflect::set(&options, &"timeZoneName".into(), &"short".into()).ok()?;
    let text = String::from(js_sys::Date::new_0().to_locale_time_string_with_options("en-GB", &options));
    text.rsplit_once(' ').map(|(_, name)| name.to_owned())
}

/// Lets a clock go on.
fn keep(clock: Element) {
    let show = move || {
        let now = civil(server_now());
        clock.set_text_content(Some(&now.words(Form::Minute, now)));
    };
    show();
    set_interval(show, std::time::Duration::from_secs(5));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_as_finely_as_it_matters() {
        for (ms, words) in [
            (-5, "0:00"),
            (1, "0:01"),
            (48_000, "0:48"),
            (151_000, "2:31"),
            (14 * MINUTE + 59_000, "14:59"),
            (CALM_MS, "15 min"),
            (41 * MINUTE, "41 min"),
            (2 * HOUR + 5 * MINUTE, "2 h 05 min"),
            (3 * HOUR, "3 h"),
            (7 * DAY, "7 d"),
            (3 * DAY + 4 * HOUR, "3 d 4 h"),
        ] {
            assert_eq!(left(ms), words);
        }
        assert_eq!(span(50_999), "50 s");
    }

    #[test]
    fn a_moment_says_its_day_only_when_it_is_not_today() {
        let at = Civil { year: 2026, month: 12, day: 1, hour: 2, minute: 14, second: 8 };
        assert_eq!(at.words(Form::Clock, at), "02:14:08");
        assert_eq!(at.words(Form::Clock, Civil { day: 2, ..at }), "1 Dec 02:14");
        assert_eq!(at.words(Form::Clock, Civil { year: 2027, ..at }), "1 Dec 2026");
        assert_eq!(at.words(Form::Day, at), "1 Dec");
    }
}
