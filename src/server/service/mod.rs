//! The use cases: one file each, thin over the model and the store.

pub mod kinds;
