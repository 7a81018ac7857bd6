//! Compiles the text of `fmt` statements to items.

use std::ops::Range;
use std::sync::Arc;

use super::condition::Condition;
use super::control::{Control, Group, Item, Width};
use super::lex::StringLiteral;
use super::mask::Mask;
use super::problem::Mistake;
use super::resolve::resolve;

/// The deepest nesting of groups.
const DEPTH: usize = 16;

/// The widest integer in bytes: shown as a number, and in hexadecimal (a zmm register).
const INTEGER: u16 = 8;
const HEXADECIMAL: u16 = 64;

/// The message for what should have been a control.
const CONTROLS: &str = "one of c d f i m p r s u x z ? expected, or %% for the character";

/// Compiles the text of a template's `fmt` statements. After a mistake it continues, to find more.
pub(super) fn compile(text: &StringLiteral, mistakes: &mut Vec<Mistake>) -> Vec<Item> {
    let before = mistakes.len();
    let mut compiler = Compiler { text, at: 0, conditions: Vec::new(), mistakes };
    let mut items = Vec::new();
    loop {
        compiler.sequence(&mut items, 0);
        match compiler.next() {
            // The names of values are only known if all of them are.
            None if compiler.mistakes.len() > before => return items,
            None => {
                for problem in resolve(&mut items) {
                    let range = compiler.conditions.get(problem.condition).cloned().unwrap_or_default();
                    compiler.tell(range, problem.message, problem.expected);
                }
                return items;
            }
            // `sequence` stops before a `)` that it has not opened.
            Some(_) => {
                let range = compiler.range(compiler.at - 1);
                compiler.tell(range, "this `)` ends no group", "`%)` expected for the character itself");
            }
        }
    }
}

struct Compiler<'a> {
    text: &'a StringLiteral,
    at: usize,
    /// The conditions' ranges in the file, in their order.
    conditions: Vec<Range<usize>>,
    mistakes: &'a mut Vec<Mistake>,
}

/// A width in the source.
struct ParsedWidth {
    width: Option<Width>,
    range: Range<usize>,
}

