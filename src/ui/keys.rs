//! The keyboard.

use leptos::prelude::*;

/// One key per deed, off in fields.
#[island]
pub fn Keys() -> impl IntoView {
    Effect::new(|| {});
}
