//! What the browser may contain: islands, each of them a small behaviour of a page that is complete without it.
//!
//! An island is compiled for both halves and prints little or nothing: the page is already there. What it does starts
//! in an effect, which only a browser runs. The loader in the page sets `data-live` on `<html>` once all are awake.

pub mod audit;
pub mod countdown;
pub mod decide;
pub mod dom;
pub mod keys;
pub mod live;
pub mod textarea;
pub mod time;
pub mod verify;