impl Compiler<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    fn next_if(&mut self, wanted: impl FnOnce(u8) -> bool) -> Option<u8> {
        self.peek().filter(|&next| wanted(next)).inspect(|_| self.at += 1)
    }

    /// The range in the file of the text from byte `from` to the last byte read.
    fn range(&self, from: usize) -> Range<usize> {
        let place = |at: usize| self.text.places.get(at).copied();
        let start = place(from).or_else(|| self.text.places.last().map(|last| last + 1)).unwrap_or(0);
        let end = place(self.at.saturating_sub(1)).map_or(start, |last| last + 1);
        start..end.max(start)
    }

    fn tell(&mut self, range: Range<usize>, message: impl Into<String>, expected: impl Into<String>) {
        self.mistakes.push(Mistake::new(range, message, expected));
    }

    /// Compiles items up to the end of the text or a `)`.
    fn sequence(&mut self, items: &mut Vec<Item>, depth: usize) {
        let mut literal = Vec::new();
        // Whether there was a `%z`, which takes all data.
        let mut taken_all = false;
        while let Some(next) = self.next_if(|next| next != b')') {
            match next {
                b'%' => {
                    if let Some(character) = self.next_if(|next| matches!(next, b'%' | b'(' | b')')) {
                        literal.push(character);
                        continue;
                    }
                    let start = self.at - 1;
                    let Some(item) = self.control(start, depth) else { continue };
                    let range = self.range(start);
                    if taken_all {
                        self.tell(range, "the `%z` before leaves no data", "only text expected after it");
                    }
                    taken_all |= item == Item::Control(Control::Dump.into());
                    if !literal.is_empty() {
                        items.push(Item::Literal(std::mem::take(&mut literal).into()));
                    }
                    items.push(item);
                }
                b'(' => {
                    let range = self.range(self.at - 1);
                    self.tell(range, "this `(` begins no group", "`%(` expected for the character itself");
                }
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            items.push(Item::Literal(literal.into()));
        }
    }

    /// Compiles what follows a `%` at `start`, unless that is an escaped character.
    fn control(&mut self, start: usize, depth: usize) -> Option<Item> {
        let written = self.width()?;
        match self.peek() {
            Some(b'p') => {
                self.at += 1;
                self.without_width(&written, "p")?;
                self.prefixed(start, depth)
            }
            Some(b'r') => {
                self.at += 1;
                self.without_width(&written, "r")?;
                self.repeated(start, depth)
            }
            Some(b'?') => {
                self.at += 1;
                self.without_width(&written, "?")?;
                self.conditional(start, depth)
            }
            _ => self.simple(start, &written).map(|control| Item::Control(control.into())),
        }
    }

    /// Parses an optional width.
    fn width(&mut self) -> Option<ParsedWidth> {
        let first = self.at;
        if self.peek() == Some(b'w')
            && matches!(self.text.bytes.get(self.at + 1), Some(b'd' | b'u' | b'x' | b'i' | b'm'))
        {
            self.at += 1;
            return Some(ParsedWidth { width: Some(Width::Word), range: self.range(first) });
        }
        let mut value: Option<u32> = None;
        while let Some(digit) = self.next_if(|next| next.is_ascii_digit()) {
            let digit = u32::from(digit - b'0');
            value = Some(value.unwrap_or(0).saturating_mul(10).saturating_add(digit));
        }
        let range = self.range(first);
        match value.map(u16::try_from) {
            None => Some(ParsedWidth { width: None, range }),
            Some(Ok(width @ 1..)) => Some(ParsedWidth { width: Some(Width::Bytes(width)), range }),
            _ => {
                self.tell(range, "no control has this width", "a number from 1 to 65535 expected");
                // Skip the control that it belongs to.
                self.next_if(|next| next.is_ascii_alphabetic());
                None
            }
        }
    }

    fn without_width(&mut self, written: &ParsedWidth, control: &str) -> Option<()> {
        if written.width.is_some() {
            self.tell(written.range.clone(), format!("`%{control}` takes no width"), "nothing expected here");
            return None;
        }
        Some(())
    }

    /// Compiles a control other than `p` and `r`.
    fn simple(&mut self, start: usize, written: &ParsedWidth) -> Option<Control> {
        let Some(letter) = self.next() else {
            let range = self.range(start);
            self.tell(range, "the text ends within a control", CONTROLS);
            return None;
        };
        let width = written.width.unwrap_or(Width::Bytes(1));
        let control = match letter {
            b'c' => Control::Characters(width),
            b'i' => Control::Skip(width),
            b'd' => Control::Signed(self.up_to(width, INTEGER, written, "d")?),
            b'u' => Control::Unsigned(self.up_to(width, INTEGER, written, "u")?),
            b'x' => Control::Hexadecimal(self.up_to(width, HEXADECIMAL, written, "x")?),
            b'm' => {
                let width = self.up_to(width, INTEGER, written, "m")?;
                Control::Names(width, Arc::new(self.names(start, width)?))
            }
            b'f' if matches!(width, Width::Bytes(4 | 8 | 10)) => Control::Float(width),
            b'f' => {
                let range = self.range(start);
                self.tell(
                    range,
                    "no floating point number has this width",
                    "`%4f`, `%8f` or `%10f` expected",
                );
                return None;
            }
            b's' | b'z' => {
                let (name, control) =
                    if letter == b's' { ("s", Control::Text) } else { ("z", Control::Dump) };
                self.without_width(written, name)?;
                control
            }
            other => {
                // Skip the rest of a multi-byte character, so that it is not another mistake.
                while self.next_if(|next| !other.is_ascii() && next & 0xc0 == 0x80).is_some() {}
                let range = self.range(start);
                let (message, expected) = match other {
                    b'(' | b')' => ("a group may only follow `%r` or `%p`", "`%r(` or `%p(` expected"),
                    _ => ("this is not a control", CONTROLS),
                };
                self.tell(range, message, expected);
                return None;
            }
        };
        Some(control)
    }

    fn up_to(&mut self, width: Width, most: u16, written: &ParsedWidth, name: &str) -> Option<Width> {
        if matches!(width, Width::Bytes(bytes) if bytes > most) {
            self.tell(
                written.range.clone(),
                format!("`%{name}` cannot have this width"),
                format!("1 to {most} expected"),
            );
            return None;
        }
        Some(width)
    }

    /// Compiles what follows `%p`.
    fn prefixed(&mut self, start: usize, depth: usize) -> Option<Item> {
        match self.peek() {
            Some(b'(') => Some(Item::Group(self.group(start, depth)?)),
            Some(refused @ (b'r' | b'u' | b'p')) => {
                self.at += 1;
                let range = self.range(start);
                let refused = char::from(refused);
                let mistake = Mistake::new(
                    range,
                    format!("`%p` cannot be combined with `{refused}`"),
                    "one of c d f i m s x z expected, or a group",
                );
                self.mistakes.push(match refused {
                    'u' => mistake.help("a group may hold it: `%p(%4u)`"),
                    'r' => mistake.help("`%r` reads a prefix itself"),
                    _ => mistake,
                });
                None
            }
            Some(next) if next.is_ascii_alphanumeric() => {
                let written = self.width()?;
                match self.peek() {
                    Some(b'u' | b'r' | b'p') => self.prefixed(start, depth),
                    _ => self.simple(start, &written).map(|control| Item::Prefixed(control.into())),
                }
            }
            _ => Some(Item::Prefix),
        }
    }

    /// Compiles what follows `%r`.
    fn repeated(&mut self, start: usize, depth: usize) -> Option<Item> {
        if depth >= DEPTH {
            self.too_deep(start);
            return None;
        }
        let part = match self.peek() {
            Some(b'(') => self.group(start, depth)?,
            Some(next) if next.is_ascii_alphanumeric() => Group::new(vec![self.control(start, depth + 1)?]),
            _ => {
                let range = self.range(start);
                self.tell(
                    range,
                    "`%r` repeats nothing",
                    "a control or a group expected after it, as in `%r4x` or `%r(%4x )`",
                );
                return None;
            }
        };
        let takes_data = part.items.iter().any(|item| {
            // A group whose condition does not hold takes none.
            !matches!(item, Item::Literal(_) | Item::Conditional(..))
        });
        if !takes_data {
            let range = self.range(start);
            self.tell(
                range,
                "nothing in this group takes data: it would be repeated without end",
                "a control expected in it",
            );
            return None;
        }
        Some(Item::Repeated(part))
    }

    /// Compiles a group; the next byte is its `(`.
    fn group(&mut self, start: usize, depth: usize) -> Option<Group> {
        self.at += 1;
        if depth >= DEPTH {
            self.too_deep(start);
            return None;
        }
        let opening = self.range(start);
        let mut items = Vec::new();
        self.sequence(&mut items, depth + 1);
        if self.next().is_none() {
            self.tell(opening, "this group does not end", "`)` expected after it");
            return None;
        }
        Some(Group::new(items))
    }

    /// Parses the names of bits after `%m`.
    fn names(&mut self, start: usize, width: Width) -> Option<Mask> {
        if self.next_if(|next| next == b'(').is_none() {
            let range = self.range(start);
            self.tell(range, "`%m` has no names", "`%m(NAME=BIT,...)` expected");
            return None;
        }
        let from = self.at;
        while self.next_if(|next| next != b')').is_some() {}
        let text = &self.text.bytes[from..self.at];
        if self.next().is_none() {
            let range = self.range(start);
            self.tell(range, "these names do not end", "`)` expected after them");
            return None;
        }
        match Mask::parse(text, width.bytes(8) as u32 * 8) {
            Ok(mask) => Some(mask),
            Err(wrong) => {
                self.tell_part(from, wrong);
                None
            }
        }
    }

    /// Compiles a condition after `%?`, and its group.
    fn conditional(&mut self, start: usize, depth: usize) -> Option<Item> {
        let from = self.at;
        while self.next_if(|next| next != b'(' && next != b'%').is_some() {}
        let condition = Condition::parse(&self.text.bytes[from..self.at]);
        self.conditions.push(self.range(start));
        if self.peek() != Some(b'(') {
            let range = self.range(start);
            self.tell(range, "this condition has no group", "`%?NAME=NUMBER(...)` expected");
            return None;
        }
        match condition {
            // Its group is read in any case, for the mistakes in it.
            Ok(condition) => Some(Item::Conditional(condition, self.group(start, depth)?)),
            Err(wrong) => {
                self.tell_part(from, wrong);
                self.group(start, depth);
                None
            }
        }
    }

    /// Reports a mistake in a part of the text that begins at byte `from`.
    fn tell_part(&mut self, from: usize, Mistake { range, message, expected, .. }: Mistake) {
        let here = std::mem::replace(&mut self.at, from + range.end.max(range.start + 1));
        let range = self.range(from + range.start);
        self.at = here;
        self.tell(range, message, expected);
    }

    fn too_deep(&mut self, start: usize) {
        let range = self.range(start);
        self.tell(range, "groups are nested too deeply", format!("at most {DEPTH} levels"));
    }
}
