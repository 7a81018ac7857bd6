//! Prometheus' text format, version 0.0.4.
//!
//! ```text
//! # HELP dprobes_map_bytes @bytes: hist() of the script.
//! # TYPE dprobes_map_bytes histogram
//! dprobes_map_bytes_bucket{comm="ls",le="0"} 0
//! dprobes_map_bytes_bucket{comm="ls",le="1"} 2         how many numbers were at most 1
//! dprobes_map_bytes_bucket{comm="ls",le="3"} 5
//! dprobes_map_bytes_bucket{comm="ls",le="+Inf"} 5
//! dprobes_map_bytes_sum{comm="ls"} 9.5
//! dprobes_map_bytes_count{comm="ls"} 5
//! ```
//!
//! In a help text, `\` and the end of a line are escaped; in a label's value, `"` too.

use std::fmt::{Display, Write};

use crate::model::{Family, Kind, Series, Snapshot, Value};

/// A snapshot as text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for Family { name, help, kind, series } in &snapshot.families {
        let (suffix, word) = match kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Summary { .. } => ("", "summary"),
            Kind::Histogram(_) => ("", "histogram"),
        };
        let name = format!("{name}{suffix}");
        out.push_str(&format!("# HELP {name} "));
        escape(help, false, &mut out);
        out.push_str(&format!("\n# TYPE {name} {word}\n"));
        series.iter().for_each(|series| write(&name, kind, series, &mut out));
    }
    out
}

/// Appends the lines of a series.
fn write(name: &str, kind: &Kind, series: &Series, out: &mut String) {
    let labels = &series.labels;
    match &series.value {
        Value::Number(value) => sample(name, "", labels, None, value, out),
        Value::Summary { count, sum } => {
            sample(name, "_sum", labels, None, sum, out);
            sample(name, "_count", labels, None, count, out);
        }
        Value::Histogram { counts, sum } => {
            let Kind::Histogram(bounds) = kind else { return };
            let mut below: u64 = 0;
            for (bound, count) in bounds.iter().zip(counts) {
                below = below.saturating_add(*count);
                sample(name, "_bucket", labels, Some(&bound.to_string()), &below, out);
            }
            let all = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            sample(name, "_bucket", labels, Some("+Inf"), &all, out);
            sample(name, "_sum", labels, None, sum, out);
            sample(name, "_count", labels, None, &all, out);
        }
    }
}

