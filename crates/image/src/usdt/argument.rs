//! The arguments of a static probe: where the program has their values.
//!
//! ```text
//! ARGUMENTS   ARGUMENT separated by blanks
//! ARGUMENT    [SIZE @] OPERAND          SIZE: -8 -4 -2 -1 1 2 4 8, negative if signed, and f if float
//! OPERAND     $5   %eax   -16(%rbp)   8(%rax,%rbx,4)   (,%rcx,8)   sym(%rip)   sym+4(%rip)   sym
//! ```
//!
//! The compiler of the program wrote them in AT&T's syntax, so anything that it may write is
//! possible. What is not understood stays an argument, without a place.

use std::fmt::{self, Display, Formatter};

/// The most arguments. `sys/sdt.h` has 12.
const MOST: usize = 32;
/// The longest text of an argument.
const LONGEST: usize = 256;
/// The most terms of a sum.
const TERMS: usize = 8;

/// An argument of a static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its size: 1, 2, 4 or 8 bytes.
    pub bytes: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// Whether it is a number with a fraction.
    pub float: bool,
    /// Where it is; `None` if that is not understood.
    pub place: Option<ArgumentPlace>,
    /// The text of its place in the note: `-16(%rbp)`.
    pub text: String,
}

/// Where a program has an argument when it comes to the probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// It is this number.
    Constant(i64),
    /// In a register.
    Register(ArgumentRegister),
    /// In memory, at the sum of these.
    Memory {
        /// A register. `rip` is the address of the probe's own instruction.
        base: Option<ArgumentRegister>,
        /// Another register, and by what it is multiplied: 1, 2, 4 or 8.
        index: Option<(ArgumentRegister, u8)>,
        /// A number. Without registers it is the address.
        displacement: i64,
    },
}

/// A register, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentRegister {
    /// The whole register, as x86-64 names it: `rax`, `r8`, `rip`.
    pub name: &'static str,
    /// How many of its bits: 8, 16, 32 or 64.
    pub bits: u8,
    /// The number of the first of them: 8 for `ah` and the like, otherwise 0.
    pub shift: u8,
}

/// What the places of arguments depend on.
pub(super) struct Context<'a> {
    /// Whether it is code for 64 bits.
    pub(super) long: bool,
    /// The address of the probe.
    pub(super) vaddr: u64,
    /// The address of a variable.
    pub(super) symbol: &'a dyn Fn(&str) -> Option<u64>,
}

/// The arguments of a probe, from the text of its note.
pub(super) fn parse(text: &str, context: &Context<'_>) -> Vec<Argument> {
    text.split_ascii_whitespace().take(MOST).map(|text| argument(text, context)).collect()
}

fn argument(text: &str, context: &Context<'_>) -> Argument {
    let (size, operand) = match text.split_once('@') {
        // `sym@GOTPCREL(%rip)` has no size.
        Some((size, operand)) if !size.is_empty() && size.bytes().all(|it| b"-0123456789f".contains(&it)) => {
            (Some(size), operand)
        }
        _ => (None, text),
    };
    let word = if context.long { 8 } else { 4 };
    let known = match size {
        Some(size) => self::size(size),
        None => Some((word, false, false)),
    };
    let (bytes, signed, float) = known.unwrap_or((word, false, false));
    let place = known.filter(|_| operand.len() <= LONGEST).and_then(|_| argument_place(operand, context));
    let end = operand.char_indices().nth(LONGEST).map_or(operand.len(), |(end, _)| end);
    Argument { bytes, signed, float, place, text: operand[..end].to_owned() }
}

/// Bytes, signedness, and whether it is a float.
fn size(text: &str) -> Option<(u8, bool, bool)> {
    let (text, float) = text.strip_suffix('f').map_or((text, false), |text| (text, true));
    let (text, signed) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let bytes: u8 = text.parse().ok()?;
    matches!(bytes, 1 | 2 | 4 | 8).then_some((bytes, signed, float))
}

