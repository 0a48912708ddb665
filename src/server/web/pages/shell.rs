//! What stands around every page: the bar, the footer, the marks, and the loader of the islands.

use leptos::prelude::*;

use super::parts;
use crate::{
    model::{approval::Role, time::Timestamp},
    server::{
        service::{desk::Counts, operation::Pause},
        web::auth::PersonIdentity,
    },
    ui::{
        countdown::Countdown,
        keys::Keys,
        live::Live,
        time::{Form, LocalTimes},
    },
};

/// Which word of the bar a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Desk,
    Conflicts,
    Unknown,
    Resources,
    Runs,
    OnCall,
    Audit,
    Settings,
    /// To none: the door, the refusals.
    Nowhere,
}

impl Place {
    fn word(self) -> &'static str {
        match self {
            Self::Desk => "Desk",
            Self::Conflicts => "Conflicts",
            Self::Unknown => "Unknown",
            Self::Resources => "Resources",
            Self::Runs => "Runs",
            Self::OnCall => "On call",
            Self::Audit => "Audit",
            Self::Settings => "Settings",
            Self::Nowhere => "Menu",
        }
    }

    fn address(self) -> &'static str {
        match self {
            Self::Desk | Self::Nowhere => "/",
            Self::Conflicts => "/conflicts",
            Self::Unknown => "/unknown",
            Self::Resources => "/resources",
            Self::Runs => "/runs",
            Self::OnCall => "/on-call",
            Self::Audit => "/audit",
            Self::Settings => "/settings",
        }
    }

    /// The words of the bar for somebody with this role.
    fn shown_to(role: Role) -> impl Iterator<Item = Self> {
        let reads_audit = matches!(role, Role::Auditor | Role::Admin);
        let all = [
            Self::Desk,
            Self::Conflicts,
            Self::Unknown,
            Self::Resources,
            Self::Runs,
            Self::OnCall,
            Self::Audit,
            Self::Settings,
        ];
        all.into_iter().filter(move |place| *place != Self::Audit || reads_audit)
    }
}

/// What the document says besides its content.
pub struct Frame<'a> {
    pub title: &'a str,
    pub place: Place,
    pub host: &'a str,
    pub now: Timestamp,
    /// Nobody: no bar.
    pub person: Option<&'a PersonIdentity>,
    pub counts: Counts,
    pub pause: Option<&'a Pause>,
}

/// The whole document.
pub fn document(frame: Frame<'_>, nonce: &str, version: &str, content: impl IntoView) -> impl IntoView {
    let title = match frame.title {
        "" => "Counterfoil".to_owned(),
        title => format!("{} · Counterfoil", parts::plain(title)),
    };
    let (script, wasm) = (format!("/pkg/counterfoil.js?v={version}"), format!("/pkg/counterfoil.wasm?v={version}"));
    let loader = LOADER.replace("SCRIPT", &script).replace("WASM", &wasm);
    let is_signed_in = frame.person.is_some();
    view! {
        <!DOCTYPE html>
        <html lang="en" data-now=frame.now.as_millis().to_string()>
            <head>
                <meta charset="utf-8" />
                <meta name="viewport" content="width=device-width, initial-scale=1" />
                <meta name="color-scheme" content="light dark" />
                <title>{title}</title>
                <link rel="icon" href="/favicon.svg" type="image/svg+xml" />
                <link rel="stylesheet" href=format!("/pkg/counterfoil.css?v={version}") />
            </head>
            <body>
                <a class="skip" href="#main">"Skip to the content"</a>
                {frame.person.map(|person| bar(&frame, person))}
                <main id="main" class="wrap" tabindex="-1">
                    {frame.pause.map(|pause| paused(pause, frame.now))}
                    {content}
                </main>
                {footer(&frame)}
                <svg class="sprite" aria-hidden="true" focusable="false" inner_html=parts::SPRITE></svg>
                <LocalTimes />
                {is_signed_in.then(|| view! { <Countdown /><Live /><Keys /> })}
                <script type="module" nonce=nonce.to_owned() inner_html=loader></script>
            </body>
        </html>
    }
}

