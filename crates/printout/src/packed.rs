//! What `printf` says as bytes, and the template by which a trace store shows them.
//!
//! ```text
//! %d %u %x %p of an integer   its bytes, 1, 2 or 8; shown by %8d, %8u, %8x, 0x%8x
//! %f %g %e of a float         8 bytes; shown by %8f
//! all else                    the text of the conversion and a NUL; shown by %s
//! ```
//!
//! Only conversions without flags, width and precision are numbers: the text of others is what the
//! script wants to see.

use script::Type;

use crate::conversion::{Conversion, Kind};
use crate::datum::Datum;
use crate::format::{Format, Part};

/// How a value is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Integer,
    Float,
    Text,
}

fn packing(conversion: &Conversion, ty: Option<&Type>) -> Packing {
    let plain = Conversion { kind: conversion.kind, bytes: conversion.bytes, ..Conversion::default() };
    if *conversion != plain {
        return Packing::Text;
    }
    match (conversion.kind, ty) {
        (
            Kind::Signed | Kind::Unsigned | Kind::Hex | Kind::Address,
            Some(Type::Integer(_) | Type::Pointer(_) | Type::Unknown),
        ) => Packing::Integer,
        (Kind::Fixed | Kind::Exponent | Kind::General, Some(Type::Float(_))) => Packing::Float,
        _ => Packing::Text,
    }
}

impl Format {
    /// The template that shows what [`pack`](Self::pack) makes of values of these types. The
    /// newline at the end is left out: whoever shows a record writes one.
    pub(crate) fn template(&self, types: &[Type]) -> String {
        let mut out = String::new();
        let mut types = types.iter();
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    for each in String::from_utf8_lossy(text).chars() {
                        if matches!(each, '%' | '(' | ')') {
                            out.push('%');
                        }
                        out.push(each);
                    }
                }
                Part::Value(conversion) => {
                    let bytes = conversion.bytes;
                    let control = match (packing(conversion, types.next()), conversion.kind) {
                        (Packing::Text, _) => "%s".to_owned(),
                        (Packing::Float, _) => "%8f".to_owned(),
                        (Packing::Integer, Kind::Signed) => format!("%{bytes}d"),
                        (Packing::Integer, Kind::Hex) => format!("%{bytes}x"),
                        (Packing::Integer, Kind::Address) => format!("0x%{bytes}x"),
                        (Packing::Integer, _) => format!("%{bytes}u"),
                    };
                    out.push_str(&control);
                }
            }
        }
        match out.strip_suffix('\n') {
            Some(line) => line.to_owned(),
            None => out,
        }
    }

    /// Values as the template of these types takes them.
    pub(crate) fn pack(&self, types: &[Type], values: &[Datum]) -> Vec<u8> {
        let (mut out, mut text) = (Vec::new(), Vec::new());
        let (mut types, mut values) = (types.iter(), values.iter());
        for part in &self.parts {
            let Part::Value(conversion) = part else { continue };
            let value = values.next().unwrap_or(&Datum::Null);
            match packing(conversion, types.next()) {
                Packing::Integer => {
                    let number = value.number().unwrap_or(0).to_le_bytes();
                    out.extend_from_slice(&number[..usize::from(conversion.bytes).min(8)]);
                }
                Packing::Float => {
                    out.extend_from_slice(&value.as_float().unwrap_or(f64::NAN).to_le_bytes());
                }
                Packing::Text => {
                    text.clear();
                    conversion.write(value, &mut text);
                    // The text ends with the first NUL.
                    out.extend(text.iter().copied().filter(|byte| *byte != 0));
                    out.push(0);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use script::Integer;

    const I64: Type = Type::Integer(Integer { bytes: 8, signed: true });
    const U64: Type = Type::Integer(Integer { bytes: 8, signed: false });

    #[test]
    fn numbers_stay_numbers_and_all_else_is_text() {
        let format = Format::parse(b"%s has %d (%5d) of %x, 100%%, %hhd %p %.2f %g\n");
        let types = [Type::Text, I64, I64, U64, I64, U64, Type::Float(8), Type::Float(8)];
        assert_eq!(format.template(&types), "%s has %8d %(%s%) of %8x, 100%%, %1d 0x%8x %s %8f");
        let values = [
            Datum::text("a\0b"),
            Datum::integer(-2),
            Datum::integer(7),
            Datum::integer(255),
            Datum::integer(-1),
            Datum::integer(4096),
            Datum::float(1.5),
            Datum::float(2.5),
        ];
        let mut expected = b"ab\0".to_vec();
        expected.extend((-2i64).to_le_bytes());
        expected.extend(b"    7\0");
        expected.extend(255u64.to_le_bytes());
        expected.push(0xff);
        expected.extend(4096u64.to_le_bytes());
        expected.extend(b"1.50\0");
        expected.extend(2.5f64.to_le_bytes());
        assert_eq!(format.pack(&types, &values), expected);
        // What there is no value for, and no type, is there all the same.
        assert_eq!(Format::parse(b"%d%s").pack(&[I64], &[]).len(), 9 + "null".len());
    }
}
