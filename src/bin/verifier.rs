//! The audit log's verifier as a module of its own: no page but the audit page waits for it.

fn main() {
    counterfoil::ui::audit::start();
}
