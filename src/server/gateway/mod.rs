//! The gateway: requests that Counterfoil itself sends, to destinations an admin has registered.

pub mod http;
