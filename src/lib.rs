//! Counterfoil: the desk where people countersign what AI agents are about to do to production.
//!
//! - [`model`]: the domain, pure. No I/O, no async, no clock. Compiled for the server and for the browser.
//! - `ui`: what the browser may contain: islands, and the view pieces the server shares with them.
//! - `server`: everything else. Data flows one way: `web → service → store`, all over `model`.

// A page is one type, as deep as its markup.
#![recursion_limit = "256"]

#[cfg(all(feature = "ssr", feature = "hydrate"))]
compile_error!("`ssr` and `hydrate` are two halves: build one at a time");

pub mod model;

#[cfg(any(feature = "ssr", feature = "hydrate"))]
pub mod ui;

#[cfg(feature = "ssr")]
pub mod server;

/// Entry point of the browser half: wakes the islands on the page.
#[cfg(feature = "hydrate")]
#[wasm_bindgen::prelude::wasm_bindgen]
pub fn hydrate() {
    console_error_panic_hook::set_once();
    leptos::mount::hydrate_islands();
}
