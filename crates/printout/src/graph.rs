//! A time series as a graph of text.
//!
//! ```text
//!              -2                                                  2
//! hh:mm:ss.ms  |___________________________________________________|
//! 10:39:49.300 *                         .                         | -2
//! 10:39:49.400 |                         *                         | 0
//! 10:39:49.500 |                         .                         | -
//! 10:39:49.600 |                         .                         * 2
//!              v___________________________________________________v
//!              -2                                                  2
//! ```

use jiff::tz::TimeZone;

use crate::clock;
use crate::datum::append;
use crate::series::Series;

/// The width of the graph with its borders.
const WIDTH: usize = 53;

/// Appends the graph; what a series without values shows has no line end, as in bpftrace.
pub(crate) fn write(series: &Series, zone: &TimeZone, out: &mut Vec<u8>) {
    let values = || series.points.iter().filter_map(|point| point.value);
    let (Some(mut least), Some(mut most)) = (values().min(), values().max()) else {
        return out.extend_from_slice(b"<no data>");
    };
    if least == most {
        // A single value lies in the middle, unless its type has none below or above.
        let (bottom, top) = match series.signed {
            true => (i64::MIN.into(), i64::MAX.into()),
            false => (0, i128::from(u64::MAX)),
        };
        least -= i128::from(least > bottom);
        most += i128::from(most < top);
    }
    let unit = Unit::of(series);
    let margin = 8 + if unit.digits > 0 { 1 + unit.digits } else { 0 };
    let bounds = format!("{:margin$} {least:<21}{most:>32}\n", "");

    out.extend_from_slice(bounds.as_bytes());
    let mut title = String::from("hh:mm:ss");
    if unit.digits > 0 {
        title = format!("{title}.{}", unit.name);
    }
    // The title is filled up by its bytes, of which the sign for "micro" has two.
    let fill = (margin + 1).saturating_sub(title.len());
    append(out, format_args!("{title}{:fill$}|{:_<2$}|\n", "", "", WIDTH - 2));

    // In single precision, as bpftrace calculates it.
    let place =
        |width: usize, value: i128| (width as f32 * (value - least) as f32 / (most - least) as f32) as usize;
    let zero = if least < 0 && most > 0 { place(WIDTH, 0) } else { 0 };
    for point in &series.points {
        let mut line = [b' '; WIDTH];
        line[0] = b'|';
        line[WIDTH - 1] = b'|';
        if zero > 0 {
            line[zero.min(WIDTH - 1)] = b'.';
        }
        if let Some(value) = point.value {
            line[place(WIDTH - 1, value).min(WIDTH - 1)] = b'*';
        }
        out.extend_from_slice(&time(point.time, "%H:%M:%S", unit.digits, zone));
        out.push(b' ');
        out.extend_from_slice(&line);
        match point.value {
            Some(value) => append(out, format_args!(" {value}\n")),
            None => out.extend_from_slice(b" -\n"),
        }
    }
    append(out, format_args!("{:margin$} v{:_<2$}v\n", "", "", WIDTH - 2));
    out.extend_from_slice(bounds.as_bytes());
}

/// A time with as many digits behind its seconds.
pub(crate) fn time(time: i128, format: &str, digits: usize, zone: &TimeZone) -> Vec<u8> {
    let mut out = clock::formatted(format.as_bytes(), time, zone).unwrap_or_else(|| b"(?)".into());
    if digits > 0 {
        let nanoseconds = format!("{:09}", time.rem_euclid(1_000_000_000));
        append(&mut out, format_args!(".{}", &nanoseconds[..digits.min(9)]));
    }
    out
}

/// The unit that tells the intervals of a series apart.
struct Unit {
    name: &'static str,
    /// Its digits behind seconds.
    digits: usize,
}

impl Unit {
    fn of(series: &Series) -> Unit {
        let length = match &series.points[..] {
            [first, others @ .., last] => (last.time - first.time) / (others.len() as i128 + 1),
            // bpftrace also takes the interval of a single value to be 0.
            _ => 0,
        };
        match length {
            1_000_000_000.. => Unit { name: "s", digits: 0 },
            1_000_000.. => Unit { name: "ms", digits: 3 },
            1_000.. => Unit { name: "μs", digits: 6 },
            _ => Unit { name: "ns", digits: 9 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Point;

    fn shown(start: i128, interval: i128, values: &[Option<i128>], signed: bool) -> String {
        let points = values.iter().enumerate();
        let points =
            points.map(|(index, value)| Point { time: start + index as i128 * interval, value: *value });
        let mut out = Vec::new();
        write(&Series { points: points.collect(), signed }, &TimeZone::UTC, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    /// The second example of bpftrace's documentation, shortened.
    #[test]
    fn values_lie_between_the_least_and_the_greatest() {
        let ms = 1_000_000;
        let start = 38_389_300 * ms;
        let values = [Some(-5), Some(-4), Some(-3), Some(-1), Some(0), None, Some(1), Some(4), Some(5)];
        let expected = "             -5                                                  5
hh:mm:ss.ms  |___________________________________________________|
10:39:49.300 *                         .                         | -5
10:39:49.400 |    *                    .                         | -4
10:39:49.500 |         *               .                         | -3
10:39:49.600 |                   *     .                         | -1
10:39:49.700 |                         *                         | 0
10:39:49.800 |                         .                         | -
10:39:49.900 |                         .    *                    | 1
10:39:50.000 |                         .                   *     | 4
10:39:50.100 |                         .                         * 5
             v___________________________________________________v
             -5                                                  5
";
        assert_eq!(shown(start, 100 * ms, &values, true), expected);
    }

    #[test]
    fn equal_values_lie_in_the_middle() {
        let expected = "         8                                                  10
hh:mm:ss |___________________________________________________|
00:00:00 |                         *                         | 9
00:00:01 |                         *                         | 9
         v___________________________________________________v
         8                                                  10
";
        assert_eq!(shown(0, 1_000_000_000, &[Some(9), Some(9)], true), expected);
        let zero = shown(0, 1_000_000_000, &[Some(0), Some(0)], false);
        assert!(zero.contains("00:00:01 *                  "), "{zero}");
    }

    #[test]
    fn extremes_and_nothing_are_shown() {
        let values = [Some(i64::MIN.into()), Some(i64::MAX.into()), Some(u64::MAX.into())];
        assert_eq!(shown(i128::from(i64::MIN), 1000, &values, true).lines().count(), 7);
        assert_eq!(shown(0, 1, &[Some(0)], false).lines().nth(1).map(str::len), Some(8 + 1 + 9 + 1 + 53));
        assert_eq!(shown(0, 1, &[], false), "<no data>");
    }
}
