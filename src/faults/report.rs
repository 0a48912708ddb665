//! What came of it: figures with their intervals, what must hold, and a page to look at.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cells::{self, Arm, Contract, Injection},
    guards::Guard,
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

    fn rate(self) -> f64 {
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
    /// Seeds to look at again.
    pub examples: Vec<u64>,
}

fn quantile(values: &mut [i64], percent: usize) -> Option<i64> {
    values.sort_unstable();
    values.get((values.len().saturating_sub(1)) * percent / 100).copied()
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
        let minutes = decisions as f64 * DECISION_MIN + interventions as f64 * INTERVENTION_MIN;
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
            missed: Share::of(seen.iter().filter(|one| missed(one)).count(), seen.len()),
            unresolved: share(|one| one.in_doubt),
            false_completion: Share::of(sum(|one| one.untrue), tasks),
            false_deduplication: Share::of(sum(|one| one.deduplicated), tasks),
            recovery_p50_ms: quantile(&mut settled, 50),
            recovery_p95_ms: quantile(&mut settled, 95),
            unresolved_age_p50_ms: quantile(&mut open, 50),
            interventions,
            decisions,
            minutes_per_completion: (correct > 0).then(|| minutes / correct as f64),
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
#[derive(Debug, Serialize)]
pub struct Findings {
    pub seeds_per_cell: u64,
    pub cells: Vec<Cell>,
    pub broken_guards: Vec<Broken>,
    /// Cells that were left out because time was up.
    pub left_out: usize,
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
    if findings.left_out > 0 {
        found.push(format!("time was up before {} cells had been run", findings.left_out));
    }
    found
}

pub fn document(findings: &Findings) -> Value {
    let mut document = serde_json::to_value(findings).unwrap();
    document["violations"] = json!(violations(findings));
    document["minutes"] = json!({"decision": DECISION_MIN, "intervention": INTERVENTION_MIN});
    document
}

/// Figures over all cells of one arm.
struct Total {
    arm: Arm,
    duplicated: Share,
    exactly_once: Share,
    unresolved: Share,
    missed: Share,
    false_completions: usize,
    false_deduplications: usize,
    interventions: usize,
}

fn totals(cells: &[Cell]) -> Vec<Total> {
    let of = |arm: Arm| {
        let mine: Vec<_> = cells.iter().filter(|cell| cell.arm == arm).collect();
        let all: usize = mine.iter().map(|cell| cell.exactly_once.of).sum();
        let sum = |part: fn(&Cell) -> usize| mine.iter().map(|cell| part(cell)).sum::<usize>();
        (all > 0).then(|| Total {
            arm,
            duplicated: Share::of(sum(|cell| cell.duplicated.count), all),
            exactly_once: Share::of(sum(|cell| cell.exactly_once.count), all),
            unresolved: Share::of(sum(|cell| cell.unresolved.count), all),
            missed: Share::of(sum(|cell| cell.missed.count), all),
            false_completions: sum(|cell| cell.false_completion.count),
            false_deduplications: sum(|cell| cell.false_deduplication.count),
            interventions: sum(|cell| cell.interventions),
        })
    };
    Arm::ALL.into_iter().filter_map(of).collect()
}

fn percent(share: Share) -> String {
    format!("{:.1} % ({:.1}–{:.1})", share.rate() * 100.0, share.low * 100.0, share.high * 100.0)
}

/// The table for a terminal and the README, in Markdown.
pub fn table(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| arm | seeds with a duplicate | exactly once | in doubt | missed | false completions | false deduplications | interventions |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for total in totals(cells) {
        let Total { arm, duplicated, exactly_once, unresolved, missed, .. } = total;
        let shares = [duplicated, exactly_once, unresolved, missed].map(percent).join(" | ");
        let (completions, deduplications) = (total.false_completions, total.false_deduplications);
        let _ = writeln!(
            text,
            "| {} | {shares} | {completions} | {deduplications} | {} |",
            arm.title(),
            total.interventions
        );
    }
    text
}

const STYLE: &str = "
:root{color-scheme:light dark;--bad:#c2410c;--good:#15803d;--line:#8884}
@media(prefers-color-scheme:dark){:root{--bad:#fb923c;--good:#4ade80}}
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{border-bottom:1px solid var(--line);padding:.2rem .6rem;text-align:left}
svg{max-width:100%;height:auto}svg text{fill:currentColor;font:11px system-ui,sans-serif}
.bad{fill:var(--bad)}.good{fill:var(--good)}.frame{fill:none;stroke:var(--line)}.scroll{overflow-x:auto}";

/// One page, with its charts, that needs nothing else.
pub fn page(findings: &Findings) -> String {
    let (cells, seeds) = (&findings.cells, findings.seeds_per_cell);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Faults</title><style>{STYLE}</style><h1>What faults do, arm by arm</h1>\
         <p>{seeds} seeds in each cell, in simulated time; the providers' ledger is the only witness. Intervals are 95 % (Wilson).</p>"
    );
    let broken = violations(findings);
    html += if broken.is_empty() {
        "<p><strong>Everything that must hold holds.</strong></p>"
    } else {
        "<h2>What does not hold</h2><ul>"
    };
    for words in &broken {
        let _ = write!(html, "<li>{words}</li>");
    }
    html += if broken.is_empty() { "" } else { "</ul>" };
    html += "<h2>Over all cells</h2><div class=\"scroll\"><table><tr><th>arm<th>seeds with a duplicate<th>exactly once<th>in doubt<th>missed<th>false completions<th>false deduplications<th>interventions";
    for total in totals(cells) {
        let _ = write!(html, "<tr><th>{}", total.arm.title());
        for share in [total.duplicated, total.exactly_once, total.unresolved, total.missed] {
            let _ = write!(html, "<td>{}", percent(share));
        }
        let _ = write!(
            html,
            "<td>{}<td>{}<td>{}",
            total.false_completions, total.false_deduplications, total.interventions
        );
    }
    html += "</table></div><h2>Safety and liveness, cell by cell</h2><p>Left: seeds with a duplicate effect. Right: seeds with every wanted effect once.</p>";
    for arm in Arm::ALL {
        let _ = write!(html, "<h3>{}</h3>{}", arm.title(), chart(cells, arm));
    }
    html += "<h2>Every cell</h2><div class=\"scroll\"><table><tr><th>arm<th>provider<th>injection<th>duplicates<th>exactly once<th>missed<th>in doubt<th>age of doubt p50<th>false completion<th>false deduplication<th>recovery p50 / p95<th>interventions<th>person-minutes per completion";
    let seconds = |ms: Option<i64>| ms.map_or("–".to_owned(), |ms| format!("{} s", ms / 1000));
    for cell in cells {
        let _ = write!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{} / {}<td>{}<td>{}",
            cell.arm.title(),
            cell.contract.title(),
            cell.injection.title(),
            cell.duplicate_effects,
            percent(cell.exactly_once),
            percent(cell.missed),
            percent(cell.unresolved),
            seconds(cell.unresolved_age_p50_ms),
            cell.false_completion.count,
            cell.false_deduplication.count,
            seconds(cell.recovery_p50_ms),
            seconds(cell.recovery_p95_ms),
            cell.interventions,
            cell.minutes_per_completion.map_or("–".to_owned(), |minutes| format!("{minutes:.1}")),
        );
    }
    html + "</table></div></html>"
}

/// Two bars for each cell of one arm: providers across, injections down.
fn chart(cells: &[Cell], arm: Arm) -> String {
    let (left, top, wide, high, bar) = (140, 24, 150, 18, 62);
    let (width, height) = (left + wide * Contract::ALL.len(), top + high * Injection::ALL.len());
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">", arm.title());
    for (column, contract) in Contract::ALL.into_iter().enumerate() {
        let _ = write!(svg, "<text x=\"{}\" y=\"14\">{}</text>", left + column * wide, contract.name());
    }
    for (row, injection) in Injection::ALL.into_iter().enumerate() {
        let y = top + row * high;
        let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", y + 12, injection.title());
        for (column, contract) in Contract::ALL.into_iter().enumerate() {
            let here =
                cells.iter().find(|cell| (cell.arm, cell.contract, cell.injection) == (arm, contract, injection));
            let Some(cell) = here else { continue };
            for (side, class, share) in [(0, "bad", cell.duplicated), (1, "good", cell.exactly_once)] {
                let x = left + column * wide + side * (bar + 4);
                let _ = write!(
                    svg,
                    "<rect class=\"frame\" x=\"{x}\" y=\"{}\" width=\"{bar}\" height=\"12\"/>\
                     <rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{:.1}\" height=\"12\"><title>{} of {}</title></rect>",
                    y + 2,
                    y + 2,
                    share.rate() * bar as f64,
                    share.count,
                    share.of
                );
            }
        }
    }
    svg + "</svg>"
}
