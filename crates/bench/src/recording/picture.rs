//! The picture: each line appears at its time, and what is above the window moves out of it.

use std::fmt::Write;
use std::time::Duration;

use super::{Kind, LETTER, Line};

/// The window, in letters and lines, and the size of a letter and a line.
const COLUMNS: usize = 100;
const ROWS: usize = 26;
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 19.0;
/// Around the text.
const MARGIN: f64 = 14.0;
/// The end is shown for so long before it begins again.
const REST: Duration = Duration::from_secs(6);

/// The recording as an SVG file.
pub fn svg(lines: &[Line]) -> String {
    let length = lines.last().map_or(REST, |line| line.at + REST).as_secs_f64();
    let percent = |at: Duration| at.as_secs_f64() / length * 100.0;
    let (width, height) = (COLUMNS as f64 * WIDTH + 2.0 * MARGIN, ROWS as f64 * HEIGHT + 2.0 * MARGIN);
    let mut out = String::new();
    // A string takes everything.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>\n\
         text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre }}\n\
         .command {{ fill: #ffffff; font-weight: bold }}\n.comment {{ fill: #7ee787 }}\n\
         .told {{ fill: #8b949e }}\n.bar {{ fill: #79c0ff }}\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let at = percent(line.at);
        let _ = writeln!(
            out,
            "@keyframes l{number} {{ 0%, {at:.3}% {{ opacity: 0 }} {:.3}%, 100% {{ opacity: 1 }} }}",
            at + 0.001
        );
        let _ = writeln!(out, "#l{number} {{ animation: l{number} {length:.2}s step-end infinite }}");
        if line.kind == Kind::Command {
            // A cover as wide as the line, which goes to the right letter by letter.
            let letters = line.text.chars().count();
            let end = percent(line.at + LETTER * letters as u32);
            let _ = writeln!(
                out,
                "@keyframes c{number} {{ 0%, {at:.3}% {{ transform: none }} {end:.3}%, 100% {{ transform: \
                 translateX({:.1}px) }} }}\n#c{number} {{ animation: c{number} {length:.2}s steps({letters}) \
                 infinite }}",
                letters as f64 * WIDTH
            );
        }
    }
    out.push_str("@keyframes scroll { 0% { transform: none }");
    let mut hidden = 0;
    for (number, line) in lines.iter().enumerate().skip(ROWS) {
        let at = percent(line.at);
        let _ = write!(
            out,
            " {at:.3}% {{ transform: translateY({:.0}px) }} {:.3}% {{ transform: translateY({:.0}px) }}",
            -(hidden as f64) * HEIGHT,
            at + 0.001,
            -((number + 1 - ROWS) as f64) * HEIGHT
        );
        hidden = number + 1 - ROWS;
    }
    let _ = write!(
        out,
        " 100% {{ transform: translateY({:.0}px) }} }}\n#all {{ animation: scroll {length:.2}s infinite }}\n\
         </style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <clipPath id=\"window\"><rect x=\"0\" y=\"{MARGIN}\" width=\"{width:.0}\" height=\"{:.0}\"/></clipPath>\n\
         <g clip-path=\"url(#window)\"><g id=\"all\">\n",
        -(hidden as f64) * HEIGHT,
        ROWS as f64 * HEIGHT
    );
    for (number, line) in lines.iter().enumerate() {
        let top = MARGIN + number as f64 * HEIGHT;
        let _ = writeln!(
            out,
            "<text id=\"l{number}\" class=\"{}\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>",
            class(line),
            top + HEIGHT - 5.0,
            printable::markup(&shortened(&line.text))
        );
        if line.kind == Kind::Command {
            let _ = writeln!(
                out,
                "<rect id=\"c{number}\" x=\"{:.1}\" y=\"{top:.0}\" width=\"{width:.0}\" height=\"{HEIGHT}\" \
                 fill=\"#0d1117\"/>",
                MARGIN + 2.0 * WIDTH
            );
        }
    }
    out.push_str("</g></g>\n</svg>\n");
    out
}

fn class(line: &Line) -> &'static str {
    match line.kind {
        Kind::Command => "command",
        Kind::Comment => "comment",
        Kind::Output if line.text.starts_with("dprobes: ") => "told",
        Kind::Output if line.text.ends_with('|') => "bar",
        Kind::Output => "output",
    }
}

/// A line that fits into the window.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(COLUMNS - 2) {
        Some((end, _)) if text.chars().count() > COLUMNS => format!("{}..", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: u64, kind: Kind, text: &str) -> Line {
        Line { at: Duration::from_secs(seconds), kind, text: text.to_owned() }
    }

    #[test]
    fn text_is_escaped_and_cut_to_the_window() {
        let long = "x".repeat(120);
        let lines = [
            line(0, Kind::Command, "$ a <b> & c"),
            line(1, Kind::Output, &long),
            line(2, Kind::Output, "\x1b[m"),
        ];
        let svg = svg(&lines);
        assert!(svg.contains(">$ a &lt;b&gt; &amp; c</text>"));
        assert!(svg.contains(&format!(">{}..</text>", "x".repeat(98))));
        assert!(svg.contains(">\\x1b[m</text>"));
    }

    #[test]
    fn what_does_not_fit_moves_out_of_the_window() {
        let lines: Vec<Line> = (0..30).map(|second| line(second, Kind::Output, "x")).collect();
        let svg = svg(&lines);
        // The last of 30 lines is the last of 26 when the first four are out.
        assert!(svg.contains("100% { transform: translateY(-76px) }"), "{svg}");
        assert_eq!(svg.matches("<text ").count(), 30);
    }
}
