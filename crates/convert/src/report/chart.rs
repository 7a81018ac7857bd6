//! Draws charts as SVG within a page; the page's style sheet has the colours, for light and dark.

use std::fmt::Write;

use super::histogram::Histogram;
use super::numbers::{count_of, duration, grouped, rate};
use super::timeline::{Axis, PARTS, Timeline};
use printable::markup;

/// The size of a large chart, in SVG units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
/// Space for the labels of the vertical and the horizontal axis.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 28.0;
const TOP: f64 = 12.0;

/// A part of a stacked chart: its name, and its counts over time.
pub(super) type Series<'a> = (String, &'a Timeline);

/// The step of a scale: 1, 2 or 5 times a power of ten, so that about four steps reach `greatest`.
fn step(greatest: f64) -> f64 {
    let rough = (greatest / 4.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}

/// A label of a scale with round steps, without trailing zeros.
fn tick(value: f64) -> String {
    let shown = rate(value);
    let (number, unit) = shown.split_once(' ').unwrap_or((&shown, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}").trim_end().to_owned()
}

/// Draws horizontal lines with labels, up to `greatest`; returns the value at the top.
fn grid(out: &mut String, greatest: f64) -> f64 {
    let step = step(greatest);
    let top = (greatest / step).ceil().max(1.0) * step;
    let mut value = 0.0;
    while value <= top * 1.001 {
        let y = TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
        let label = tick(value);
        let class = if value == 0.0 { "axis" } else { "grid" };
        line(out, class, y, &label);
        value += step;
    }
    top
}

/// The least count of a logarithmic axis: a count of 1 is higher.
const LEAST: f64 = 0.5;

/// The height of a count on a logarithmic axis that ends at `top`.
fn log_height(count: f64, top: f64) -> f64 {
    (count.max(LEAST) / LEAST).log10() / (top / LEAST).log10() * (HEIGHT - TOP - BOTTOM)
}

/// Draws horizontal lines at powers of ten, with labels, up to `greatest`; returns the value at the
/// top.
fn log_grid(out: &mut String, greatest: u64) -> f64 {
    let powers = (greatest.max(1) as f64).log10().ceil().max(1.0) as i32;
    let top = 10_f64.powi(powers);
    // At most six labels.
    let every = (powers / 6 + 1) as usize;
    line(out, "axis", HEIGHT - BOTTOM, "0");
    for value in (0..=powers).step_by(every).map(|power| 10_f64.powi(power)) {
        line(out, "grid", HEIGHT - BOTTOM - log_height(value, top), &tick(value));
    }
    top
}

/// Draws a horizontal line with a label.
fn line(out: &mut String, class: &str, y: f64, label: &str) {
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        LEFT - 8.0,
        y + 4.0
    );
}

fn begin(out: &mut String, label: &str) {
    let _ = write!(
        out,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        markup(label)
    );
}

/// Draws a rectangle of a series, with a tooltip.
fn bar(out: &mut String, class: &str, [x, y, width, height]: [f64; 4], title: &str) {
    // Keep small values visible.
    let (y, height) = if height < 1.5 { (y + height - 1.5, 1.5) } else { (y, height) };
    let _ = write!(
        out,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
        markup(title)
    );
}

/// Records per second over time, of several stacked series.
pub(super) fn over_time(series: &[Series<'_>], axis: Axis, first: u64) -> String {
    let mut out = String::new();
    begin(&mut out, "records per second over time");
    let seconds = axis.part as f64 / 1e9;
    let sums: Vec<u64> =
        (0..PARTS).map(|part| series.iter().map(|(_, timeline)| timeline.0[part]).sum()).collect();
    let greatest = sums.iter().copied().max().unwrap_or(0) as f64 / seconds;
    let top = grid(&mut out, greatest);
    let (width, height) = ((WIDTH - LEFT) / PARTS as f64, HEIGHT - TOP - BOTTOM);
    for part in 0..PARTS {
        let x = LEFT + part as f64 * width;
        let mut y = HEIGHT - BOTTOM;
        let since = axis.start.saturating_sub(first).saturating_add(axis.part.saturating_mul(part as u64));
        for (number, (name, timeline)) in series.iter().enumerate() {
            let count = timeline.0[part];
            if count == 0 {
                continue;
            }
            let share = count as f64 / seconds / top * height;
            y -= share;
            let title = format!(
                "{name}\n+{}: {}, {}/s",
                duration(since),
                count_of(count, "record"),
                rate(count as f64 / seconds)
            );
            bar(&mut out, &format!("s{number}"), [x, y, width - 0.8, share], &title);
        }
    }
    for tick in 0..=4 {
        let x = LEFT + (WIDTH - LEFT) * f64::from(tick) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"][tick as usize];
        // A trace may hold any times: all parts of an axis together may exceed 64 bits of
        // nanoseconds.
        let passed = u128::from(axis.part) * PARTS as u128 * tick as u128 / 4;
        let since = u128::from(axis.start.saturating_sub(first)) + passed;
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">+{}</text>",
            HEIGHT - 8.0,
            duration(since)
        );
    }
    out.push_str("</svg>");
    out
}

/// A histogram of times in powers of two, with marks at the median and at high percentiles. Both
/// axes are logarithmic: the few slow calls are seen beside the many fast ones.
pub(super) fn lengths(times: &Histogram, name: &str) -> String {
    let mut out = String::new();
    begin(&mut out, &format!("times of {name}"));
    let powers = times.powers();
    let greatest = powers.iter().map(|power| power.count).max().unwrap_or(0);
    let top = log_grid(&mut out, greatest);
    let width = (WIDTH - LEFT) / powers.len().max(1) as f64;
    let column = width.min(72.0);
    for (place, power) in powers.iter().enumerate() {
        let x = LEFT + place as f64 * column;
        let share = log_height(power.count as f64, top);
        if power.count > 0 {
            let title = format!(
                "{} to {}: {}, {:.2}%",
                duration(power.from),
                duration(power.to()),
                grouped(power.count),
                super::numbers::percent(power.count, times.count)
            );
            bar(&mut out, "s0", [x + 1.0, HEIGHT - BOTTOM - share, column - 2.0, share], &title);
        }
        // As many labels as there is room for.
        if place % (56.0 / column).ceil().max(1.0) as usize == 0 {
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                HEIGHT - 8.0,
                duration(power.from)
            );
        }
    }
    let place = |value: u64| {
        let at = powers.iter().rposition(|power| power.from <= value).unwrap_or(0);
        let from = powers.get(at).map_or(0, |power| power.from).max(1);
        LEFT + column * (at as f64 + (value.max(1) as f64 / from as f64).log2().clamp(0.0, 1.0))
    };
    let mut row = 0.0;
    for (percent, label) in [(50.0, "median"), (99.0, "99%"), (99.9, "99.9%")] {
        let value = times.percentile(percent);
        let x = place(value);
        let (anchor, shift) = if x > WIDTH - 130.0 { ("end", -5.0) } else { ("start", 5.0) };
        let _ = write!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label} {}</text>",
            HEIGHT - BOTTOM,
            x + shift,
            TOP + 10.0 + row,
            duration(value)
        );
        // Labels of marks that are close together are placed one below the other.
        row += 16.0;
    }
    out.push_str("</svg>");
    out
}