/// Appends a line.
fn sample(
    name: &str,
    suffix: &str,
    labels: &[(String, String)],
    bound: Option<&str>,
    value: &dyn Display,
    out: &mut String,
) {
    out.push_str(name);
    out.push_str(suffix);
    let labels = labels.iter().map(|(name, value)| (&**name, &**value)).chain(bound.map(|le| ("le", le)));
    let mut open = '{';
    for (name, value) in labels {
        out.push(open);
        out.push_str(name);
        out.push_str("=\"");
        escape(value, true, out);
        out.push('"');
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

/// Appends a text with its escapes.
fn escape(text: &str, quotes: bool, out: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Builder;

    /// A line of the format, read by its definition: a name, labels, a value.
    type Line = (String, Vec<(String, String)>, f64);

    /// A name at the beginning of a text, and what is behind it.
    fn name(text: &str) -> (String, &str) {
        let end = text.find(|each: char| !(each.is_ascii_alphanumeric() || "_:".contains(each)));
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        assert!(name.starts_with(|first: char| !first.is_ascii_digit()), "{text:?}");
        (name.to_owned(), rest)
    }

    /// Reads a sample strictly.
    fn read(line: &str) -> Line {
        let (metric, mut rest) = name(line);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (label, behind) = name(rest);
                let mut characters = behind.strip_prefix("=\"").expect("a value").chars();
                let mut value = String::new();
                loop {
                    match characters.next().expect("the value ends") {
                        '"' => break,
                        '\\' => value.push(match characters.next().expect("an escape") {
                            'n' => '\n',
                            other if "\\\"".contains(other) => other,
                            other => panic!("\\{other}"),
                        }),
                        other => value.push(other),
                    }
                }
                labels.push((label, value));
                rest = characters.as_str();
                match rest.split_at_checked(1).expect("more") {
                    (",", more) => rest = more,
                    ("}", more) => {
                        rest = more;
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
        (metric, labels, value)
    }

    fn snapshot(families: Vec<Family>) -> Snapshot {
        let mut builder = Builder::new(1000);
        families.into_iter().for_each(|family| {
            builder.add(family);
        });
        builder.finish(0, 0)
    }

    #[test]
    fn each_kind_has_its_lines() {
        let labels = vec![("comm".to_owned(), "a \"b\" \\ \u{e4}".to_owned())];
        let family = |name: &str, kind, value| Family {
            name: name.into(),
            help: "What \\ it\nis.".into(),
            kind,
            series: vec![Series { labels: labels.clone(), value }],
        };
        let shown = text(&snapshot(vec![
            family("c", Kind::Counter, Value::Number(u64::MAX.into())),
            family("g", Kind::Gauge, Value::Number(-3)),
            family("s", Kind::Summary { signed: true }, Value::Summary { count: 2, sum: -7 }),
            family(
                "h",
                Kind::Histogram(vec![-1, 0, 3]),
                Value::Histogram { counts: vec![1, 0, 4, 2], sum: 9.5 },
            ),
        ]));
        let expected = r#"# HELP c_total What \\ it\nis.
# TYPE c_total counter
c_total{comm="a \"b\" \\ ä"} 18446744073709551615
# HELP g What \\ it\nis.
# TYPE g gauge
g{comm="a \"b\" \\ ä"} -3
# HELP s What \\ it\nis.
# TYPE s summary
s_sum{comm="a \"b\" \\ ä"} -7
s_count{comm="a \"b\" \\ ä"} 2
# HELP h What \\ it\nis.
# TYPE h histogram
h_bucket{comm="a \"b\" \\ ä",le="-1"} 1
h_bucket{comm="a \"b\" \\ ä",le="0"} 1
h_bucket{comm="a \"b\" \\ ä",le="3"} 5
h_bucket{comm="a \"b\" \\ ä",le="+Inf"} 7
h_sum{comm="a \"b\" \\ ä"} 9.5
h_count{comm="a \"b\" \\ ä"} 7
"#;
        assert_eq!(shown, expected);
    }

    proptest! {
        #[test]
        fn hostile_text_stays_in_its_label(
            names in vec("\\PC{0,8}|[\\x00-\\x7f]{0,8}", 1..4),
            values in vec("(?s).{0,20}|[\\x00-\\x7f]{0,20}", 1..4),
            help in "(?s).{0,20}",
            counts in vec(any::<u64>(), 1..6),
        ) {
            let labels: Vec<(String, String)> = names.iter().cloned().zip(values.iter().cloned()).collect();
            let family = |kind, value| Family {
                name: names[0].clone(),
                help: help.clone(),
                kind,
                series: vec![Series { labels: labels.clone(), value }],
            };
            let bounds: Vec<i128> = (1..counts.len() as i128).collect();
            let shown = text(&snapshot(vec![
                family(Kind::Counter, Value::Number(counts[0].into())),
                family(Kind::Histogram(bounds), Value::Histogram { counts: counts.clone(), sum: 0.0 }),
            ]));
            let lines: Vec<&str> = shown.split('\n').collect();
            prop_assert_eq!(lines.len(), 2 * 2 + 1 + counts.len() + 2 + 1);
            let (comments, samples): (Vec<&str>, Vec<&str>) =
                lines[..lines.len() - 1].iter().partition(|line| line.starts_with('#'));
            prop_assert_eq!(comments.len(), 4);
            let samples: Vec<Line> = samples.into_iter().map(read).collect();
            prop_assert_eq!(samples[0].2, counts[0] as f64);
            for (_, read, _) in &samples {
                let read: Vec<_> = read.iter().filter(|(name, _)| name != "le").collect();
                prop_assert_eq!(read.len(), labels.len());
                for ((name, value), (_, given)) in read.iter().copied().zip(&labels) {
                    prop_assert!(value.chars().all(printable::is_plain), "{:?}", value);
                    prop_assert_eq!(value, &printable::text(given).into_owned());
                    prop_assert!(!name.starts_with("__"));
                }
            }
            // Buckets never fall, and the last one is the count.
            let below: Vec<f64> = samples.iter().filter(|(name, ..)| name.ends_with("_bucket")).map(|it| it.2).collect();
            prop_assert!(below.is_sorted());
            prop_assert_eq!(below.last(), samples.last().map(|it| &it.2));
        }
    }
}