fn argument_place(text: &str, context: &Context<'_>) -> Option<ArgumentPlace> {
    if let Some(number) = text.strip_prefix('$') {
        let sum = sum(number, context)?;
        return (!sum.has_symbol).then_some(ArgumentPlace::Constant(sum.value));
    }
    if let Some(name) = text.strip_prefix('%') {
        let register = register(name).filter(|it| it.name != "rip" && (context.long || it.bits < 64))?;
        return Some(ArgumentPlace::Register(register));
    }
    let (displacement, registers) = match text.strip_suffix(')') {
        Some(text) => text.split_once('(').map(|(before, inside)| (before, Some(inside)))?,
        None => (text, None),
    };
    let displacement = match displacement {
        "" if registers.is_some() => Sum::default(),
        text => sum(text, context)?,
    };
    let Some(registers) = registers else {
        return Some(ArgumentPlace::Memory { base: None, index: None, displacement: displacement.value });
    };
    let mut fields = registers.split(',').map(str::trim);
    let mut field = || fields.next().filter(|field| !field.is_empty());
    let (base, index, scale) = (field(), field(), field());
    if fields.next().is_some() {
        return None;
    }
    let address = |text: &str| {
        let bits = if context.long { 64 } else { 32 };
        register(text.strip_prefix('%')?).filter(|register| register.bits == bits)
    };
    let base = base.map(|base| address(base).ok_or(())).transpose().ok()?;
    let index = match (index, scale) {
        (None, None) => None,
        (None, Some(_)) => return None,
        (Some(index), scale) => {
            let scale =
                scale.map_or(Ok(1), str::parse).ok().filter(|scale| matches!(scale, 1 | 2 | 4 | 8))?;
            Some((address(index).filter(|it| !matches!(it.name, "rip" | "rsp"))?, scale))
        }
    };
    if base.is_none() && index.is_none() {
        return None;
    }
    if base.is_some_and(|base| base.name == "rip") {
        // An assembler makes `sym(%rip)` mean the symbol. A number is counted from the end of an
        // instruction that is not there.
        let vaddr = displacement.has_symbol.then_some(displacement.value)?;
        let displacement = vaddr.wrapping_sub(context.vaddr as i64);
        return index.is_none().then_some(ArgumentPlace::Memory { base, index, displacement });
    }
    Some(ArgumentPlace::Memory { base, index, displacement: displacement.value })
}

/// Numbers and at most one symbol, added up.
#[derive(Default)]
struct Sum {
    value: i64,
    has_symbol: bool,
}

/// Reads `-16`, `sym`, `sym+8`, `8+sym`, `16-4+8`.
fn sum(text: &str, context: &Context<'_>) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut rest = text;
    for _ in 0..TERMS {
        let (negative, term) = match rest.as_bytes().first()? {
            b'-' => (true, &rest[1..]),
            b'+' => (false, &rest[1..]),
            _ => (false, rest),
        };
        let end = term.find(['+', '-']).unwrap_or(term.len());
        let (term, after) = term.split_at(end);
        let value = match number(term) {
            Some(value) => value,
            None if is_symbol(term) && !negative && !sum.has_symbol => {
                sum.has_symbol = true;
                (context.symbol)(term)? as i64
            }
            None => return None,
        };
        sum.value = if negative { sum.value.wrapping_sub(value) } else { sum.value.wrapping_add(value) };
        rest = after;
        if rest.is_empty() {
            return Some(sum);
        }
    }
    None
}

/// A number as assemblers have it. The largest ones are negative.
fn number(text: &str) -> Option<i64> {
    let is_digits = |text: &str, radix| !text.is_empty() && text.chars().all(|it| it.is_digit(radix));
    let value = match text.strip_prefix("0x") {
        Some(digits) if is_digits(digits, 16) => u64::from_str_radix(digits, 16),
        None if is_digits(text, 10) => text.parse(),
        _ => return None,
    };
    value.ok().map(|value| value as i64)
}

