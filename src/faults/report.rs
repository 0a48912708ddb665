//! What came of it: figures with their intervals, what must hold, and a page to look at.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cells::{self, Arm, Contract, Injection},
    guards::Guard,
    kill::Killed,
};

/// Minutes of a person's time: a decision on the desk, and looking into an outcome.
const DECISION_MIN: f64 = 0.5;
const INTERVENTION_MIN: f64 = 6.0;

/// One seed, as the ledger has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Seen {
    pub seed: u64,
    /// Deliveries of the task.
    pub tasks: usize,
    /// Effects nobody wanted.
    pub duplicates: usize,
    /// Effects of another content than was asked for, or approved.
    pub wrong: usize,
    /// Effects that are wanted and not there.
    pub lacking: usize,
    /// Deliveries reported as done without an effect.
    pub untrue: usize,
    /// Real second requests reported as done without an effect of their own.
    pub deduplicated: usize,
    /// Nobody is sure, and a person has to find out.
    pub in_doubt: bool,
    /// Nobody is sure, and nobody has to find out.
    pub lost: bool,
    pub took_ms: i64,
    pub decisions: usize,
    pub interventions: usize,
}

impl Seen {
    fn is_exact(&self) -> bool {
        self.duplicates == 0 && self.wrong == 0 && self.lacking == 0
    }
}

/// A share of the seeds with its 95 % interval (Wilson 1927).
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Share {
    pub count: usize,
    pub of: usize,
    pub low: f64,
    pub high: f64,
}

impl Share {
    fn of(count: usize, of: usize) -> Self {
        const Z: f64 = 1.959_964;
        let (n, p) = (of as f64, count as f64 / of as f64);
        let centre = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let whole = 1.0 + Z * Z / n;
        Self { count, of, low: ((centre - half) / whole).max(0.0), high: ((centre + half) / whole).min(1.0) }
    }

    pub fn rate(self) -> f64 {
        self.count as f64 / self.of as f64
    }
}

/// One arm at one provider under one injection.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub arm: Arm,
    pub contract: Contract,
    pub injection: Injection,
    pub duplicate_effects: usize,
    pub wrong_effects: usize,
    /// Seeds with at least one duplicate.
    pub duplicated: Share,
    pub exactly_once: Share,
    /// Every wanted effect once, and known without a person.
    pub certain: Share,
    /// Lacking or unknown, and no person has it before them.
    pub missed: Share,
    pub unresolved: Share,
    /// Of the deliveries.
    pub false_completion: Share,
    pub false_deduplication: Share,
    /// Simulated milliseconds to a definite end.
    pub recovery_p50_ms: Option<i64>,
    pub recovery_p95_ms: Option<i64>,
    /// Simulated milliseconds that the oldest and the median open doubt had lasted.
    pub unresolved_age_p50_ms: Option<i64>,
    pub interventions: usize,
    pub decisions: usize,
    /// Minutes of people's time for one correct and certain completion.
    pub minutes_per_completion: Option<f64>,
    #[serde(skip)]
    settled_ms: Vec<i64>,
    /// Seeds to look at again.
    pub examples: Vec<u64>,
}

fn quantile(values: &mut [i64], percent: usize) -> Option<i64> {
    values.sort_unstable();
    values.get((values.len().saturating_sub(1)) * percent / 100).copied()
}

/// A person's minutes for one of so many correct completions.
fn minutes(decisions: usize, interventions: usize, completions: usize) -> Option<f64> {
    let all = decisions as f64 * DECISION_MIN + interventions as f64 * INTERVENTION_MIN;
    (completions > 0).then(|| all / completions as f64)
}

