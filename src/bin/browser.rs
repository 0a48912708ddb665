//! The browser half of every page: the islands, and the `hydrate` that wakes them.

use counterfoil as _;

fn main() {}