fn is_symbol(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|it| it.is_alphanumeric() || matches!(it, '_' | '.' | '$'))
}

/// The registers whose parts have names of their own: 64, 32, 16 and 8 bits, and bits 8 to 15.
const OLD: &[(&str, [&str; 5])] = &[
    ("rax", ["rax", "eax", "ax", "al", "ah"]),
    ("rbx", ["rbx", "ebx", "bx", "bl", "bh"]),
    ("rcx", ["rcx", "ecx", "cx", "cl", "ch"]),
    ("rdx", ["rdx", "edx", "dx", "dl", "dh"]),
    ("rsi", ["rsi", "esi", "si", "sil", ""]),
    ("rdi", ["rdi", "edi", "di", "dil", ""]),
    ("rbp", ["rbp", "ebp", "bp", "bpl", ""]),
    ("rsp", ["rsp", "esp", "sp", "spl", ""]),
    ("rip", ["rip", "", "", "", ""]),
];
/// The others; a letter behind the name tells the part.
const NEW: &[&str] = &["r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// A register by its name without `%`.
fn register(name: &str) -> Option<ArgumentRegister> {
    const PARTS: [(u8, u8); 5] = [(64, 0), (32, 0), (16, 0), (8, 0), (8, 8)];
    for (whole, parts) in OLD {
        if let Some(part) = parts.iter().position(|part| !part.is_empty() && *part == name) {
            let (bits, shift) = PARTS[part];
            return Some(ArgumentRegister { name: whole, bits, shift });
        }
    }
    // `r1` is the beginning of none of them, but `r10` of no other.
    let whole = NEW.iter().filter(|whole| name.starts_with(**whole)).max_by_key(|whole| whole.len())?;
    let bits = match name.strip_prefix(whole)? {
        "" => 64,
        "d" => 32,
        "w" => 16,
        "b" | "l" => 8,
        _ => return None,
    };
    Some(ArgumentRegister { name: whole, bits, shift: 0 })
}

impl Display for Argument {
    /// Its type: `int32`, `uint8`, `double`; with a question mark if it has no place.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match (self.float, self.bytes, self.signed) {
            (true, 8, _) => out.write_str("double")?,
            (true, 4, _) => out.write_str("float")?,
            (true, bytes, _) => write!(out, "float{}", 8 * u32::from(bytes))?,
            (false, bytes, true) => write!(out, "int{}", 8 * u32::from(bytes))?,
            (false, bytes, false) => write!(out, "uint{}", 8 * u32::from(bytes))?,
        }
        if self.place.is_none() { out.write_str("?") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(long: bool, text: &str) -> Vec<Argument> {
        let symbol = |name: &str| match name {
            "counter" => Some(0x4000),
            "table.0" => Some(0x5000),
            _ => None,
        };
        parse(text, &Context { long, vaddr: 0x1000, symbol: &symbol })
    }

    fn one(text: &str) -> Argument {
        let mut all = read(true, text);
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0)
    }

    fn shown(text: &str) -> String {
        let register = |it: ArgumentRegister| format!("{}/{}/{}", it.name, it.bits, it.shift);
        let argument = one(text);
        let place = match argument.place {
            None => "unknown".to_owned(),
            Some(ArgumentPlace::Constant(value)) => format!("= {value}"),
            Some(ArgumentPlace::Register(it)) => register(it),
            Some(ArgumentPlace::Memory { base, index, displacement }) => {
                let base = base.map_or(String::new(), |base| base.name.to_owned());
                let index = index.map_or(String::new(), |(it, scale)| format!(" + {} * {scale}", it.name));
                format!("[{base}{index} + {displacement:#x}]")
            }
        };
        format!("{} {place}", argument.to_string().trim_end_matches('?'))
    }

    #[test]
    fn operands_are_places() {
        for (text, expected) in [
            ("-4@%eax", "int32 rax/32/0"),
            ("8@%rip", "uint64 unknown"),
            ("1@%ah", "uint8 rax/8/8"),
            ("-1@%sil", "int8 rsi/8/0"),
            ("2@%r10w", "uint16 r10/16/0"),
            ("8@%r1", "uint64 unknown"),
            ("8@%r15", "uint64 r15/64/0"),
            ("4@$5", "uint32 = 5"),
            ("-4@$-1", "int32 = -1"),
            ("8@$0xffffffffffffffff", "uint64 = -1"),
            ("8@$18446744073709551616", "uint64 unknown"),
            ("8@$counter", "uint64 unknown"),
            ("8@-16(%rbp)", "uint64 [rbp + 0xfffffffffffffff0]"),
            ("8@(%rsp)", "uint64 [rsp + 0x0]"),
            ("8@16-4+8(%rsp)", "uint64 [rsp + 0x14]"),
            ("8@8(%rax,%rbx,4)", "uint64 [rax + rbx * 4 + 0x8]"),
            ("8@(%rax,%rbx)", "uint64 [rax + rbx * 1 + 0x0]"),
            ("4@counter(,%rcx,8)", "uint32 [ + rcx * 8 + 0x4000]"),
            ("4@(%rax,%rsp)", "uint32 unknown"),
            ("4@(%rax,%rbx,3)", "uint32 unknown"),
            ("4@(%eax)", "uint32 unknown"),
            ("4@()", "uint32 unknown"),
            ("-8@counter(%rip)", "int64 [rip + 0x3000]"),
            ("-8@table.0+4(%rip)", "int64 [rip + 0x4004]"),
            ("-8@4+table.0(%rip)", "int64 [rip + 0x4004]"),
            ("-8@other(%rip)", "int64 unknown"),
            ("-8@16(%rip)", "int64 unknown"),
            ("4@counter", "uint32 [ + 0x4000]"),
            ("8f@%xmm0", "double unknown"),
            ("4f@8(%rsp)", "float [rsp + 0x8]"),
            ("4@%fs:8", "uint32 unknown"),
            ("counter@GOTPCREL(%rip)", "uint64 unknown"),
            ("%edi", "uint64 rdi/32/0"),
            ("3@%eax", "uint64 unknown"),
            ("--4@%eax", "uint64 unknown"),
            ("4@", "uint32 unknown"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn code_of_32_bits_has_its_own_registers() {
        let all = read(false, "4@%eax 4@8(%ebp) 8@%rax -4@(%rax) %ecx");
        let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["uint32", "uint32", "uint64?", "int32?", "uint32"]);
    }

    #[test]
    fn there_are_not_too_many() {
        assert_eq!(read(true, &"4@%eax ".repeat(100)).len(), MOST);
        let long = format!("4@{}", "1+".repeat(1000) + "1");
        let argument = one(&long);
        assert_eq!((argument.place, argument.text.len()), (None, LONGEST));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,80}") {
            for long in [true, false] {
                prop_assert!(read(long, &text).len() <= MOST);
            }
        }

        #[test]
        fn what_resembles_arguments_is_read(text in "([-0-9f]{0,3}@?[$%]?[-+0-9a-z.]{0,12}(\\([%a-z0-9,]{0,12}\\))? ?){0,6}") {
            for long in [true, false] {
                for argument in read(long, &text) {
                    prop_assert!(matches!(argument.bytes, 1 | 2 | 4 | 8));
                }
            }
        }

        #[test]
        fn sums_are_written_and_read(terms in proptest::collection::vec(-9999_i64..9999, 1..TERMS)) {
            let text = terms.iter().enumerate().map(|(number, term)| match number {
                0 => term.to_string(),
                _ => format!("{term:+}"),
            });
            let argument = one(&format!("8@{}(%rbx)", text.collect::<String>()));
            let Some(ArgumentPlace::Memory { displacement, .. }) = argument.place else {
                return Err(TestCaseError::fail("no memory"));
            };
            prop_assert_eq!(displacement, terms.iter().sum::<i64>());
        }
    }
}
