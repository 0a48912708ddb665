//! The command line; see [`counterfoil::server::cli`].

fn main() -> std::process::ExitCode {
    counterfoil::server::cli::main()
}
