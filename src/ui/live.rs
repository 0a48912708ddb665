//! The page follows what happens.

use leptos::prelude::*;

/// Keeps the page up to date.
#[island]
pub fn Live() -> impl IntoView {
    Effect::new(|| {});
}
