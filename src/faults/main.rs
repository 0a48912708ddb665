//! The fault harness: the same tasks in several ways through the same faults, with the providers' ledger as the only
//! witness. `make faults` runs all of it; the suite runs a few seeds of the cells that matter most.
#![expect(clippy::unwrap_used, reason = "a harness that cannot go on has failed")]

mod cells;
mod desk;
mod direct;
mod guards;
mod kill;
mod page;
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
    time::{Duration, Instant},
};

use cells::{Arm, Contract, Injection};
use guards::Guard;
use kill::Killed;
use provider::Providers;
use report::{Broken, Cell, Findings};

/// The one test of this target, as test runners know it.
const SMALL: &str = "a_few_seeds_of_every_cell";
const SMALL_SEEDS: u64 = 2;
const SEEDS: u64 = 200;
/// Seeds that a broken guard has to show itself in.
const GUARD_SEEDS: u64 = 8;
/// Minutes after which nothing more is begun.
const MINUTES: u64 = 120;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |number| number.parse().unwrap());
    match arguments.first().map(String::as_str) {
        Some("provider") => {
            provider::serve();
            ExitCode::SUCCESS
        }
        Some("run") => {
            let (seeds, minutes) = (number(1, SEEDS), number(2, MINUTES));
            let only = arguments.get(3).map_or("", String::as_str);
            Scope { arms: &Arm::ALL, seeds, minutes, only, is_whole: true }.run()
        }
        _ if has("--list") => {
            list(has("--ignored"));
            ExitCode::SUCCESS
        }
        // Under a filter that names something else there is nothing to do.
        Some(filter) if has("--ignored") || !(filter.starts_with('-') || SMALL.contains(filter)) => ExitCode::SUCCESS,
        _ => {
            let arms = [Arm::NewKey, Arm::SameKey, Arm::AgentSqlite, Arm::GatewayPostgres];
            Scope { arms: &arms, seeds: SMALL_SEEDS, minutes: MINUTES, only: "", is_whole: false }.run()
        }
    }
}

#[expect(clippy::print_stdout, reason = "how a test runner learns the tests")]
fn list(ignored: bool) {
    if !ignored {
        println!("{SMALL}: test");
    }
}

/// What is run together: in one simulated time, on one database.
#[derive(Debug, Clone)]
enum Job {
    Cells { arm: Arm, contract: Contract, injections: Vec<Injection> },
    Guard(Guard),
    Kills,
}

struct Scope<'a> {
    arms: &'a [Arm],
    seeds: u64,
    minutes: u64,
    /// What the names of the jobs contain.
    only: &'a str,
    /// With a report.
    is_whole: bool,
}

enum Found {
    Cells(Vec<Cell>),
    Guard(Box<Broken>),
    Kills(Vec<Killed>),
}

impl Scope<'_> {
    fn jobs(&self) -> Vec<Job> {
        let mut jobs: Vec<_> = Guard::ALL.map(Job::Guard).into();
        if self.is_whole {
            jobs.push(Job::Kills);
        }
        for arm in self.arms.iter().copied() {
            for contract in Contract::ALL {
                let fits = |injection: &Injection| injection.is_for(arm) && *injection != Injection::DatabaseAway;
                let injections = Injection::ALL.into_iter().filter(fits).collect();
                jobs.push(Job::Cells { arm, contract, injections });
                if arm.is_desk() && self.is_whole {
                    jobs.push(Job::Cells { arm, contract, injections: vec![Injection::DatabaseAway] });
                }
            }
        }
        jobs.retain(|job| job.to_string().contains(self.only));
        jobs
    }

    async fn carry_out(&self, providers: &Providers, job: &Job) -> Found {
        match job {
            Job::Cells { arm, contract, injections } => {
                Found::Cells(trial::cells(providers, (*arm, *contract), injections, self.seeds, None).await)
            }
            // In real time, at a provider that has been told no other.
            Job::Kills => Found::Kills(kill::all(&Providers::start()).await),
            Job::Guard(guard) => {
                let (contract, injection) = guard.cell();
                let seeds = self.seeds.min(GUARD_SEEDS);
                let place = (Arm::AgentSqlite, contract);
                let cell = trial::cells(providers, place, &[injection], seeds, Some(*guard)).await.remove(0);
                Found::Guard(Box::new(Broken { guard: *guard, title: guard.title(), shows: cell.is_unsafe(), cell }))
            }
        }
    }

    /// Runs every job, as many at once as there are processors.
    fn run(&self) -> ExitCode {
        // Without one no client is built; nothing here is encrypted.
        drop(rustls::crypto::ring::default_provider().install_default());
        let (begun, end) = (Instant::now(), Duration::from_secs(self.minutes * 60));
        let (waiting, next) = (self.jobs(), AtomicUsize::new(0));
        let work = || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let providers = Providers::start();
            let mut found = Vec::new();
            while begun.elapsed() < end
                && let Some(job) = waiting.get(next.fetch_add(1, Relaxed))
            {
                found.push(runtime.block_on(self.carry_out(&providers, job)));
                eprintln!("{:>5} s  {job}", begun.elapsed().as_secs());
            }
            found
        };
        let workers = thread::available_parallelism().map_or(2, usize::from);
        let found: Vec<Found> = thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        let left_out = waiting.len() - found.len();
        let mut findings = Findings { seeds_per_cell: self.seeds, left_out, ..Findings::default() };
        for one in found {
            match one {
                Found::Cells(cells) => findings.cells.extend(cells),
                Found::Kills(killed) => findings.killed = killed,
                Found::Guard(broken) => findings.broken_guards.push(*broken),
            }
        }
        findings.cells.sort_by_key(|cell| (cell.arm, cell.contract, cell.injection));
        findings.killed.sort_by_key(|killed| (killed.arm, killed.contract, killed.point));
        findings.broken_guards.sort_by_key(|broken| broken.guard as usize);
        eprintln!("{} cells in {} s", findings.cells.len(), begun.elapsed().as_secs());
        if self.is_whole {
            let folder = Path::new("target/faults");
            std::fs::create_dir_all(folder).unwrap();
            let document = serde_json::to_string_pretty(&report::document(&findings)).unwrap();
            std::fs::write(folder.join("report.json"), document).unwrap();
            std::fs::write(folder.join("report.html"), page::page(&findings)).unwrap();
        }
        eprintln!("\n{}", report::table(&findings.cells));
        let broken = report::violations(&findings);
        for words in &broken {
            eprintln!("does not hold: {words}");
        }
        if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cells { arm, contract, injections } => {
                write!(f, "{} / {} / {} injections", arm.title(), contract.title(), injections.len())
            }
            Self::Kills => f.write_str("kills"),
            Self::Guard(guard) => write!(f, "broken: {}", guard.title()),
        }
    }
}