impl Cell {
    pub fn of(arm: Arm, contract: Contract, injection: Injection, seen: Vec<Seen>) -> Self {
        let share = |holds: fn(&Seen) -> bool| Share::of(seen.iter().filter(|one| holds(one)).count(), seen.len());
        let took = |in_doubt: bool| -> Vec<i64> {
            seen.iter().filter(|one| one.in_doubt == in_doubt).map(|one| one.took_ms).collect()
        };
        let (mut settled, mut open) = (took(false), took(true));
        let sum = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>();
        let (decisions, interventions) = (sum(|one| one.decisions), sum(|one| one.interventions));
        let correct = seen.iter().filter(|one| one.is_exact() && !one.in_doubt).count();
        let missed = |one: &Seen| one.lost || one.lacking > 0 && !one.in_doubt;
        let bad =
            seen.iter().filter(|one| one.duplicates + one.wrong + one.untrue + one.deduplicated > 0 || missed(one));
        let tasks = sum(|one| one.tasks);
        Self {
            arm,
            contract,
            injection,
            duplicate_effects: sum(|one| one.duplicates),
            wrong_effects: sum(|one| one.wrong),
            duplicated: share(|one| one.duplicates + one.wrong > 0),
            exactly_once: share(Seen::is_exact),
            certain: share(|one| one.is_exact() && !one.in_doubt && !one.lost),
            missed: Share::of(seen.iter().filter(|one| missed(one)).count(), seen.len()),
            unresolved: share(|one| one.in_doubt),
            false_completion: Share::of(sum(|one| one.untrue), tasks),
            false_deduplication: Share::of(sum(|one| one.deduplicated), tasks),
            recovery_p50_ms: quantile(&mut settled, 50),
            recovery_p95_ms: quantile(&mut settled, 95),
            settled_ms: settled,
            unresolved_age_p50_ms: quantile(&mut open, 50),
            interventions,
            decisions,
            minutes_per_completion: minutes(decisions, interventions, correct),
            examples: bad.map(|one| one.seed).take(3).collect(),
        }
    }
}

/// A guard that was broken, and the cell that was to show it.
#[derive(Debug, Clone, Serialize)]
pub struct Broken {
    pub guard: Guard,
    pub title: &'static str,
    pub cell: Cell,
    pub shows: bool,
}

impl Cell {
    /// Whether anything came of it that must not.
    pub fn is_unsafe(&self) -> bool {
        self.duplicate_effects + self.wrong_effects + self.false_completion.count + self.false_deduplication.count > 0
    }

    fn place(&self) -> String {
        format!("{} / {} / {}", self.arm.title(), self.contract.title(), self.injection.title())
    }
}

/// Everything that one run of the harness has found.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// Of every cell.
    pub seeds: u64,
    pub seeds_asked: u64,
    pub took_s: u64,
    pub cells: Vec<Cell>,
    pub broken_guards: Vec<Broken>,
    pub killed: Vec<Killed>,
    /// Jobs that stopped half way.
    pub without_end: Vec<String>,
}

/// What must hold and does not, in words.
pub fn violations(findings: &Findings) -> Vec<String> {
    let (cells, mut found) = (&findings.cells, Vec::new());
    for cell in cells.iter().filter(|cell| cell.arm.is_desk()) {
        let mut must_be_none = |what: &str, count: usize| {
            if count > 0 {
                found.push(format!("{}: {count} {what}, as in seeds {:?}", cell.place(), cell.examples));
            }
        };
        if !cells::may_duplicate(cell.contract, cell.injection) {
            must_be_none("duplicate effects", cell.duplicate_effects);
        }
        must_be_none("effects of another content", cell.wrong_effects);
        must_be_none("false completions", cell.false_completion.count);
        must_be_none("false deduplications", cell.false_deduplication.count);
        must_be_none("lost: neither done nor before a person", cell.missed.count);
        if !cells::is_decidable(cell.contract, cell.injection) {
            continue;
        }
        must_be_none("left to a person though nobody was needed", cell.unresolved.count + cell.interventions);
        let others = cells.iter().filter(|other| {
            !other.arm.is_desk() && (other.contract, other.injection) == (cell.contract, cell.injection)
        });
        let best = others.map(|other| other.exactly_once.count).max().unwrap_or_default();
        if cell.exactly_once.count < best {
            found.push(format!(
                "{}: exactly once in {} seeds, elsewhere {best}",
                cell.place(),
                cell.exactly_once.count
            ));
        }
    }
    if !cells.iter().any(|cell| cell.arm == Arm::NewKey && cell.duplicate_effects > 0) {
        found.push("the naive arm shows no duplicates: this harness cannot fail".to_owned());
    }
    for broken in findings.broken_guards.iter().filter(|broken| !broken.shows) {
        found.push(format!("{}: nothing shows it in {}", broken.title, broken.cell.place()));
    }
    for killed in findings.killed.iter().filter(|killed| !killed.holds()) {
        let Killed { arm, contract, point, effects, state } = killed;
        found.push(format!("{} / {} / killed at {point}: {effects} effects, {state}", arm.title(), contract.title()));
    }
    found.extend(findings.without_end.iter().cloned());
    found
}

