//! Draws plots as SVG, and tables, for self-contained pages. Colours come from the page's style sheet.

use std::fmt::Write as _;

/// The style sheet of a page with plots.
pub(crate) const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1d2433;--paper:#fff;--faint:#d9dee8;
--c0:#3366cc;--c1:#dc6b19;--c2:#2a9d5c;--c3:#a23bb0;--c4:#c0392b;--c5:#128a9c;--c6:#8a6d1b;--c7:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9f0;--paper:#14171f;--faint:#333a4a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--faint);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}small{opacity:.7}
svg{max-width:760px;width:100%;display:block;margin:1rem 0}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .label{text-anchor:end}svg .place{text-anchor:middle}svg .axis,svg .grid{stroke:var(--faint);fill:none}
svg .interval{stroke:var(--ink);fill:none;opacity:.7}svg polyline{fill:none;stroke-width:2}
svg .c0{fill:var(--c0)}svg .c1{fill:var(--c1)}svg .c2{fill:var(--c2)}svg .c3{fill:var(--c3)}
svg .c4{fill:var(--c4)}svg .c5{fill:var(--c5)}svg .c6{fill:var(--c6)}svg .c7{fill:var(--c7)}
svg .s0{stroke:var(--c0)}svg .s1{stroke:var(--c1)}svg .s2{stroke:var(--c2)}svg .s3{stroke:var(--c3)}
svg .s4{stroke:var(--c4)}svg .s5{stroke:var(--c5)}svg .s6{stroke:var(--c6)}svg .s7{stroke:var(--c7)}
";

/// Number of different colours for lines or bars.
pub(crate) const COLOURS: usize = 8;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 18.0;
const GAP: f64 = 8.0;
/// Height of a line plot.
const HEIGHT: f64 = 300.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;
const MARGIN: f64 = 48.0;

/// A bar, with a confidence interval if `interval` is set.
pub(crate) struct Bar {
    pub label: String,
    pub value: f64,
    pub interval: Option<(f64, f64)>,
    /// The label at the bar's end.
    pub text: String,
    /// Number of the colour; bars of the same group share it.
    pub colour: usize,
}

/// A line. All lines of a plot have the same x positions.
pub(crate) struct Line {
    pub label: String,
    pub values: Vec<f64>,
}

/// Escapes text for HTML and SVG, because names of tools and message sets may contain any characters.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character if character.is_control() && character != '\n' => {}
            character => escaped.push(character),
        }
    }
    escaped
}

/// Draws horizontal bars, one per row. Positive values point to the right, and negative values to the left.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let ends = |bar: &Bar| [bar.value, bar.interval.map_or(bar.value, |(low, _)| low), bar.interval.map_or(bar.value, |(_, high)| high)];
    let least = bars.iter().flat_map(ends).fold(0.0, f64::min);
    let most = bars.iter().flat_map(ends).fold(0.0, f64::max);
    let span = if most - least > 0.0 { most - least } else { 1.0 };
    let x = |value: f64| LEFT + (value - least) / span * (WIDTH - LEFT - RIGHT);
    let height = bars.len() as f64 * (BAR + GAP) + GAP;
    let mut out = open(title, height);
    for (at, bar) in bars.iter().enumerate() {
        let top = GAP + at as f64 * (BAR + GAP);
        let middle = top + BAR / 2.0;
        let (from, to) = (x(bar.value.min(0.0)), x(bar.value.max(0.0)));
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{}</text><rect class=\"c{}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            LEFT - 8.0,
            middle + 4.0,
            escape(&shortened(&bar.label)),
            bar.colour % COLOURS,
            (to - from).max(0.5),
        );
        let mut end = to;
        if let Some((low, high)) = bar.interval {
            let (low, high) = (x(low), x(high));
            let _ = write!(
                out,
                "<path class=\"interval\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>",
                middle - 4.0,
                middle - 4.0
            );
            end = end.max(high);
        }
        let _ = write!(out, "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", end + 6.0, middle + 4.0, escape(&bar.text));
    }
    let _ = write!(out, "<path class=\"axis\" d=\"M{:.1} 0V{height:.1}\"/></svg>", x(0.0));
    out
}

