
pub mod service;
