//! A line chart over time, as SVG. Pure: values in, markup out.
//!
//! Where there is no sample there is a gap: a line drawn across it would be invented.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 38.0;
const RIGHT: f64 = 6.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 20.0;

/// The data of a chart.
pub struct Chart<'a> {
    /// The oldest first.
    pub values: &'a [Option<f64>],
    /// The time of each value.
    pub times: &'a [Timestamp],
    /// The right end of the time axis.
    pub now: Timestamp,
    /// The length of the time axis.
    pub minutes: u32,
    /// A description for screen readers.
    pub label: &'a str,
}

impl Chart<'_> {
    pub fn svg(&self) -> Markup {
        let top = nice_top(self.values.iter().flatten().copied().fold(0.0, f64::max));
        let parts = segments(&self.points(), top);
        let floor = HEIGHT - BOTTOM;
        html! {
            svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.label) {
                @for share in [0.0, 0.5, 1.0] {
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y(share * top, top)) y2=(y(share * top, top)) {}
                    text.axis x=(LEFT - 5.0) y=(y(share * top, top) + 3.5) text-anchor="end" {
                        (short(share * top))
                    }
                }
                @for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
                    text.axis x=(x(share)) y=(HEIGHT - 5.0) text-anchor=(anchor) {
                        (ago(f64::from(self.minutes) * (1.0 - share)))
                    }
                }
                @for part in &parts {
                    path.area d=(area(part, floor)) {}
                    path.line d=(line(part)) {}
                    @if let [(at, value)] = part[..] { circle.dot cx=(at) cy=(value) r="2" {} }
                }
                (self.hints())
            }
        }
    }

    /// Returns the horizontal place of each value, and the value.
    fn points(&self) -> Vec<(f64, Option<f64>)> {
        let share = |at: &Timestamp| {
            let back = self.now.duration_since(*at).as_secs_f64() / 60.0;
            (1.0 - back / f64::from(self.minutes.max(1))).clamp(0.0, 1.0)
        };
        self.times.iter().zip(self.values).map(|(at, value)| (x(share(at)), *value)).collect()
    }

    /// Tooltips with the time and the number under the pointer, without a script.
    fn hints(&self) -> Markup {
        let wide = (WIDTH - LEFT - RIGHT) / self.values.len().max(1) as f64;
        // Within a day each time of day occurs once.
        let clock = if self.minutes > 1440 { "%Y-%m-%d %H:%M UTC" } else { "%H:%M UTC" };
        html! {
            @for ((place, value), at) in self.points().iter().zip(self.times) {
                rect.hint x=(round(place - wide / 2.0)) y=(TOP) width=(round(wide)) height=(HEIGHT - TOP - BOTTOM) {
                    title {
                        (at.strftime(clock)) ": "
                        @match value { Some(value) => (exact(*value)), None => "not measured" }
                    }
                }
            }
        }
    }
}

fn x(share: f64) -> f64 {
    round(LEFT + share * (WIDTH - LEFT - RIGHT))
}

fn y(value: f64, top: f64) -> f64 {
    round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Returns the parts between the gaps, as coordinates.
fn segments(points: &[(f64, Option<f64>)], top: f64) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (place, value) in points {
        match (value, parts.last_mut()) {
            (Some(value), Some(part)) => part.push((*place, y(*value, top))),
            (None, Some(part)) if !part.is_empty() => parts.push(Vec::new()),
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn line(part: &[(f64, f64)]) -> String {
    let places: Vec<String> = part.iter().map(|(x, y)| format!("{x} {y}")).collect();
    format!("M{}", places.join("L"))
}

fn area(part: &[(f64, f64)], floor: f64) -> String {
    match (part.first(), part.last()) {
        (Some((first, _)), Some((last, _))) => {
            format!("{}L{last} {floor}L{first} {floor}Z", line(part))
        }
        _ => String::new(),
    }
}

/// Returns the next round number: 1, 2 or 5 and zeros.
fn nice_top(highest: f64) -> f64 {
    if highest <= 2.0 {
        return 2.0;
    }
    let unit = 10f64.powf(highest.log10().floor());
    let top = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|top| *top >= highest);
    top.unwrap_or(highest)
}

/// Formats a number in a few characters.
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "k"),
        value => (value, ""),
    };
    format!("{}{unit}", round(value))
}

/// Formats a number with its thousands separated.
pub fn exact(value: f64) -> String {
    if value.fract().abs() > 0.05 && value < 100.0 {
        return round(value).to_string();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn ago(minutes: f64) -> String {
    match minutes.round() as u64 {
        0 => "now".to_owned(),
        minutes => {
            format!("{} ago", crate::text::print_duration(Duration::from_secs(60 * minutes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_at_missing_samples() {
        let points =
            [(1.0, Some(1.0)), (2.0, Some(2.0)), (3.0, None), (4.0, None), (5.0, Some(0.0))];
        let parts = segments(&points, 2.0);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0], [(1.0, 69.0), (2.0, 8.0)]);
        assert_eq!(parts[1], [(5.0, 130.0)]);
        assert_eq!(segments(&[(1.0, None), (2.0, None)], 2.0), Vec::<Vec<(f64, f64)>>::new());
        assert_eq!(segments(&[], 2.0).len(), 0);
    }

    #[test]
    fn scale_is_round_and_fits_the_highest_value() {
        for (highest, top) in [
            (0.0, 2.0),
            (2.0, 2.0),
            (3.0, 5.0),
            (5.0, 5.0),
            (21.0, 50.0),
            (100.0, 100.0),
            (101.0, 200.0),
        ] {
            assert_eq!(nice_top(highest), top, "{highest}");
        }
    }

    #[test]
    fn chart_area_ends_at_the_axis() {
        let part = [(1.0, 2.0), (3.0, 4.0)];
        assert_eq!(line(&part), "M1 2L3 4");
        assert_eq!(area(&part, 9.0), "M1 2L3 4L3 9L1 9Z");
    }

    #[test]
    fn axis_numbers_are_short_and_tooltips_exact() {
        assert_eq!(
            [0.0, 0.5, 999.0, 9999.0, 12_345.0, 2e6].map(short),
            ["0", "0.5", "999", "9999", "12.3k", "2M"]
        );
        assert_eq!(
            [0.0, 1234.0, 1_234_567.0].map(exact),
            ["0", "1\u{202f}234", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(exact(1.25), "1.3");
    }

    #[test]
    fn chart_has_a_label_and_no_inline_style() {
        // The 29 full minutes before 10:30.
        let now: Timestamp = "2026-05-01T10:30:00Z".parse().unwrap();
        let times: Vec<Timestamp> =
            (1..30).map(|minute| now - jiff::SignedDuration::from_mins(30 - minute)).collect();
        let values: Vec<Option<f64>> = (1..30).map(|n| Some(f64::from(n))).collect();
        let label = "Jobs <in> \"queues\"";
        let chart = Chart { values: &values, times: &times, now, minutes: 30, label };
        let svg = chart.svg().into_string();
        for (minute, n) in (1..30).zip(1..30) {
            assert!(svg.contains(&format!(">10:{minute:02} UTC: {n}<")), "{minute}: {svg}");
        }
        assert_eq!(chart.points()[14].0, x(0.5), "10:15 is in the middle of the axis");
        assert!(svg.contains("aria-label=\"Jobs &lt;in&gt; &quot;queues&quot;\""), "{svg}");
        assert!(!svg.contains("style=") && !svg.contains("<script"));
        assert_eq!(svg.matches("<rect").count(), 29);
        assert!(svg.contains("30m ago") && svg.contains(">now<"));
    }
}
