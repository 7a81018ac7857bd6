//! One conversion of a format applied to a value.
//!
//! bpftrace's releases differ. The oldest ones hand the format to C's `printf`, where `%d` shows 32
//! bits; 0.24 shows all 64 bits if there is no length, and `%p` shows 0 as `0`. Flags, width and
//! precision mean what they mean in C.

use crate::datum::{Datum, escaped, hexadecimal};

/// What a conversion shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Signed,
    Unsigned,
    Octal,
    Hex,
    UpperHex,
    Address,
    Character,
    Text,
    /// `%r`: visible characters as they are.
    Bytes,
    /// `%rx`: `\x0a`.
    EscapedBytes,
    /// `%rh`: `0a fe`.
    HexBytes,
    /// `%gr`: flags of an allocation in the kernel.
    Allocation,
    /// `%f`
    Fixed,
    /// `%e`
    Exponent,
    /// `%g`
    General,
}

/// A conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) left: bool,
    pub(crate) plus: bool,
    pub(crate) space: bool,
    pub(crate) alternative: bool,
    pub(crate) zeros: bool,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
    /// How many bytes of a number count.
    pub(crate) bytes: u8,
    pub(crate) kind: Kind,
    /// Whether the letter is a capital, and so are those of what it shows.
    pub(crate) upper: bool,
}

impl Conversion {
    /// Appends the value.
    pub(crate) fn write(&self, value: &Datum, out: &mut Vec<u8>) {
        if let (Some(float), Kind::Fixed | Kind::Exponent | Kind::General) = (value.as_float(), self.kind) {
            return self.write_float(float, out);
        }
        let Some(number) = value.number().filter(|_| self.kind != Kind::Text) else {
            return self.write_text(value, out);
        };
        let above = 64 - u32::from(self.bytes) * 8;
        let unsigned = number << above >> above;
        let signed = (number << above).cast_signed() >> above;
        match self.kind {
            Kind::Signed => {
                let sign = match (signed < 0, self.plus, self.space) {
                    (true, ..) => "-",
                    (false, true, _) => "+",
                    (false, false, true) => " ",
                    _ => "",
                };
                self.write_number(sign, &signed.unsigned_abs().to_string(), out);
            }
            Kind::Unsigned => self.write_number("", &unsigned.to_string(), out),
            Kind::Octal => {
                let mut digits = format!("{unsigned:o}");
                if self.alternative && !digits.starts_with('0') {
                    digits.insert(0, '0');
                }
                self.write_number("", &digits, out);
            }
            Kind::Hex => self.write_number(self.prefix(unsigned, "0x"), &format!("{unsigned:x}"), out),
            Kind::UpperHex => self.write_number(self.prefix(unsigned, "0X"), &format!("{unsigned:X}"), out),
            Kind::Address if number == 0 => self.pad(b"0", out),
            Kind::Address => self.pad(format!("{number:#x}").as_bytes(), out),
            Kind::Character => self.pad(&[number as u8], out),
            Kind::Allocation => self.pad(allocation(number).as_bytes(), out),
            _ => self.write_text(value, out),
        }
    }

    /// A floating-point number, as C writes it.
    fn write_float(&self, value: f64, out: &mut Vec<u8>) {
        let sign = match (value.is_sign_negative(), self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        };
        let mut digits = match (value.is_nan(), value.is_finite()) {
            (true, _) => "nan".to_owned(),
            (false, false) => "inf".to_owned(),
            (false, true) => self.float_digits(value.abs()),
        };
        if self.upper {
            digits.make_ascii_uppercase();
        }
        if self.zeros && !self.left && value.is_finite() {
            let missing = self.width.saturating_sub(sign.len() + digits.len());
            digits.insert_str(0, &"0".repeat(missing));
        }
        self.pad(format!("{sign}{digits}").as_bytes(), out);
    }

    fn float_digits(&self, value: f64) -> String {
        let precision = self.precision.unwrap_or(6);
        let point = |digits: String| match self.alternative && !digits.contains('.') {
            true => format!("{digits}."),
            false => digits,
        };
        match self.kind {
            Kind::Fixed => point(format!("{value:.precision$}")),
            Kind::Exponent => {
                let (digits, exponent) = scientific(value, precision);
                format!("{}e{exponent:+03}", point(digits))
            }
            // So many digits; those at the end that are 0 are left out.
            _ => {
                let most = precision.max(1);
                let (digits, exponent) = scientific(value, most - 1);
                let short = |digits: String| match (self.alternative, digits.contains('.')) {
                    (false, true) => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
                    _ => point(digits),
                };
                match usize::try_from(most as i64 - 1 - i64::from(exponent)) {
                    Ok(decimals) if exponent >= -4 => short(format!("{value:.decimals$}")),
                    _ => format!("{}e{exponent:+03}", short(digits)),
                }
            }
        }
    }

