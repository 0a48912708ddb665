//! The fault harness: the same tasks in several ways through the same faults, with the providers' ledger as the only
//! witness. `make faults` runs all of it; the suite runs a few seeds of every cell that goes through the desk.
#![expect(clippy::unwrap_used, reason = "a harness that cannot go on has failed")]

mod cells;
mod desk;
mod direct;
mod provider;
mod report;
mod sim;
#[expect(dead_code, unused_imports, unused_macros, reason = "the integration tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;
mod trial;

use std::{
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

use cells::{Arm, Contract, Injection};
use provider::Providers;
use report::Cell;

/// The one test of this target, as test runners know it.
const SMALL: &str = "a_few_seeds_of_every_cell";
const SMALL_SEEDS: u64 = 2;
const SEEDS: u64 = 200;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    match arguments.first().map(String::as_str) {
        Some("provider") => {
            provider::serve();
            ExitCode::SUCCESS
        }
        Some("run") => {
            let seeds = arguments.get(1).map_or(SEEDS, |number| number.parse().unwrap());
            run(seeds, &Arm::ALL)
        }
        _ if has("--list") => {
            list(has("--ignored"));
            ExitCode::SUCCESS
        }
        // Under a filter that names something else there is nothing to do.
        Some(filter) if has("--ignored") || !(filter.starts_with('-') || SMALL.contains(filter)) => ExitCode::SUCCESS,
        _ => run(SMALL_SEEDS, &[Arm::NewKey, Arm::SameKey, Arm::DeskSqlite, Arm::DeskPostgres]),
    }
}

#[expect(clippy::print_stdout, reason = "how a test runner learns the tests")]
fn list(ignored: bool) {
    if !ignored {
        println!("{SMALL}: test");
    }
}

/// Runs every cell of these arms, as many at once as there are processors.
fn run(seeds: u64, arms: &[Arm]) -> ExitCode {
    // Without one no client is built; nothing here is encrypted.
    drop(rustls::crypto::ring::default_provider().install_default());
    let begun = Instant::now();
    let fits = |arm: &Arm, injection: &Injection| injection.is_for(*arm);
    let all = arms.iter().flat_map(|arm| Contract::ALL.map(|contract| (*arm, contract)));
    let all = all.flat_map(|(arm, contract)| Injection::ALL.map(|injection| (arm, contract, injection)));
    let waiting: Vec<_> = all.filter(|(arm, _, injection)| fits(arm, injection)).collect();
    let (next, total) = (AtomicUsize::new(0), waiting.len());
    let work = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let providers = Providers::start();
        let mut cells = Vec::new();
        while let Some((arm, contract, injection)) = waiting.get(next.fetch_add(1, Relaxed)).copied() {
            let cell = trial::cell(&providers, arm, contract, injection, seeds);
            cells.push(runtime.block_on(cell));
            if injection == Injection::Nothing {
                eprintln!("{:>5} s  {} / {}", begun.elapsed().as_secs(), arm.title(), contract.title());
            }
        }
        cells
    };
    let workers = thread::available_parallelism().map_or(2, usize::from);
    let mut cells: Vec<Cell> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    cells.sort_by_key(|cell| (cell.arm, cell.contract, cell.injection));
    eprintln!("{total} cells in {} s", begun.elapsed().as_secs());
    if seeds >= SEEDS || arms.len() == Arm::ALL.len() {
        let folder = Path::new("target/faults");
        std::fs::create_dir_all(folder).unwrap();
        let document = serde_json::to_string_pretty(&report::document(&cells, seeds)).unwrap();
        std::fs::write(folder.join("report.json"), document).unwrap();
        std::fs::write(folder.join("report.html"), report::page(&cells, seeds)).unwrap();
    }
    eprintln!("\n{}", report::table(&cells));
    let broken = report::violations(&cells);
    for words in &broken {
        eprintln!("does not hold: {words}");
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