/// A small chart of counts over time, for a table row.
pub(super) fn spark(timeline: &Timeline) -> String {
    let greatest = timeline.greatest().max(1) as f64;
    let mut path = String::from("M0 24");
    for (part, &count) in timeline.0.iter().enumerate() {
        let height = if count == 0 { 0.0 } else { (count as f64 / greatest * 22.0).max(1.0) };
        let _ = write!(path, "V{:.1}H{}", 24.0 - height, part + 1);
    }
    path.push_str("V24Z");
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 {PARTS} 24\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path d=\"{path}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_times_can_be_shown() {
        for (start, end, first) in [(u64::MAX - 10, u64::MAX, 0), (0, u64::MAX, 0), (u64::MAX, 0, 0)] {
            let mut timeline = Timeline::default();
            timeline.0[119] = 1;
            let chart = over_time(&[("all".to_owned(), &timeline)], Axis::new(start, end), first);
            assert!(chart.ends_with("</svg>") && chart.contains("+18446744074 s"), "{chart}");
        }
    }

    #[test]
    fn the_few_are_seen_beside_the_many() {
        let mut times = Histogram::default();
        (0..100_000).for_each(|_| times.add(1000));
        times.add(1_000_000);
        let chart = lengths(&times, "f");
        let heights: Vec<f64> = chart
            .split("<rect ")
            .skip(1)
            .filter_map(|bar| bar.split_once(" height=\"")?.1.split_once('"')?.0.parse().ok())
            .collect();
        assert_eq!(heights.len(), 2, "{chart}");
        // On a linear axis the one call would be a pixel high; the axis has its powers of ten.
        assert!(heights[0] > 150.0 && heights[1] > 8.0 && heights[1] < 20.0, "{heights:?}");
        let labels = ["1", "10", "100", "1 k", "10 k", "100 k"];
        assert!(labels.iter().all(|label| chart.contains(&format!(">{label}</text>"))), "{chart}");
        times.add(u64::MAX);
        assert!(lengths(&times, "f").ends_with("</svg>"));
    }

    #[test]
    fn scales_have_few_round_steps() {
        for (greatest, expected) in [(4.0, 1.0), (7.0, 2.0), (100.0, 50.0), (1_234_567.0, 500_000.0)] {
            assert_eq!(step(greatest), expected);
        }
        assert!(step(0.0) > 0.0);
        assert_eq!([0.0, 2.0, 500.0, 20_000.0, 1_500_000.0].map(tick), ["0", "2", "500", "20 k", "1.5 M"]);
    }
}
