//! Logged values as text.
//!
//! | what was logged | is shown as |
//! |---|---|
//! | a word that is an address in a function | `0x401004 <main+0x4>` |
//! | a word of up to 32 bits, with or without a sign | `4096`, `-2` |
//! | any other word | `0x7ffd00001000` |
//! | a string | `"text"`, with `\n`, `\t`, `\"`, `\\` and `\x1b` |
//! | memory | `<01 02 ff>` |
//! | variables, elements of the stack | `[1 2 3]` |
//! | what could not be read | `<fault at 0x10>` |

use super::Functions;
use super::forms::Part;
use crate::Record;
use crate::digits::{HEXADECIMAL, decimal, short};
use crate::template::Prefixed;

/// Below this, a word is no address of code.
const FIRST_ADDRESS: u64 = 0x10000;

/// Appends the parts of a record, each after a blank.
pub(super) fn append(
    parts: &[Part<'_>],
    record: &Record,
    functions: Option<&dyn Functions>,
    out: &mut Vec<u8>,
) {
    for part in parts {
        out.push(b' ');
        match part {
            Part::Word(word) => value(word, record.pid, functions, out),
            Part::Bytes(bytes) | Part::Item(Prefixed::Memory(bytes)) => memory(bytes, out),
            Part::Item(Prefixed::Text(bytes, _)) => text(bytes, out),
            Part::Item(Prefixed::Words(words)) => {
                out.push(b'[');
                for (number, word) in words.chunks(if record.word == 4 { 4 } else { 8 }).enumerate() {
                    if number > 0 {
                        out.push(b' ');
                    }
                    value(word, record.pid, functions, out);
                }
                out.push(b']');
            }
            Part::Item(Prefixed::Fault(address)) => {
                out.extend_from_slice(b"<fault at 0x");
                short(number(address), out);
                out.push(b'>');
            }
            Part::Item(Prefixed::Selector(selector)) => {
                out.extend_from_slice(b"<invalid selector 0x");
                short(number(selector), out);
                out.push(b'>');
            }
        }
    }
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    let count = bytes.len().min(8);
    all[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(all)
}

/// Appends a word.
fn value(word: &[u8], pid: u32, functions: Option<&dyn Functions>, out: &mut Vec<u8>) {
    let value = number(word);
    let function = functions.filter(|_| value >= FIRST_ADDRESS).and_then(|known| known.at(pid, value));
    if let Some(function) = function {
        out.extend_from_slice(b"0x");
        short(value, out);
        out.extend_from_slice(b" <");
        out.extend_from_slice(printable::text(&function.name).as_bytes());
        if function.offset > 0 {
            out.extend_from_slice(b"+0x");
            short(function.offset, out);
        }
        out.push(b'>');
        return;
    }
    let signed = if word.len() == 4 { i64::from(value as u32 as i32) } else { value as i64 };
    match (signed, value) {
        (signed, _) if signed < 0 && signed >= i64::from(i32::MIN) && word.len() > 4 => decimal(signed, out),
        // A word of 4 bytes has no room for a mark; a small negative number is likelier than the
        // kernel's addresses.
        (signed, _) if (-65536..0).contains(&signed) => decimal(signed, out),
        (_, value) if value <= u64::from(u32::MAX) => decimal(value, out),
        _ => {
            out.extend_from_slice(b"0x");
            short(value, out);
        }
    }
}

/// Appends bytes.
fn memory(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'<');
    for (place, &byte) in bytes.iter().enumerate() {
        if place > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
    }
    out.push(b'>');
}

/// Appends a string, in quotes, so that each byte can be told.
fn text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for each in chunk.valid().chars() {
            match each {
                '"' | '\\' => out.extend_from_slice(&[b'\\', each as u8]),
                '\n' => out.extend_from_slice(b"\\n"),
                '\t' => out.extend_from_slice(b"\\t"),
                each if printable::is_plain(each) => {
                    out.extend_from_slice(each.encode_utf8(&mut [0; 4]).as_bytes());
                }
                each => each.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escaped(byte, out)),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escaped(byte, out));
    }
    out.push(b'"');
}

fn escaped(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\x");
    out.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
}