    fn prefix(&self, number: u64, prefix: &'static str) -> &'static str {
        if self.alternative && number != 0 { prefix } else { "" }
    }

    /// Digits with their sign or prefix: the precision, or the width with flag `0`, adds zeros.
    fn write_number(&self, sign: &str, digits: &str, out: &mut Vec<u8>) {
        let digits = if self.precision == Some(0) && digits == "0" { "" } else { digits };
        let wanted = match self.precision {
            Some(precision) => precision,
            None if self.zeros && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        let mut text = Vec::from(sign);
        text.resize(text.len() + wanted.saturating_sub(digits.len()), b'0');
        text.extend_from_slice(digits.as_bytes());
        self.pad(&text, out);
    }

    /// What is no number, or shown as text.
    fn write_text(&self, value: &Datum, out: &mut Vec<u8>) {
        let mut text = Vec::new();
        match (value, self.kind) {
            (Datum::Bytes(bytes), Kind::EscapedBytes) => escaped(&mut text, bytes, false),
            (Datum::Bytes(bytes), Kind::HexBytes) => hexadecimal(&mut text, bytes),
            _ => value.write(&mut text),
        }
        if let Some(precision) = self.precision {
            text.truncate(precision);
        }
        self.pad(&text, out);
    }

    fn pad(&self, text: &[u8], out: &mut Vec<u8>) {
        let missing = self.width.saturating_sub(text.len());
        if !self.left {
            out.resize(out.len() + missing, b' ');
        }
        out.extend_from_slice(text);
        if self.left {
            out.resize(out.len() + missing, b' ');
        }
    }
}

/// The digits of a number with one before the point, and its exponent.
fn scientific(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

/// Linux's flags of allocations, as its stable kernels since 6.1 have had them.
const FLAGS: &[(u64, &str)] = &[
    (0x1, "__GFP_DMA"),
    (0x2, "__GFP_HIGHMEM"),
    (0x4, "__GFP_DMA32"),
    (0x8, "__GFP_MOVABLE"),
    (0x10, "__GFP_RECLAIMABLE"),
    (0x20, "__GFP_HIGH"),
    (0x40, "__GFP_IO"),
    (0x80, "__GFP_FS"),
    (0x100, "__GFP_ZERO"),
    (0x400, "__GFP_DIRECT_RECLAIM"),
    (0x800, "__GFP_KSWAPD_RECLAIM"),
    (0x1000, "__GFP_WRITE"),
    (0x2000, "__GFP_NOWARN"),
    (0x4000, "__GFP_RETRY_MAYFAIL"),
    (0x8000, "__GFP_NOFAIL"),
    (0x1_0000, "__GFP_NORETRY"),
    (0x2_0000, "__GFP_MEMALLOC"),
    (0x4_0000, "__GFP_COMP"),
    (0x8_0000, "__GFP_NOMEMALLOC"),
    (0x10_0000, "__GFP_HARDWALL"),
    (0x20_0000, "__GFP_THISNODE"),
    (0x40_0000, "__GFP_ACCOUNT"),
];

/// The names of what is often asked for, larger ones first.
const COMPOUND: &[(u64, &str)] = &[
    (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
    (0x10_0cc2, "GFP_HIGHUSER"),
    (0x40_0cc0, "GFP_KERNEL_ACCOUNT"),
    (0x10_0cc0, "GFP_USER"),
    (0xcc0, "GFP_KERNEL"),
    (0xc40, "GFP_NOFS"),
    (0xc00, "GFP_NOIO"),
    (0x820, "GFP_ATOMIC"),
];

/// Flags of an allocation by name: compounds, then what is left, then unknown bits.
fn allocation(flags: u64) -> String {
    if flags == 0 {
        return "0".into();
    }
    let mut left = flags;
    let mut names = Vec::new();
    for (bits, name) in COMPOUND.iter().chain(FLAGS) {
        if left & bits == *bits {
            names.push((*name).to_string());
            left &= !bits;
        }
    }
    if left != 0 {
        names.push(format!("{left:#x}"));
    }
    names.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    fn shown(format: &str, value: Datum) -> String {
        String::from_utf8(Format::parse(format.as_bytes()).apply(&[value])).expect("ASCII")
    }

    /// What C's `printf` gives, which the first releases of bpftrace call.
    #[test]
    fn flags_width_and_precision_are_those_of_c() {
        let numbers = [
            ("%d|", 42, "42|"),
            ("%5d|", 42, "   42|"),
            ("%-5d|", 42, "42   |"),
            ("%05d|", -42, "-0042|"),
            ("%-05d|", 42, "42   |"),
            ("%+d|", 42, "+42|"),
            ("% d|", 42, " 42|"),
            ("%.5d|", -42, "-00042|"),
            ("%8.5d|", -42, "  -00042|"),
            ("%08.5d|", 42, "   00042|"),
            ("%.0d|", 0, "|"),
            ("%x|", 255, "ff|"),
            ("%#x|", 255, "0xff|"),
            ("%#x|", 0, "0|"),
            ("%#08X|", 255, "0X0000FF|"),
            ("%o|", 8, "10|"),
            ("%#o|", 8, "010|"),
            ("%hhd|", 300, "44|"),
            ("%hd|", 70000, "4464|"),
            ("%hhx|", -1, "ff|"),
            ("%u|", -1, "18446744073709551615|"),
            ("%lu|", 7, "7|"),
            ("%c|", 65, "A|"),
            ("%5c|", 65, "    A|"),
            ("%p|", 255, "0xff|"),
            ("%8p|", 255, "    0xff|"),
            ("%s|", -5, "-5|"),
        ];
        for (format, number, text) in numbers {
            assert_eq!(shown(format, Datum::Signed(number)), text, "{format}");
        }
        for (format, text) in
            [("%s|", "abc|"), ("%5s|", "  abc|"), ("%-5s|", "abc  |"), ("%.2s|", "ab|"), ("%d|", "abc|")]
        {
            assert_eq!(shown(format, Datum::text("abc")), text, "{format}");
        }
    }

    /// What C's `printf` gives.
    #[test]
    fn floating_point_numbers_are_those_of_c() {
        for (format, number, text) in [
            ("%f|", 2.5, "2.500000|"),
            ("%.0f|", 2.5, "2|"),
            ("%#.0f|", 3.0, "3.|"),
            ("%8.2f|", -1.005, "   -1.00|"),
            ("%08.2f|", -1.5, "-0001.50|"),
            ("%-8.1f|", 1.25, "1.2     |"),
            ("%+f|", 0.0, "+0.000000|"),
            ("%e|", 12345.678, "1.234568e+04|"),
            ("%.0e|", 5e-7, "5e-07|"),
            ("%E|", 1e100, "1.000000E+100|"),
            ("%g|", 100000.0, "100000|"),
            ("%g|", 1000000.0, "1e+06|"),
            ("%g|", 0.0001, "0.0001|"),
            ("%g|", 0.00001234, "1.234e-05|"),
            ("%g|", 0.1, "0.1|"),
            ("%.10g|", 0.1f32.into(), "0.1000000015|"),
            ("%.3g|", 9999.0, "1e+04|"),
            ("%#g|", 1.5, "1.50000|"),
            ("%G|", 1e-10, "1E-10|"),
            ("%g|", 0.0, "0|"),
            ("%g|", -0.0, "-0|"),
            ("%5g|", f64::INFINITY, "  inf|"),
            ("%05F|", f64::NEG_INFINITY, " -INF|"),
            ("%g|", f64::NAN.copysign(1.0), "nan|"),
        ] {
            assert_eq!(shown(format, Datum::float(number)), text, "{format} {number}");
        }
    }

    #[test]
    fn a_number_without_a_length_has_64_bits() {
        assert_eq!(shown("%x", Datum::Unsigned(0x1234_5678_abcd_ef01)), "12345678abcdef01");
        assert_eq!(shown("%d", Datum::Signed(i64::MIN)), "-9223372036854775808");
        assert_eq!(shown("%p", Datum::Unsigned(0)), "0");
    }

    #[test]
    fn names_of_numbers_are_shown_as_text_only() {
        let value = Datum::Symbolic { text: b"LEAF".to_vec(), number: 3 };
        assert_eq!(shown("%s", value.clone()), "LEAF");
        assert_eq!(shown("%d", value), "3");
        assert_eq!(shown("%s", Datum::Bool(true)), "true");
        assert_eq!(shown("%d", Datum::Bool(true)), "1");
    }

    #[test]
    fn flags_of_allocations_are_named() {
        assert_eq!(allocation(0), "0");
        assert_eq!(allocation(0xcc0), "GFP_KERNEL");
        assert_eq!(allocation(0xdc0), "GFP_KERNEL|__GFP_ZERO");
        assert_eq!(allocation(0x822 | 1 << 40), "GFP_ATOMIC|__GFP_HIGHMEM|0x10000000000");
    }
}
