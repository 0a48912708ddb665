//! Charts as inline SVG, drawn on the server, each with the table of its numbers behind it.
//!
//! A chart is drawn twice, for a wide and for a narrow page: a drawing that is only scaled is unreadable on a phone.
//! Colours are classes, and never say anything alone.

use std::fmt::Write;

use leptos::prelude::*;

/// Where a chart stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Beside another one.
    Half,
    Whole,
}

/// Pixels of a drawing's width: as wide as it is shown, so that a letter of it is a letter of the page.
#[derive(Debug, Clone, Copy)]
pub struct Room(f64);

const HALF: Room = Room(600.0);
const WHOLE: Room = Room(1270.0);
const PHONE: Room = Room(336.0);

impl Room {
    fn is_narrow(self) -> bool {
        self.0 < HALF.0
    }
}

/// Marks within a frame.
pub struct Drawing {
    width: f64,
    height: f64,
    marks: String,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    fn new(width: f64, height: f64) -> Self {
        Self { width, height, marks: String::new() }
    }

    // Writing to a string does not fail.
    fn put(&mut self, mark: std::fmt::Arguments<'_>) {
        let _ = self.marks.write_fmt(mark);
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.put(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
        let title = escaped(title);
        self.put(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{title}</title></rect>"#
        ));
    }

    /// `name` is the id of the heading, `place` tells the two drawings of one chart apart.
    fn view(self, name: &str, place: &str, describes: &str) -> impl IntoView + use<> {
        let Self { width, height, marks } = self;
        let (name, words) = (name.to_owned(), format!("{name}-{place}"));
        let marks = format!("<desc id=\"{words}\">{}</desc>{marks}", escaped(describes));
        view! {
            <svg
                viewBox=format!("0 0 {width} {height}")
                role="img"
                aria-labelledby=name
                aria-describedby=words
                inner_html=marks
            ></svg>
        }
    }
}

/// One thing that is counted or measured in every slot.
pub struct Series {
    pub name: &'static str,
    /// `ink`, `soft`, `sign`, `flow`, `doubt`, `stop` or `heed`.
    pub colour: &'static str,
    /// None where there was nothing to measure.
    pub values: Vec<Option<i64>>,
}

const HEIGHT: f64 = 220.0;
const TOP: f64 = 14.0;
const FOOT: f64 = 26.0;

/// The least round number over `most`, in at most four steps of a round size.
fn scale(most: i64) -> (i64, i64) {
    let steps = (0..18).flat_map(|exponent| [1, 2, 5].map(|digit| digit * 10_i64.pow(exponent)));
    let step = steps.into_iter().find(|step| step * 4 >= most).unwrap_or(most);
    (step * ((most + step - 1) / step).max(1), step)
}

/// A frame with a grid of round numbers, and the words under its slots.
struct Plot {
    drawing: Drawing,
    left: f64,
    slot: f64,
    most: i64,
}

impl Plot {
    fn new(room: Room, labels: &[String], most: i64, right: f64) -> Self {
        let (most, step) = scale(most);
        let left = 14.0 + 8.0 * most.to_string().len() as f64;
        let slot = (room.0 - left - right) / labels.len().max(1) as f64;
        let mut plot = Self { drawing: Drawing::new(room.0, HEIGHT), left, slot, most };
        for tick in (0..=most / step).map(|i| i * step) {
            let (y, class) = (plot.y(tick), if tick == 0 { "axis" } else { "grid" });
            plot.drawing.line(class, (left, y), (room.0 - right, y));
            plot.drawing.text("num", (left - 8.0, y + 4.0), Anchor::End, &tick.to_string());
        }
        let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as f64 * 7.0 + 14.0;
        let every = (widest / slot).ceil().max(1.0) as usize;
        for (i, label) in labels.iter().enumerate().filter(|(i, _)| (labels.len() - 1 - i).is_multiple_of(every)) {
            let x = plot.middle(i);
            // The last word stays within the frame.
            let half = label.chars().count() as f64 * 3.5;
            let x = x.min(room.0 - half - 1.0);
            plot.drawing.text("num", (x, HEIGHT - 8.0), Anchor::Middle, label);
        }
        plot
    }

    fn y(&self, value: i64) -> f64 {
        let bottom = HEIGHT - FOOT;
        bottom - (bottom - TOP) * value as f64 / self.most as f64
    }

    fn middle(&self, i: usize) -> f64 {
        self.left + self.slot * (i as f64 + 0.5)
    }
}

