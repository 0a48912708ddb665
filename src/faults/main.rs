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
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
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
use report::{Broken, Cell, Findings, Seen};

/// The one test of this target, as test runners know it.
const SMALL: &str = "a_few_seeds_of_every_cell";
const SMALL_SEEDS: u64 = 2;
const SEEDS: u64 = 200;
/// Seeds of every cell that are run before the next ones of any.
const ROUND: u64 = 5;
/// Seeds that a broken guard has to show itself in.
const GUARD_SEEDS: u64 = 8;
/// Minutes for which rounds are begun.
const MINUTES: u64 = 90;

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
            run(&Scope { seeds, minutes, is_whole: true, only: arguments.get(3).map_or("", String::as_str) })
        }
        _ if has("--list") => {
            list(has("--ignored"));
            ExitCode::SUCCESS
        }
        // Under a filter that names something else there is nothing to do.
        Some(filter) if has("--ignored") || !(filter.starts_with('-') || SMALL.contains(filter)) => ExitCode::SUCCESS,
        _ => run(&Scope { seeds: SMALL_SEEDS, minutes: MINUTES, is_whole: false, only: "" }),
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

enum Found {
    Cells(Arm, Contract, trial::Results),
    Guard(Box<Broken>),
    Kills(Vec<Killed>),
    /// The job came to no end.
    Nothing(String),
}

struct Scope<'a> {
    seeds: u64,
    minutes: u64,
    /// Every arm at every provider with a report, or what a test has time for.
    is_whole: bool,
    /// What the names of the jobs contain.
    only: &'a str,
}

impl Scope<'_> {
    fn is_in(&self, arm: Arm, contract: Contract) -> bool {
        self.is_whole
            || match arm {
                Arm::NewKey | Arm::SameKey => true,
                Arm::AgentSqlite => matches!(contract, Contract::Keys | Contract::Eventual | Contract::Fenced),
                Arm::GatewayPostgres => {
                    matches!(contract, Contract::Authoritative | Contract::Unbounded | Contract::Nothing)
                }
                _ => false,
            }
    }

    /// What every round is made of.
    fn cells(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for arm in Arm::ALL {
            for contract in Contract::ALL.into_iter().filter(|contract| self.is_in(arm, *contract)) {
                let fits = |injection: &Injection| injection.is_for(arm) && *injection != Injection::DatabaseAway;
                let injections = Injection::ALL.into_iter().filter(fits).collect();
                jobs.push(Job::Cells { arm, contract, injections });
                if arm.is_desk() && self.is_whole {
                    jobs.push(Job::Cells { arm, contract, injections: vec![Injection::DatabaseAway] });
                }
            }
        }
        self.named(jobs)
    }

    /// What is run once.
    fn once(&self) -> Vec<Job> {
        let mut jobs: Vec<_> = Guard::ALL.map(Job::Guard).into();
        if self.is_whole {
            jobs.push(Job::Kills);
        }
        self.named(jobs)
    }

    fn named(&self, mut jobs: Vec<Job>) -> Vec<Job> {
        jobs.retain(|job| job.to_string().contains(self.only));
        jobs
    }
}

async fn carry_out(providers: &Providers, job: &Job, seeds: Range<u64>) -> Found {
    match job {
        Job::Cells { arm, contract, injections } => {
            let seen = trial::cells(providers, (*arm, *contract), injections, seeds, None).await;
            Found::Cells(*arm, *contract, seen)
        }
        // In real time, at a provider that has been told no other.
        Job::Kills => Found::Kills(kill::all(&Providers::start()).await),
        Job::Guard(guard) => {
            let ((contract, injection), arm) = (guard.cell(), Arm::AgentSqlite);
            let seen = trial::cells(providers, (arm, contract), &[injection], seeds, Some(*guard)).await;
            let cell = Cell::of(arm, contract, injection, seen.into_iter().map(|(_, seen)| seen).collect());
            Found::Guard(Box::new(Broken { guard: *guard, title: guard.title(), shows: cell.is_unsafe(), cell }))
        }
    }
}

/// Runs jobs, as many at once as there are processors.
fn work_off(jobs: &[Job], seeds: &Range<u64>, begun: Instant) -> Vec<Found> {
    let next = AtomicUsize::new(0);
    let work = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let providers = Providers::start();
        let mut found = Vec::new();
        while let Some(job) = jobs.get(next.fetch_add(1, Relaxed)) {
            let run = || runtime.block_on(carry_out(&providers, job, seeds.clone()));
            let result = catch_unwind(AssertUnwindSafe(run));
            found.push(result.unwrap_or_else(|_| Found::Nothing(format!("{job}: came to no end"))));
            eprintln!("{:>5} s  {job}", begun.elapsed().as_secs());
        }
        found
    };
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Runs rounds until all seeds are done or time is up: every cell has the same seeds at any time.
fn run(scope: &Scope) -> ExitCode {
    // Without one no client is built; nothing here is encrypted.
    drop(rustls::crypto::ring::default_provider().install_default());
    let begun = Instant::now();
    let mut seen: BTreeMap<(Arm, Contract, Injection), Vec<Seen>> = BTreeMap::new();
    let mut findings = Findings { seeds_asked: scope.seeds, ..Findings::default() };
    let mut found = work_off(&scope.once(), &(0..scope.seeds.min(GUARD_SEEDS)), begun);
    let mut round_took = Duration::ZERO;
    while findings.seeds < scope.seeds && begun.elapsed() + round_took <= Duration::from_secs(scope.minutes * 60) {
        let round_begun = Instant::now();
        let seeds = findings.seeds..scope.seeds.min(findings.seeds + ROUND);
        found.extend(work_off(&scope.cells(), &seeds, begun));
        findings.seeds = seeds.end;
        round_took = round_begun.elapsed();
    }
    for one in found {
        match one {
            Found::Cells(arm, contract, results) => {
                for (injection, one) in results {
                    seen.entry((arm, contract, injection)).or_default().push(one);
                }
            }
            Found::Kills(killed) => findings.killed = killed,
            Found::Guard(broken) => findings.broken_guards.push(*broken),
            Found::Nothing(words) => findings.without_end.push(words),
        }
    }
    let cell = |((arm, contract, injection), seen)| Cell::of(arm, contract, injection, seen);
    findings.cells = seen.into_iter().map(cell).collect();
    findings.killed.sort_by_key(|killed| (killed.arm, killed.contract, killed.point));
    findings.broken_guards.sort_by_key(|broken| broken.guard as usize);
    findings.took_s = begun.elapsed().as_secs();
    if scope.is_whole {
        let folder = Path::new("target/faults");
        std::fs::create_dir_all(folder).unwrap();
        let document = serde_json::to_string_pretty(&report::document(&findings)).unwrap();
        std::fs::write(folder.join("report.json"), document).unwrap();
        std::fs::write(folder.join("report.html"), page::page(&findings)).unwrap();
    }
    let (cells, seeds, asked) = (findings.cells.len(), findings.seeds, findings.seeds_asked);
    eprintln!(
        "{cells} cells, {seeds} of {asked} seeds in each, {} s\n\n{}",
        findings.took_s,
        report::table(&findings.cells)
    );
    let broken = report::violations(&findings);
    for words in &broken {
        eprintln!("does not hold: {words}");
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cells { arm, contract, injections } => {
                let one = if injections.len() == 1 { injections[0].title() } else { "every injection" };
                write!(f, "{} / {} / {one}", arm.title(), contract.title())
            }
            Self::Kills => f.write_str("kills"),
            Self::Guard(guard) => write!(f, "broken: {}", guard.title()),
        }
    }
}
