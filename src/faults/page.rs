//! The report as a page to look at, which needs nothing else.

use std::fmt::Write as _;

use crate::{
    cells::{self, Arm, Contract, Injection},
    kill::Killed,
    report::{COLUMNS, Cell, Findings, Share, percent, seconds, totals, violations},
};

const STYLE: &str = include_str!("page.css");

/// Safety and liveness side by side: in all, cell by cell, and in figures.
pub fn page(findings: &Findings) -> String {
    let cells = &findings.cells;
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Faults</title>\
         <style>{STYLE}</style></head><body><main><h1>What becomes of one effect when something fails</h1>\
         <p class=\"lead\">A LIMBO-style comparison: the same tasks, by the same seeds, through the same faults, with \
         Counterfoil and without it. {} seeds in each cell, in simulated time; the providers’ own ledger is the only \
         witness. Intervals are 95 % (Wilson).</p>",
        findings.seeds
    );
    html += &verdict(findings);
    html += "<h2>Safety and liveness</h2>";
    html += &overview(cells);
    html += "<p class=\"note\">Safety: seeds in which an effect happened that nobody wanted, twice or with another \
             content. Liveness: seeds in which every wanted effect happened once and is known to have; the lighter part \
             waits for a person, who is told what is known.</p>";
    html += &table(&COLUMNS, totals(cells).into_iter().map(|(arm, total)| total.row(arm).to_vec()));
    html += "<h2>Cell by cell</h2><p class=\"note\">Each pair of bars is one cell: on the left seeds with an unwanted \
             effect, on the right seeds done for certain, and lighter those before a person. A dot marks a cell that no \
             person is needed for.</p>";
    for arm in Arm::ALL {
        if cells.iter().any(|cell| cell.arm == arm) {
            let is_open = if arm.is_desk() || arm == Arm::NewKey { " open" } else { "" };
            let chart = chart(cells, arm);
            let _ = write!(html, "<details{is_open}><summary>{}</summary>{chart}</details>", arm.title());
        }
    }
    if !findings.broken_guards.is_empty() {
        html += "<h2>Guards, broken on purpose</h2><p class=\"note\">Each guard is taken away outside of Counterfoil, in \
                 the agent, the people or the kind. Then a cell has to fail.</p>";
        let rows = findings.broken_guards.iter().map(|broken| {
            let Cell { contract, injection, duplicated, false_completion, false_deduplication, .. } = &broken.cell;
            vec![
                broken.title.to_owned(),
                format!("{} / {}", contract.name(), injection.title()),
                format!("{} of {}", duplicated.count, duplicated.of),
                false_completion.count.to_string(),
                false_deduplication.count.to_string(),
                if broken.shows { "shows".to_owned() } else { "does not show".to_owned() },
            ]
        });
        let columns =
            ["instead", "cell", "seeds with a duplicate", "false completions", "false deduplications", "the harness"];
        html += &table(&columns, rows);
    }
    if !findings.killed.is_empty() {
        html += "<h2>Kill -9 of the server that sends</h2><p class=\"note\">A real process, killed once at each point \
                 after it was proved reached, and started again.</p>";
        let rows = findings.killed.iter().map(|killed| {
            let Killed { arm, contract, point, effects, state } = killed;
            let (arm, contract) = (arm.title().to_owned(), contract.title().to_owned());
            vec![arm, contract, (*point).to_owned(), effects.to_string(), state.replace('_', " ")]
        });
        html += &table(&["arm", "provider", "killed at", "effects", "ends as"], rows);
    }
    html += "<h2>Every cell</h2><details><summary>Figures</summary>";
    html += &every_cell(cells);
    html + "</details></main></body></html>\n"
}

fn verdict(findings: &Findings) -> String {
    let broken = violations(findings);
    if broken.is_empty() {
        return "<p class=\"verdict good\"><strong>Everything that must hold through Counterfoil holds:</strong> no \
                duplicate effect, no false completion, no false deduplication, nothing lost. The other arms show \
                duplicates in the same run.</p>"
            .to_owned();
    }
    let items: String = broken.iter().map(|words| format!("<li>{words}</li>")).collect();
    format!("<div class=\"verdict bad\"><strong>{} do not hold</strong><ul>{items}</ul></div>", broken.len())
}

fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut html = "<div class=\"scroll\"><table><thead><tr>".to_owned();
    for column in columns {
        let _ = write!(html, "<th scope=\"col\">{column}</th>");
    }
    html += "</tr></thead><tbody>";
    for row in rows {
        html += "<tr>";
        for (at, value) in row.iter().enumerate() {
            let _ = match at {
                0 => write!(html, "<th scope=\"row\">{value}</th>"),
                _ => write!(html, "<td>{value}</td>"),
            };
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

fn every_cell(cells: &[Cell]) -> String {
    let columns = [
        "arm",
        "provider",
        "injection",
        "unwanted effects",
        "exactly once",
        "missed",
        "before a person",
        "for (p50)",
        "false completions",
        "false deduplications",
        "recovery p50 / p95",
        "interventions",
        "person-minutes per completion",
    ];
    let rows = cells.iter().map(|cell| {
        vec![
            cell.arm.title().to_owned(),
            cell.contract.title().to_owned(),
            cell.injection.title().to_owned(),
            (cell.duplicate_effects + cell.wrong_effects).to_string(),
            percent(cell.exactly_once),
            percent(cell.missed),
            percent(cell.unresolved),
            seconds(cell.unresolved_age_p50_ms),
            cell.false_completion.count.to_string(),
            cell.false_deduplication.count.to_string(),
            format!("{} / {}", seconds(cell.recovery_p50_ms), seconds(cell.recovery_p95_ms)),
            cell.interventions.to_string(),
            cell.minutes_per_completion.map_or("–".to_owned(), |minutes| format!("{minutes:.1}")),
        ]
    });
    table(&columns, rows)
}

/// A bar with its interval; `after` is drawn behind it in a lighter tone.
fn bar(x: f64, y: f64, width: f64, height: f64, class: &str, share: Share, after: Option<Share>) -> String {
    let long = |part: f64| (part * width * 10.0).round() / 10.0;
    let mut svg = format!("<rect class=\"frame\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\"/>");
    let mut title = format!("{} of {}", share.count, share.of);
    if let Some(after) = after {
        let from = x + long(share.rate());
        let width = long(after.rate());
        let _ = write!(svg, "<rect class=\"person\" x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
        let _ = write!(title, ", {} before a person", after.count);
    }
    let wide = long(share.rate());
    let _ = write!(
        svg,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{height}\" rx=\"2\"/>\
         <rect class=\"touch\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{title}</title></rect>"
    );
    svg
}

fn whisker(x: f64, y: f64, width: f64, share: Share) -> String {
    let (low, high) = (x + share.low * width, x + share.high * width);
    let (top, bottom) = (y - 4.0, y + 4.0);
    format!("<path class=\"whisker\" d=\"M{low:.1} {top}V{bottom}M{low:.1} {y}H{high:.1}M{high:.1} {top}V{bottom}\"/>")
}

/// Every arm in one picture.
fn overview(cells: &[Cell]) -> String {
    let (label, wide, figure, row) = (264.0, 250.0, 74.0, 34.0);
    let totals = totals(cells);
    let (width, height) = (label + 2.0 * (wide + figure) + 20.0, 30.0 + row * totals.len() as f64);
    let second = label + wide + figure + 20.0;
    let mut svg = format!(
        "<div class=\"scroll\"><svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"Safety and liveness of every arm\"><text class=\"head\" x=\"{label}\" y=\"14\">Safety: unwanted \
         effects</text><text class=\"head\" x=\"{second}\" y=\"14\">Liveness: done, and known to be</text>"
    );
    for (at, (arm, total)) in totals.into_iter().enumerate() {
        let y = 30.0 + row * at as f64;
        let (middle, base) = (y + 9.0, y + 13.0);
        let class = if arm.is_desk() { "ours" } else { "" };
        let _ = write!(svg, "<text class=\"{class}\" x=\"0\" y=\"{base}\">{}</text>", arm.title());
        svg += &bar(label, y, wide, 18.0, "bad", total.duplicated, None);
        svg += &whisker(label, middle, wide, total.duplicated);
        svg += &bar(second, y, wide, 18.0, "good", total.certain, Some(total.unresolved));
        svg += &whisker(second, middle, wide, total.certain);
        for (x, share) in [(label, total.duplicated), (second, total.certain)] {
            let x = x + wide + 8.0;
            let _ = write!(svg, "<text class=\"figure\" x=\"{x}\" y=\"{base}\">{:.1} %</text>", share.rate() * 100.0);
        }
    }
    svg + "</svg></div>"
}

/// Two bars for each cell of one arm: providers across, injections down.
fn chart(cells: &[Cell], arm: Arm) -> String {
    let (left, top, wide, high, long) = (196.0, 26.0, 140.0, 19.0, 58.0);
    let shown: Vec<_> = Injection::ALL.into_iter().filter(|injection| injection.is_for(arm)).collect();
    let (width, height) = (left + wide * Contract::ALL.len() as f64, top + high * shown.len() as f64);
    let mut svg = format!(
        "<div class=\"scroll\"><svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"{}, cell by cell\">",
        arm.title()
    );
    for (column, contract) in Contract::ALL.into_iter().enumerate() {
        let x = left + column as f64 * wide;
        let _ = write!(svg, "<text class=\"head\" x=\"{x}\" y=\"14\">{}", contract.name());
        let _ = write!(svg, "<title>{}</title></text>", contract.title());
    }
    for (row, injection) in shown.into_iter().enumerate() {
        let y = top + row as f64 * high;
        let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", y + 11.0, injection.title());
        for (column, contract) in Contract::ALL.into_iter().enumerate() {
            let here =
                cells.iter().find(|cell| (cell.arm, cell.contract, cell.injection) == (arm, contract, injection));
            let Some(cell) = here else { continue };
            let x = left + column as f64 * wide;
            svg += &bar(x, y, long, 13.0, "bad", cell.duplicated, None);
            svg += &bar(x + long + 4.0, y, long, 13.0, "good", cell.certain, Some(cell.unresolved));
            if arm.is_desk() && cells::is_decidable(contract, injection) {
                let _ =
                    write!(svg, "<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"2\"/>", x + 2.0 * long + 10.0, y + 6.5);
            }
        }
    }
    svg + "</svg></div>"
}