/// Stacked columns, one for each label.
pub fn columns(room: Room, labels: &[String], series: &[Series]) -> Drawing {
    let of = |i: usize| series.iter().filter_map(|one| one.values[i]).sum::<i64>();
    let most = (0..labels.len()).map(of).max().unwrap_or(0);
    let mut plot = Plot::new(room, labels, most, 8.0);
    let width = (plot.slot * 0.66).min(64.0);
    for (i, label) in labels.iter().enumerate() {
        let mut below = 0;
        for one in series {
            let Some(value @ 1..) = one.values[i] else { continue };
            let (top, bottom) = (plot.y(below + value), plot.y(below));
            let class = format!("f-{}", one.colour);
            let at = (plot.middle(i) - width / 2.0, top);
            plot.drawing.rect(&class, at, (width, bottom - top), &format!("{label}: {value} {}", one.name));
            below += value;
        }
    }
    plot.drawing
}

/// One line for each series, broken where there was nothing to measure. The first is drawn through, the others broken.
pub fn lines(room: Room, labels: &[String], series: &[Series]) -> Drawing {
    let most = series.iter().flat_map(|one| one.values.iter().flatten()).max().copied().unwrap_or(0);
    let right = 64.0;
    let mut plot = Plot::new(room, labels, most, right);
    let mut told: Vec<f64> = Vec::new();
    for (nth, one) in series.iter().enumerate() {
        let dash = if nth == 0 { "" } else { " l-dash" };
        let points: Vec<_> = (0..labels.len()).map(|i| one.values[i].map(|value| (i, value))).collect();
        for run in points.split(Option::is_none).filter(|run| run.len() > 1) {
            let places: Vec<_> =
                run.iter().flatten().map(|(i, v)| format!("{:.1},{:.1}", plot.middle(*i), plot.y(*v))).collect();
            let places = places.join(" ");
            plot.drawing.put(format_args!(r#"<polyline class="l-{}{dash}" points="{places}"/>"#, one.colour));
        }
        for (i, value) in points.iter().flatten() {
            let (x, y, title) = (plot.middle(*i), plot.y(*value), escaped(&format!("{}: {value}", labels[*i])));
            plot.drawing.put(format_args!(
                r#"<circle class="f-{}" cx="{x:.1}" cy="{y:.1}" r="3"><title>{title}</title></circle>"#,
                one.colour
            ));
        }
        if let Some((i, value)) = points.iter().flatten().last() {
            // Two lines that end together have their words one above the other.
            let y = plot.y(*value) + 4.0;
            let y = told.iter().fold(y, |y, other| if (y - other).abs() < 14.0 { other + 14.0 } else { y });
            told.push(y);
            let x = plot.middle(*i) + 8.0;
            plot.drawing.text("strong", (x, y), Anchor::Start, &format!("{} {value}", one.name));
        }
    }
    plot.drawing
}

/// A bar that lies.
pub struct Bar {
    pub label: String,
    pub colour: &'static str,
    pub value: i64,
    /// What stands behind it.
    pub words: String,
    /// Where a broken line crosses it.
    pub mark: Option<i64>,
}

/// What the lengths of bars are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Count,
    /// Seconds, shown in minutes, hours or days.
    Seconds,
}

/// One bar for each row, the label before it; on a narrow page above it.
pub fn bars(room: Room, rows: &[Bar], unit: Unit) -> Drawing {
    const CHARACTER: f64 = 7.0;
    let longest = |of: fn(&Bar) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0) as f64;
    let words = longest(|row| &row.words) * CHARACTER + 16.0;
    let (left, pitch, above) = match room.is_narrow() {
        true => (0.0, 44.0, 18.0),
        false => (longest(|row| &row.label) * CHARACTER + 12.0, 32.0, 0.0),
    };
    let foot = if unit == Unit::Seconds { 26.0 } else { 4.0 };
    let height = 8.0 + pitch * rows.len() as f64 + foot;
    let most = rows.iter().map(|row| row.value.max(row.mark.unwrap_or(0))).max().unwrap_or(0).max(1);
    let (per_unit, name) = match (unit, most) {
        (Unit::Count, _) => (1, ""),
        (Unit::Seconds, ..7_200) => (60, " min"),
        (Unit::Seconds, ..172_800) => (3_600, " h"),
        (Unit::Seconds, _) => (86_400, " d"),
    };
    let (end, step) = scale((most + per_unit - 1) / per_unit);
    let length = (room.0 - left - words).max(60.0);
    let x = |value: i64| left + length * value as f64 / (end * per_unit) as f64;
    let mut drawing = Drawing::new(room.0, height);
    if unit == Unit::Seconds {
        for tick in (1..=end / step).map(|i| i * step) {
            drawing.line("grid", (x(tick * per_unit), 4.0), (x(tick * per_unit), height - foot));
            let at = (x(tick * per_unit), height - 8.0);
            drawing.text("num", at, Anchor::Middle, &format!("{tick}{name}"));
        }
    }
    if above == 0.0 {
        drawing.line("axis", (left, 4.0), (left, height - foot));
    }
    for (i, row) in rows.iter().enumerate() {
        let top = 8.0 + pitch * i as f64;
        let bar = top + above + 4.0;
        let label = if above == 0.0 { (left - 10.0, bar + 12.0) } else { (0.0, top + 12.0) };
        drawing.text("", label, if above == 0.0 { Anchor::End } else { Anchor::Start }, &row.label);
        let title = format!("{}: {}", row.label, row.words);
        let (from, to) = (x(0), x(row.value));
        drawing.rect(&format!("f-{}", row.colour), (from, bar), ((to - from).max(1.0), 15.0), &title);
        if let Some(mark) = row.mark {
            drawing.line("l-stop", (x(mark), bar - 5.0), (x(mark), bar + 20.0));
        }
        let behind = to.max(row.mark.map_or(0.0, x)) + 8.0;
        drawing.text("strong", (behind, bar + 12.0), Anchor::Start, &row.words);
    }
    drawing
}