/// A table whose cells contain HTML.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = "<table><tr>".to_owned();
    for head in heads {
        let _ = write!(out, "<th>{}</th>", escape(head));
    }
    out.push_str("</tr>");
    for row in rows {
        let _ = write!(out, "<tr><td>{}</td></tr>", row.join("</td><td>"));
    }
    out + "</table>"
}

/// Draws lines with values between 0 and 1 over evenly spaced positions.
pub(crate) fn lines(title: &str, places: &[String], lines: &[Line]) -> String {
    let step = (WIDTH - 2.0 * MARGIN) / (places.len().max(2) - 1) as f64;
    let x = |at: usize| MARGIN + at as f64 * step;
    let y = |value: f64| TOP + (1.0 - value) * (HEIGHT - TOP - BOTTOM);
    let columns = 3;
    let legend = lines.len().div_ceil(columns) as f64 * 18.0;
    let mut out = open(title, HEIGHT + legend);
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(tick);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{MARGIN} {at:.1}H{:.1}\"/><text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{tick}</text>",
            WIDTH - MARGIN,
            MARGIN - 6.0,
            at + 4.0
        );
    }
    for (at, place) in places.iter().enumerate() {
        let _ = write!(out, "<text class=\"place\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", x(at), HEIGHT - BOTTOM + 18.0, escape(place));
    }
    for (number, line) in lines.iter().enumerate() {
        let colour = number % COLOURS;
        let points: Vec<String> = line.values.iter().enumerate().map(|(at, &value)| format!("{:.1},{:.1}", x(at), y(value))).collect();
        let _ = write!(out, "<polyline class=\"s{colour}\" points=\"{}\"/>", points.join(" "));
        for (at, &value) in line.values.iter().enumerate() {
            let _ = write!(
                out,
                "<circle class=\"c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{} {}: {value:.3}</title></circle>",
                x(at),
                y(value),
                escape(&line.label),
                places.get(at).map(|place| escape(place)).unwrap_or_default()
            );
        }
        let (left, top) = (MARGIN + (number % columns) as f64 * 220.0, HEIGHT + (number / columns) as f64 * 18.0);
        let _ = write!(
            out,
            "<rect class=\"c{colour}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/><text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            top - 11.0,
            left + 18.0,
            top,
            escape(&shortened(&line.label))
        );
    }
    out.push_str("</svg>");
    out
}

fn open(title: &str, height: f64) -> String {
    format!("<svg role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\"><title>{}</title>", escape(title))
}

fn shortened(label: &str) -> String {
    const LONGEST: usize = 28;
    if label.chars().count() <= LONGEST {
        return label.to_owned();
    }
    label.chars().take(LONGEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{Bar, Line, bars, escape, lines};

    #[test]
    fn names_stay_text() {
        assert_eq!(escape("<script>'\"&\u{7}"), "&lt;script&gt;&#39;&quot;&amp;");
        let bar = |label: &str, value: f64, interval| Bar { label: label.into(), value, interval, text: "<b>".into(), colour: 9 };
        let plot = bars("<t>", &[bar("<i>", 0.5, Some((0.4, 0.6))), bar("x", -0.25, None)]);
        assert!(plot.contains("&lt;i&gt;") && plot.contains("&lt;b&gt;") && plot.contains("&lt;t&gt;") && !plot.contains("<i>"), "{plot}");
        let plot = lines("t", &["1".into(), "<5>".into()], &[Line { label: "</svg>".into(), values: vec![0.0, 1.0] }]);
        assert_eq!(plot.matches("</svg>").count(), 1, "{plot}");
        assert_eq!(plot.matches("<circle").count(), 2);
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |value| Bar { label: String::new(), value, interval: None, text: String::new(), colour: 0 };
        let plot = bars("t", &[bar(1.0), bar(0.5)]);
        let widths: Vec<f64> = plot
            .split("<rect")
            .skip(1)
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
    }
}