/// Wakes the islands, and tells how far the server's clock is ahead. `data-live` is set once their effects have run.
const LOADER: &str = r#"const page = document.documentElement, [visit] = performance.getEntriesByType("navigation");
page.dataset.ahead = Math.round(page.dataset.now - performance.timeOrigin - (visit?.responseStart ?? 0));
const wasm = fetch("WASM"), islands = await import("SCRIPT");
await islands.default({ module_or_path: wasm });
islands.hydrate();
for (const island of document.querySelectorAll("leptos-island")) {
  // One that cannot start keeps none of the others from it.
  try { islands[island.dataset.component](island); } catch (error) { console.error(error); }
}
setTimeout(() => page.dataset.live = "");"#;

fn bar(frame: &Frame<'_>, person: &PersonIdentity) -> impl IntoView + use<> {
    let (place, counts, now, role) = (frame.place, frame.counts, frame.now, person.role());
    let links = move || Place::shown_to(role).map(|word| link(word, place, counts)).collect::<Vec<_>>();
    view! {
        <header class="bar">
            <div class="wrap">
                <a class="brand" href="/">{parts::brand()}"Counterfoil"</a>
                <nav class="nav" aria-label="Main">{links()}</nav>
                {(counts.overdue > 0)
                    .then(|| {
                        view! { <a class="overdue" href=Place::Unknown.address()>{counts.overdue}" overdue"</a> }
                    })}
                <details class="menu">
                    <summary>{place.word()}" ▾"</summary>
                    <ul>
                        {links().into_iter().map(|link| view! { <li>{link}</li> }).collect::<Vec<_>>()}
                        <li>{sign_out(format!("Sign out {}", person.name()))}</li>
                    </ul>
                </details>
                <div class="you push">
                    <span>
                        <time data-now="" datetime=now.to_string()>{parts::utc(now, Form::Minute, now)}</time>
                        " "
                        <span class="zone">"UTC"</span>
                    </span>
                    <span><b>{person.name().to_owned()}</b>" · "{role.as_str()}</span>
                    {sign_out("Sign out".to_owned())}
                </div>
            </div>
        </header>
    }
}

fn paused(pause: &Pause, now: Timestamp) -> impl IntoView + use<> {
    view! {
        <div class="notice notice-heed notice-page" role="status">
            <div>
                <h2>{parts::line(&pause.by)}" paused the desk at "{parts::when(pause.at, now, Form::Clock)}</h2>
                <p>"Nothing is claimed or sent. Deadlines keep running. “"{parts::line(&pause.reason)}"”"</p>
            </div>
        </div>
    }
}

fn link(word: Place, here: Place, counts: Counts) -> impl IntoView + use<> {
    let (count, class) = match word {
        Place::Conflicts => (counts.conflicts, "n n-stop"),
        Place::Unknown => (counts.unknown, "n n-doubt"),
        _ => (0, ""),
    };
    view! {
        <a href=word.address() aria-current=(word == here).then_some("page")>
            {word.word()}
            {(count > 0).then(|| view! { <span class=class>{count}</span> })}
        </a>
    }
}

fn sign_out(words: String) -> impl IntoView {
    view! {
        <form method="post" action="/sign-out">
            <button class="as-link" type="submit">{words}</button>
        </form>
    }
}

fn footer(frame: &Frame<'_>) -> impl IntoView + use<> {
    let is_signed_in = frame.person.is_some();
    view! {
        <footer class="end">
            <div class="wrap">
                <span>{frame.host.to_owned()}</span>
                <span data-zone="">"Times in UTC."</span>
                {is_signed_in.then(|| view! { <a class="push" href="/settings/keyboard">"Keyboard"</a> })}
            </div>
        </footer>
    }
}
