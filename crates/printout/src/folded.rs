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

/// What stands for a stack without frames: that of the kernel, where a process was interrupted.
const NO_STACK: &[u8] = b"[no stack]";

/// A map: in these lines if its keys have stacks and its values are numbers, else as text.
pub(crate) fn table(table: &Table, zone: &TimeZone) -> Vec<u8> {
    let places = places(table);
    let lines: Option<Vec<Vec<u8>>> = table.rows.iter().map(|row| line(row, &places)).collect();
    lines.map_or_else(|| text::table(table, zone, None), |lines| lines.concat())
}

/// Which parts of keys are stacks. One without frames is told from a string by the stacks of other
/// entries.
pub(crate) fn places(table: &Table) -> Vec<bool> {
    let mut places = Vec::new();
    for row in &table.rows {
        let parts = row.key.as_ref().map(key_parts).unwrap_or_default();
        places.resize(places.len().max(parts.len()), false);
        places.iter_mut().zip(parts).for_each(|(place, part)| *place |= is_stack(part));
    }
    places
}

/// The parts of a key.
fn key_parts(key: &Datum) -> &[Datum] {
    match key {
        Datum::Tuple(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// The line of an entry; `None` if it is none of a stack. `places`: which parts of keys are stacks.
fn line(row: &Row, places: &[bool]) -> Option<Vec<u8>> {
    let (frames, value) = entry(row, places)?;
    let mut out = frames.join(&b';');
    out.push(b' ');
    value.write(&mut out);
    append(&mut out, format_args!("\n"));
    Some(out)
}

/// The frames of an entry from the outermost on, behind the other parts of its key, and its value;
/// `None` if it is none of a stack, or no number.
pub(crate) fn entry<'a>(row: &'a Row, places: &[bool]) -> Option<(Vec<Vec<u8>>, &'a Datum)> {
    let (Cell::Plain(value) | Cell::Number { shown: value, .. }) = &row.cell else { return None };
    value.number()?;
    let is_empty = |part: &Datum| matches!(part, Datum::Text(text) if text.is_empty());
    let (mut stacks, mut others) = (Vec::new(), Vec::new());
    for (part, place) in key_parts(row.key.as_ref()?).iter().zip(places) {
        match *place && (is_stack(part) || is_empty(part)) {
            true => stacks.push(part),
            false => others.push(part),
        }
    }
    if stacks.is_empty() {
        return None;
    }
    let mut frames = Vec::new();
    // What separates frames, and lines, is in no name.
    let is_separator = |byte: &u8| matches!(byte, b';' | b'\n');
    let mut frame = |name: &[u8]| {
        frames.push(name.iter().map(|byte| if is_separator(byte) { b'_' } else { *byte }).collect());
    };
    others.iter().for_each(|part| frame(&part.to_text()));
    for stack in stacks {
        let text = stack.to_text();
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let lines: Vec<&[u8]> = lines.collect();
        if lines.is_empty() {
            frame(NO_STACK);
        }
        lines.iter().rev().for_each(|line| frame(without_offset(line)));
    }
    Some((frames, value))
}

/// Whether a part of a key is a stack: it begins with a line end, and each frame is in a line.
fn is_stack(part: &Datum) -> bool {
    matches!(part, Datum::Text(text) if text.starts_with(b"\n") && text.ends_with(b"\n"))
}

/// A frame without where in the function it is, as an offset and a source line: calls from anywhere
/// in a function are one.
fn without_offset(frame: &[u8]) -> &[u8] {
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let offset = |frame: &[u8]| {
        let plus = frame.iter().rposition(|byte| *byte == b'+')?;
        (plus > 0 && is_number(&frame[plus + 1..])).then_some(plus)
    };
    // `serve+97@svc.c:33` and `helper (inlined)@svc.h:7`.
    let place = frame.iter().rposition(|byte| *byte == b'@').filter(|&at| {
        let (before, place) = (&frame[..at], &frame[at + 1..]);
        let colon = place.iter().rposition(|byte| *byte == b':');
        colon.is_some_and(|colon| is_number(&place[colon + 1..]))
            && (offset(before).is_some() || before.ends_with(b" (inlined)"))
    });
    let frame = place.map_or(frame, |at| &frame[..at]);
    offset(frame).map_or(frame, |at| &frame[..at])
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
        let lined = Datum::text(
            "\n        in (inlined)@a.h:7\n        f+12@a b.c:33\n        g@h:1\n        memcpy@@V1+4\n",
        );
        assert_eq!(shown(Some(lined), number()), "memcpy@@V1;g@h:1;f;in (inlined) 7\n");
    }

    #[test]
    fn a_stack_without_frames_is_one_beside_others() {
        let row = |stack: &str| {
            let key = Datum::Tuple(vec![Datum::text("a"), Datum::text(stack)]);
            Row { key: Some(key), cell: number() }
        };
        let show = |rows: Vec<Row>| {
            let map = Table { name: "@m".into(), keyed: true, kind: TableKind::Map, rows };
            String::from_utf8(table(&map, &TimeZone::UTC)).expect("text")
        };
        assert_eq!(show(vec![row(""), row("\n        f+1\n")]), "a;[no stack] 7\na;f 7\n");
        assert_eq!(show(vec![row("")]), "@m[a, ]: 7\n");
    }

    #[test]
    fn other_maps_are_text() {
        assert_eq!(shown(Some(Datum::text("key")), number()), "@m[key]: 7\n");
        assert_eq!(shown(None, number()), "@m: 7\n");
        let text = Cell::Plain(Datum::text("value"));
        assert_eq!(shown(Some(Datum::text("\n        f+1\n")), text), "@m[\n        f+1\n]: value\n");
    }
}