pub fn document(findings: &Findings) -> Value {
    let mut document = serde_json::to_value(findings).unwrap();
    document["violations"] = json!(violations(findings));
    document["minutes"] = json!({"decision": DECISION_MIN, "intervention": INTERVENTION_MIN});
    document
}

/// Figures over all cells of one arm, or over its cells at one provider.
pub struct Total {
    pub duplicated: Share,
    exactly_once: Share,
    pub certain: Share,
    pub unresolved: Share,
    missed: Share,
    false_completion: Share,
    false_deduplication: Share,
    recovery_p50_ms: Option<i64>,
    recovery_p95_ms: Option<i64>,
    interventions: usize,
    minutes_per_completion: Option<f64>,
}

impl Total {
    fn of(cells: &[&Cell]) -> Self {
        let sum = |part: fn(&Cell) -> usize| cells.iter().map(|cell| part(cell)).sum::<usize>();
        let share = |part: fn(&Cell) -> Share| {
            let parts = || cells.iter().map(|cell| part(cell));
            Share::of(parts().map(|part| part.count).sum(), parts().map(|part| part.of).sum())
        };
        let mut settled: Vec<_> = cells.iter().flat_map(|cell| cell.settled_ms.iter().copied()).collect();
        let (interventions, certain) = (sum(|cell| cell.interventions), share(|cell| cell.certain));
        Self {
            duplicated: share(|cell| cell.duplicated),
            exactly_once: share(|cell| cell.exactly_once),
            certain,
            unresolved: share(|cell| cell.unresolved),
            missed: share(|cell| cell.missed),
            false_completion: share(|cell| cell.false_completion),
            false_deduplication: share(|cell| cell.false_deduplication),
            recovery_p50_ms: quantile(&mut settled, 50),
            recovery_p95_ms: quantile(&mut settled, 95),
            interventions,
            minutes_per_completion: minutes(sum(|cell| cell.decisions), interventions, certain.count),
        }
    }
}

/// The arms that were run, each with its figures.
pub fn totals(cells: &[Cell]) -> Vec<(Arm, Total)> {
    let of = |arm: Arm| {
        let mine: Vec<_> = cells.iter().filter(|cell| cell.arm == arm).collect();
        (!mine.is_empty()).then(|| (arm, Total::of(&mine)))
    };
    Arm::ALL.into_iter().filter_map(of).collect()
}

pub fn percent(share: Share) -> String {
    let of = |part: f64| format!("{:.1}", part * 100.0);
    format!("{} % ({}–{})", of(share.rate()), of(share.low), of(share.high))
}

pub fn seconds(ms: Option<i64>) -> String {
    ms.map_or("–".to_owned(), |ms| match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    })
}

pub const COLUMNS: [&str; 10] = [
    "arm",
    "seeds with a duplicate",
    "exactly once",
    "before a person",
    "missed",
    "false completions",
    "false deduplications",
    "recovery p50 / p95",
    "interventions",
    "person-minutes per completion",
];

impl Total {
    pub fn row(&self, arm: Arm) -> [String; 10] {
        [
            arm.title().to_owned(),
            percent(self.duplicated),
            percent(self.exactly_once),
            percent(self.unresolved),
            percent(self.missed),
            self.false_completion.count.to_string(),
            self.false_deduplication.count.to_string(),
            format!("{} / {}", seconds(self.recovery_p50_ms), seconds(self.recovery_p95_ms)),
            self.interventions.to_string(),
            self.minutes_per_completion.map_or("–".to_owned(), |minutes| format!("{minutes:.1}")),
        ]
    }
}

/// The table for a terminal and the README, in Markdown.
pub fn table(cells: &[Cell]) -> String {
    let mut text = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for (arm, total) in totals(cells) {
        let _ = writeln!(text, "| {} |", total.row(arm).join(" | "));
    }
    text
}
