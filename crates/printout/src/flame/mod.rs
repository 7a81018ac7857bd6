//! Flame graphs: how often each stack was seen, as a picture.
//!
//! ```text
//!            | malloc      |         a frame is as wide as the stacks that have it at this place;
//! | read | parse           |         it stands on its caller
//! | main                   |
//! ```

mod keeping;
mod svg;

use std::collections::BTreeMap;

use crate::datum::Datum;
use crate::folded;
use crate::table::Table;

/// The most frames of a graph. What is beyond them counts for the frame below.
const MOST_FRAMES: usize = 200_000;
/// The most frames of a stack.
const DEEPEST: usize = 512;

/// Stacks, and how much each counts.
#[derive(Debug, Default)]
pub struct Flame {
    /// The stacks of each map by the map's name.
    maps: BTreeMap<String, Frame>,
    frames: usize,
}

/// A frame at one place: below it are its callers.
#[derive(Debug, Default)]
struct Frame {
    /// What counts for it and for the frames above.
    total: u64,
    /// The frames that it calls.
    called: BTreeMap<Vec<u8>, Frame>,
}

impl Flame {
    /// Adds the entries of a map that have stacks and are more than 0.
    pub(crate) fn table(&mut self, table: &Table) {
        let places = folded::places(table);
        for (frames, value) in table.rows.iter().filter_map(|row| folded::entry(row, &places)) {
            let value = match value {
                Datum::Signed(value) => u64::try_from(*value).unwrap_or(0),
                value => value.number().unwrap_or(0),
            };
            self.add(&table.name, frames.iter().map(Vec::as_slice), value);
        }
    }

    /// Adds a stack, from the outermost frame on, to a map.
    pub fn add<'a>(&mut self, map: &str, frames: impl IntoIterator<Item = &'a [u8]>, value: u64) {
        if value == 0 {
            return;
        }
        let mut frame = self.maps.entry(map.to_owned()).or_default();
        frame.total = frame.total.saturating_add(value);
        for name in frames.into_iter().take(DEEPEST) {
            if !frame.called.contains_key(name) {
                if self.frames >= MOST_FRAMES {
                    return;
                }
                self.frames += 1;
            }
            frame = frame.called.entry(name.to_vec()).or_default();
            frame.total = frame.total.saturating_add(value);
        }
    }

    /// Adds lines as [`folded`](crate::Output::Folded) output has them, `main;parse;malloc 7`.
    ///
    /// # Errors
    /// The number of the first line, from 1, that is none.
    pub fn folded(&mut self, text: &[u8]) -> Result<(), usize> {
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let parts = line.iter().rposition(|byte| *byte == b' ').map(|blank| line.split_at(blank));
            let value = parts.and_then(|(_, value)| str::from_utf8(value).ok()?.trim().parse::<u64>().ok());
            let (Some((stack, _)), Some(value)) = (parts, value) else { return Err(number + 1) };
            self.add("", stack.trim_ascii().split(|byte| *byte == b';'), value);
        }
        Ok(())
    }

    /// Whether no stack was added.
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// The graph as a page of SVG, which needs nothing else. A click on a frame shows it and what
    /// it calls as wide as the page; a click on the lowest frame shows all again.
    pub fn svg(&self, title: &str) -> String {
        svg::page(title, &self.maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Flame {
        let mut flame = Flame::default();
        flame.folded(text.as_bytes()).expect("lines of stacks");
        flame
    }

    #[test]
    fn frames_count_what_is_above_them() {
        let flame = of("main;parse;malloc 7\nmain;read 2\n\nmain;parse 1\nother 5\n");
        let all = &flame.maps[""];
        let main = &all.called[&b"main"[..]];
        let parse = &main.called[&b"parse"[..]];
        let malloc = &parse.called[&b"malloc"[..]];
        assert_eq!((all.total, main.total, parse.total, malloc.total), (15, 10, 8, 7));
    }

    #[test]
    fn what_is_no_line_of_a_stack_is_told() {
        for (text, line) in [("main 1\nmain;f", 2), ("7", 1), ("\n\nmain x", 3), ("main -1", 1)] {
            assert_eq!(Flame::default().folded(text.as_bytes()), Err(line), "{text}");
        }
    }

    #[test]
    fn a_graph_has_bounds() {
        let mut flame = Flame::default();
        flame.add("", std::iter::repeat_n(&b"f"[..], 10_000), 1);
        assert_eq!(flame.frames, DEEPEST);
        for number in 0..MOST_FRAMES {
            flame.add("", [&number.to_le_bytes()[..]], 1);
        }
        assert_eq!((flame.frames, flame.maps[""].total), (MOST_FRAMES, MOST_FRAMES as u64 + 1));
    }

    proptest! {
        #[test]
        fn any_lines_make_a_page(text in "([a-c<>&\"';\\PC]{0,12} [0-9]{1,20}\n){0,20}") {
            let mut flame = Flame::default();
            let _ = flame.folded(text.as_bytes());
            let page = flame.svg(&text);
            prop_assert_eq!(page.matches("<g ").count(), page.matches("</g>").count());
            prop_assert!(!page.chars().any(|it| it.is_control() && it != '\n'));
        }
    }
}
