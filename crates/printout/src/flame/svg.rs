//! A flame graph as SVG, with the few lines of script that make it react to clicks.

use std::collections::BTreeMap;
use std::fmt::Write;

use printable::markup;

use super::Frame;

/// The width of the page, and of the margin at each of its sides.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
/// The height of a frame, and of what stands above the graph.
const HEIGHT: usize = 17;
const HEAD: usize = 50;
/// Frames narrower than this cannot be seen.
const NARROWEST: f64 = 0.1;
/// The width of a letter.
const LETTER: f64 = 7.0;

/// What a click does. Frames have their place in the whole graph in `data-x` and `data-w`.
const SCRIPT: &str = r#"
var frames = document.querySelectorAll("g.frame");
function show(x, w, y) {
  var left = MARGIN, room = WIDTH - 2 * MARGIN;
  frames.forEach(function (frame) {
    var fx = +frame.dataset.x, fw = +frame.dataset.w, below = +frame.dataset.y > y;
    var holds = fx <= x + 1e-6 && fx + fw >= x + w - 1e-6;
    var inside = fx >= x - 1e-6 && fx + fw <= x + w + 1e-6;
    if (!(inside && !below) && !holds) { frame.style.display = "none"; return; }
    frame.style.display = "";
    var at = holds ? left : left + (fx - x) / w * room, width = holds ? room : fw / w * room;
    var rect = frame.querySelector("rect"), text = frame.querySelector("text");
    rect.setAttribute("x", at); rect.setAttribute("width", width);
    var name = frame.dataset.name, letters = Math.floor((width - 6) / LETTER);
    text.setAttribute("x", at + 3);
    text.textContent = letters < 3 ? "" : name.length <= letters ? name : name.slice(0, letters - 2) + "..";
  });
}
frames.forEach(function (frame) {
  frame.addEventListener("click", function () { show(+frame.dataset.x, +frame.dataset.w, +frame.dataset.y); });
});
"#;

/// The page.
pub(super) fn page(title: &str, maps: &BTreeMap<String, Frame>) -> String {
    let total = maps.values().fold(0_u64, |sum, map| sum.saturating_add(map.total));
    // Several maps may count different things, so each has a frame of its own.
    let named = maps.len() > 1;
    let depth = 1 + maps.values().map(|map| height(map) - usize::from(!named)).max().unwrap_or(0);
    let page_height = HEAD + depth * HEIGHT + HEIGHT;
    let mut out = String::new();
    // A string takes everything.
    let _ = writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{page_height}\" \
         viewBox=\"0 0 {WIDTH} {page_height}\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\n\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{}</text>",
        WIDTH / 2.0,
        markup(title)
    );
    let mut drawing = Drawing { out, total: total.max(1), ground: page_height - 2 * HEIGHT };
    let all = b"all";
    drawing.frame(all, total, 0.0, 0);
    let mut x = 0.0;
    for (name, map) in maps {
        let width = drawing.width(map.total);
        if named {
            drawing.tree(name.as_bytes(), map, x, 1);
        } else {
            drawing.called(map, x, 1);
        }
        x += width;
    }
    let mut out = drawing.out;
    let script = SCRIPT.replace("MARGIN", &MARGIN.to_string()).replace("WIDTH", &WIDTH.to_string());
    let script = script.replace("LETTER", &LETTER.to_string());
    let _ = writeln!(out, "<script><![CDATA[{script}]]></script>\n</svg>");
    out
}

/// How many frames stand on each other, with this one.
fn height(frame: &Frame) -> usize {
    1 + frame.called.values().map(height).max().unwrap_or(0)
}

struct Drawing {
    out: String,
    total: u64,
    /// The upper edge of the lowest frame.
    ground: usize,
}

impl Drawing {
    fn width(&self, value: u64) -> f64 {
        value as f64 / self.total as f64 * (WIDTH - 2.0 * MARGIN)
    }

    /// A frame and all above it.
    fn tree(&mut self, name: &[u8], frame: &Frame, x: f64, depth: usize) {
        if self.width(frame.total) < NARROWEST {
            return;
        }
        self.frame(name, frame.total, x, depth);
        self.called(frame, x, depth + 1);
    }

    fn called(&mut self, frame: &Frame, mut x: f64, depth: usize) {
        for (name, called) in &frame.called {
            self.tree(name, called, x, depth);
            x += self.width(called.total);
        }
    }

    fn frame(&mut self, name: &[u8], value: u64, x: f64, depth: usize) {
        let width = self.width(value);
        let whole = printable::bytes(name).to_string();
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        let fits = whole.chars().count() <= letters;
        let shown: String = match letters {
            0..3 => String::new(),
            _ if fits => whole.clone(),
            _ => whole.chars().take(letters - 2).chain("..".chars()).collect(),
        };
        let y = self.ground - depth * HEIGHT;
        let percent = value as f64 / self.total as f64 * 100.0;
        let at = x + MARGIN;
        let name = markup(&whole);
        let _ = writeln!(
            self.out,
            "<g class=\"frame\" data-x=\"{x:.4}\" data-w=\"{width:.4}\" data-y=\"{y}\" data-name=\"{name}\">\
             <title>{name} ({value}, {percent:.2}%)</title>\
             <rect x=\"{at:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" rx=\"2\" fill=\"{}\"/>\
             <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            HEIGHT - 1,
            colour(whole.as_bytes()),
            at + 3.0,
            y + 12,
            markup(&shown)
        );
    }
}

/// A warm colour, the same one for a name in each graph.
fn colour(name: &[u8]) -> String {
    let hash =
        name.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, _] = hash.to_le_bytes();
    format!("rgb({},{},{})", 205 + a % 50, 70 + b % 150, c % 55)
}
