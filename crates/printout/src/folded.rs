//! Maps by stacks in lines that programs for flame graphs read: the frames of a stack from the
//! outermost on, then the value.
//!
//! ```text
//! @[comm, ustack]: 12      curl;main;perform;malloc 12
//! ```

use jiff::tz::TimeZone;

use crate::datum::{Datum, append};
use crate::table::{Cell, Row, Table};
use crate::text;

/// A map: in these lines if its keys have stacks and its values are numbers, else as text.
pub(crate) fn table(table: &Table, zone: &TimeZone) -> Vec<u8> {
    let lines: Option<Vec<Vec<u8>>> = table.rows.iter().map(line).collect();
    lines.map_or_else(|| text::table(table, zone), |lines| lines.concat())
}

/// The line of an entry; `None` if it is none of a stack.
fn line(row: &Row) -> Option<Vec<u8>> {
    let (Cell::Plain(value) | Cell::Number { shown: value, .. }) = &row.cell else { return None };
    value.number()?;
    let parts = match row.key.as_ref()? {
        Datum::Tuple(parts) => parts,
        one => std::slice::from_ref(one),
    };
    let (stacks, others): (Vec<&Datum>, Vec<&Datum>) = parts.iter().partition(|part| is_stack(part));
    if stacks.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    let mut frame = |name: &[u8]| {
        // What separates frames, and lines, is in no name.
        out.extend(name.iter().map(|byte| if matches!(byte, b';' | b'\n') { b'_' } else { *byte }));
        out.push(b';');
    };
    others.iter().for_each(|part| frame(&part.to_text()));
    for stack in stacks {
        let text = stack.to_text();
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let lines: Vec<&[u8]> = lines.collect();
        lines.iter().rev().for_each(|line| frame(without_offset(line)));
    }
    out.pop();
    out.push(b' ');
    value.write(&mut out);
    append(&mut out, format_args!("\n"));
    Some(out)
}

/// Whether a part of a key is a stack: it begins with a line end, and each frame is in a line.
fn is_stack(part: &Datum) -> bool {
    matches!(part, Datum::Text(text) if text.starts_with(b"\n") && text.ends_with(b"\n"))
}

/// A frame without how far behind the function's beginning it is: calls from anywhere in a function
/// are one.
fn without_offset(frame: &[u8]) -> &[u8] {
    let plus = frame.iter().rposition(|byte| *byte == b'+');
    let is_offset = |at: &usize| *at > 0 && frame[at + 1..].iter().all(u8::is_ascii_digit);
    plus.filter(is_offset).map_or(frame, |at| &frame[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TableKind;

    fn shown(key: Option<Datum>, cell: Cell) -> String {
        let rows = vec![Row { key, cell }];
        let map = Table { name: "@m".into(), keyed: true, kind: TableKind::Map, rows };
        String::from_utf8(table(&map, &TimeZone::UTC)).expect("text")
    }

    fn number() -> Cell {
        Cell::Plain(Datum::Signed(7))
    }

    #[test]
    fn a_stack_is_a_line_from_the_outermost_frame_on() {
        let stack = || Datum::text("\n        malloc+4\n        operator+(A;B)+12\n        0x1234\n");
        assert_eq!(shown(Some(stack()), number()), "0x1234;operator+(A_B);malloc 7\n");
        let key = Datum::Tuple(vec![stack(), Datum::text("a\nb"), Datum::Signed(3)]);
        assert_eq!(shown(Some(key), number()), "a_b;3;0x1234;operator+(A_B);malloc 7\n");
    }

    #[test]
    fn other_maps_are_text() {
        assert_eq!(shown(Some(Datum::text("key")), number()), "@m[key]: 7\n");
        assert_eq!(shown(None, number()), "@m: 7\n");
        let text = Cell::Plain(Datum::text("value"));
        assert_eq!(shown(Some(Datum::text("\n        f+1\n")), text), "@m[\n        f+1\n]: value\n");
    }
}