/// A heading, a sentence, the drawing, and the table of its numbers.
#[component]
pub fn Chart(
    /// Unique on the page.
    id: &'static str,
    heading: &'static str,
    /// What is drawn, in a sentence.
    words: String,
    /// What the drawing shows, for those who cannot see it.
    describes: String,
    #[prop(default = Vec::new())] series: Vec<(&'static str, &'static str)>,
    draw: Box<dyn Fn(Room) -> Drawing>,
    #[prop(default = Span::Half)] span: Span,
    heads: Vec<&'static str>,
    rows: Vec<Vec<AnyView>>,
    /// Address and words.
    #[prop(optional)]
    way_on: Option<(&'static str, &'static str)>,
) -> impl IntoView {
    let room = if span == Span::Whole { WHOLE } else { HALF };
    let named = format!("c-{id}");
    let keys: Vec<_> = series
        .into_iter()
        .map(|(colour, name)| view! { <span><i class=format!("k k-{colour}")></i>{name}</span> })
        .collect();
    let legend = (!keys.is_empty()).then(|| view! { <p class="legend">{keys}</p> });
    let class = if span == Span::Whole { "chart chart-wide" } else { "chart" };
    let head: Vec<_> = heads
        .iter()
        .enumerate()
        .map(|(i, words)| view! { <th scope="col" class=(i > 0).then_some("num")>{*words}</th> })
        .collect();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|cells| {
            let cells = cells.into_iter().enumerate();
            let cells: Vec<_> =
                cells.map(|(i, cell)| view! { <td class=(i > 0).then_some("num")>{cell}</td> }).collect();
            view! { <tr>{cells}</tr> }
        })
        .collect();
    view! {
        <figure class=class id=id>
            <figcaption>
                <h2 id=named.clone()>{heading}</h2>
                <p>{words}</p>
                {legend}
                {way_on.map(|(address, words)| view! { <p><a href=address>{words}</a></p> })}
            </figcaption>
            <div class="drawn-wide">{draw(room).view(&named, "wide", &describes)}</div>
            <div class="drawn-narrow">{draw(PHONE).view(&named, "narrow", &describes)}</div>
            <details>
                <summary>"Table"</summary>
                <div class="scroll-x" role="region" tabindex="0" aria-label=format!("{heading}, table")>
                    <table>
                        <thead><tr>{head}</tr></thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            </details>
        </figure>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_of_round_numbers_and_holds_the_most() {
        for (most, scaled) in [(0, (1, 1)), (1, (1, 1)), (4, (4, 1)), (5, (6, 2)), (15, (15, 5)), (58, (60, 20))] {
            assert_eq!(scale(most), scaled, "{most}");
        }
    }

    #[test]
    fn what_others_wrote_is_text_in_a_drawing() {
        let row = Bar { label: "</text><script>".into(), colour: "ink", value: 1, words: "a & b".into(), mark: None };
        let Drawing { marks, .. } = bars(HALF, &[row], Unit::Count);
        assert!(
            !marks.contains("<script>") && marks.contains("&lt;script&gt;") && marks.contains("a &amp; b"),
            "{marks}"
        );
    }

    #[test]
    fn a_line_is_broken_where_nothing_was_measured() {
        let labels: Vec<_> = (0..5).map(|i| i.to_string()).collect();
        let values = vec![Some(1), Some(2), None, Some(3), None];
        let Drawing { marks, .. } = lines(HALF, &labels, &[Series { name: "p95", colour: "doubt", values }]);
        assert_eq!((marks.matches("<polyline").count(), marks.matches("<circle").count()), (1, 3), "{marks}");
    }
}
