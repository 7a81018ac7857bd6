//! Checks the statements of the headers, and builds the [`Object`] and its probes from them.

mod point;

use std::ops::RangeInclusive;

use source::{Diagnostic, Keep, Messages, Span, nearest, quote};
use vm::Word;

use crate::arch::Arch;
use crate::ast::{ProbePoint, Program, Statement, Value};
use crate::expression::{Expression, Name};
use crate::keys::Key;
use crate::object::{Access, ModuleKind, Object, Probe, Watch};

/// Maximum number of groups or types that a program may define.
pub(crate) const MAX_NAMES: usize = 1000;

/// Default of `logmax`.
pub(crate) const LOGMAX: usize = 1024;
/// Default of `jmpmax`.
pub(crate) const JMPMAX: u32 = 256;
/// Default of `excpt_log`.
pub(crate) const EXCPT_LOG: usize = 1024;
/// Default of `heapmax`.
pub(crate) const HEAPMAX: usize = vm::HEAP_LIMIT;
/// Default of `maxhits`.
pub(crate) const MAXHITS: u64 = 0x7fff_ffff;

/// Values of the file header for probes that do not set their own.
#[derive(Clone, Copy, Debug)]
struct Defaults {
    ignore: u64,
    maxhits: u64,
    logonfault: bool,
}

/// Builds an object from the headers of a program; the probes have no code yet.
pub(crate) fn headers(program: &Program, arch: Arch, end: Span, messages: &mut Messages) -> Object {
    let header = Statements { all: &program.header, messages };
    let (mut object, defaults) = header.file(arch, end);
    let probes = program.items.iter().filter_map(|item| match item {
        crate::ast::Item::Probe(probe) => Some(probe),
        crate::ast::Item::Procedure(_) => None,
    });
    for probe in probes {
        if messages.full() {
            break;
        }
        let statements = Statements { all: &probe.header, messages };
        let probe = statements.probe(probe, &object, defaults);
        object.probes.push(probe);
    }
    if object.probes.is_empty() && !messages.has_errors() {
        messages.add(
            Diagnostic::error(end, "the program has no probe")
                .label("expected `offset =`, `address =` or `tracepoint =` before the end")
                .help("a probe is `offset = SYMBOL` and the instructions of its handler"),
        );
    }
    object
}

/// The statements of one header.
struct Statements<'a> {
    all: &'a [Statement],
    messages: &'a mut Messages,
}

impl<'a> Statements<'a> {
    fn find(&self, key: Key) -> Option<&'a Statement> {
        self.all.iter().find(|statement| statement.key == key)
    }

    fn name(&self, key: Key) -> Option<&'a Name> {
        match &self.find(key)?.value {
            Some(Value::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// The number of a statement; `None` if it is missing or outside the limits.
    fn number(&mut self, key: Key, limits: RangeInclusive<i128>) -> Option<i128> {
        let Some(Value::Number(expression)) = &self.find(key)?.value else { return None };
        let what = format!("`{} =`", key.name());
        within(expression, &what, limits).or_report(self.messages)
    }

    fn unsigned<T: TryFrom<i128> + Default>(&mut self, key: Key, most: i128) -> T {
        self.unsigned_or(key, most, T::default())
    }

    fn unsigned_or<T: TryFrom<i128> + Default>(&mut self, key: Key, most: i128, default: T) -> T {
        // A wrong number has been reported, so the object is not used.
        self.number(key, 0..=most).and_then(|number| T::try_from(number).ok()).unwrap_or(default)
    }

    fn yes(&self, key: Key) -> Option<bool> {
        self.name(key).map(|name| name.text == "yes")
    }

    fn names(&mut self, key: Key) -> Vec<String> {
        let Some(Value::Names(names)) = self.find(key).and_then(|statement| statement.value.as_ref()) else {
            return Vec::new();
        };
        if let Some(first) = names.get(MAX_NAMES) {
            let wrong = Diagnostic::error(first.place, format!("too many names in `{} =`", key.name()));
            self.messages.add(wrong.label(format!("expected at most {MAX_NAMES}")));
            return Vec::new();
        }
        let mut kept: Vec<&Name> = Vec::new();
        let mut again = Vec::new();
        for name in names {
            match kept.iter().find(|other| other.text.eq_ignore_ascii_case(&name.text)) {
                Some(first) => again.push((name, first.place.span)),
                None => kept.push(name),
            }
        }
        let texts = kept.iter().map(|name| name.text.clone()).collect();
        for (name, first) in again {
            let warning = Diagnostic::warning(name.place, format!("{} is listed twice", quote(&name.text)));
            self.messages.add(warning.label("once is enough").related(first, "first here"));
        }
        texts
    }

    /// A count of hits. `maxhits = 0` means that none is given, as in the original.
    fn hits(&mut self, key: Key, otherwise: u64) -> u64 {
        let Some(number) = self.number(key, 0..=u64::MAX.into()) else { return otherwise };
        if key == Key::Maxhits && number == 0 {
            let place = self.find(key).map_or(Span::default(), Statement::span);
            let note = Diagnostic::note(place, "`maxhits = 0` means the default limit");
            self.messages.add(note.label(format!("read as {MAXHITS:#x}")));
            return MAXHITS;
        }
        u64::try_from(number).unwrap_or(otherwise)
    }

    fn file(mut self, arch: Arch, end: Span) -> (Object, Defaults) {
        if self.find(Key::Name).is_none() {
            let start = Span { start: 0, end: 0, ..end };
            let first = self.all.first().map_or(start, |statement| statement.place.span);
            self.messages.add(
                Diagnostic::error(first, "the file header has no `name =`")
                    .label("expected `name =` in the file header")
                    .help("`name = \"/path/of/the/module\"` says which program or library is probed"),
            );
        }
        let kind = match self.name(Key::Modtype).map(|name| name.text.as_str()) {
            Some("kernel") => ModuleKind::Kernel,
            Some("kmod") => ModuleKind::KernelModule,
            _ => ModuleKind::User,
        };
        let object = Object {
            module: self.name(Key::Name).map(|name| name.text.clone()).unwrap_or_default(),
            kind,
            arch,
            vars: self.unsigned(Key::Vars, u16::MAX.into()),
            gvars: self.unsigned(Key::Gvars, u16::MAX.into()),
            major: self.unsigned(Key::Major, u16::MAX.into()),
            id: self.unsigned(Key::Id, u32::MAX.into()),
            logmax: self.unsigned_or(Key::Logmax, vm::LOG_LIMIT as i128, LOGMAX),
            jmpmax: self.unsigned_or(Key::Jmpmax, u16::MAX.into(), JMPMAX),
            insmax: self.unsigned_or(Key::Insmax, vm::INSTRUCTION_LIMIT.into(), vm::INSTRUCTIONS),
            excpt_log: self.unsigned_or(Key::ExcptLog, vm::TRACE_LIMIT as i128, EXCPT_LOG),
            autostacktrace: self.yes(Key::Autostacktrace).unwrap_or(false),
            heapmax: self.unsigned_or(Key::Heapmax, vm::HEAP_LIMIT as i128, HEAPMAX),
            groups: self.names(Key::Groupdef),
            types: self.names(Key::Typedef),
            ..Object::default()
        };
        let defaults = Defaults {
            ignore: self.hits(Key::Ignore, 0),
            maxhits: self.hits(Key::Maxhits, MAXHITS),
            logonfault: self.yes(Key::Logonfault).unwrap_or(false),
        };
        (object, defaults)
    }

    fn probe(mut self, probe: &ProbePoint, object: &Object, defaults: Defaults) -> Probe {
        self.check_point(object.kind);
        let (location, length) = self.location(object.word());
        let point = self.point_statement();
        Probe {
            point: point.map(|point| point.written.clone()).unwrap_or_default(),
            span: point.map_or(Span::default(), Statement::span),
            location,
            watch: self.watch(object, length, probe),
            opcode: self.opcode(object.arch),
            minor: self.unsigned(Key::Minor, u16::MAX.into()),
            group: self.member(Key::Group, Key::Groupdef, &object.groups),
            kind: self.member(Key::Type, Key::Typedef, &object.types),
            ignore: self.hits(Key::Ignore, defaults.ignore),
            maxhits: self.hits(Key::Maxhits, defaults.maxhits),
            logonfault: self.yes(Key::Logonfault).unwrap_or(defaults.logonfault),
            mask: self.unsigned_or(Key::ExcptMask, u16::MAX.into(), vm::DEFAULT_MASK),
            heap: self.heap(object.heapmax),
            entry: 0,
            end: 0,
            sites: Vec::new(),
        }
    }

    fn watch(&mut self, object: &Object, length: Option<i128>, probe: &ProbePoint) -> Option<Watch> {
        let Some(name) = self.name(Key::Watchpoint) else {
            if let (Some(_), Some(point)) = (length, self.point_statement()) {
                let warning = Diagnostic::warning(point.span(), "the end of this range has no effect")
                    .label("only a watchpoint has a range")
                    .help("add `watchpoint = x`, `w`, `rw` or `io`, or remove the end of the range");
                self.messages.add(warning);
            }
            return None;
        };
        let place = name.place;
        let access = Access::ALL.iter().copied().find(|access| access.name() == name.text)?;
        let wrong = if !object.arch.is_intel() {
            Some(
                Diagnostic::error(place, format!("there are no watchpoints on {}", object.arch))
                    .label("only Intel processors have them"),
            )
        } else if object.kind == ModuleKind::User && access == Access::Io {
            Some(
                Diagnostic::error(place, "a watchpoint on a port in a user program")
                    .label("a user program has memory to watch, no ports")
                    .help("ports are watched in a program with `modtype = kernel`"),
            )
        } else if self.find(Key::Address).is_none() {
            Some(
                Diagnostic::error(place, "a watchpoint without an address")
                    .label(format!("expected `address =` instead of `{} =`", self.point_name())),
            )
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.messages.add(wrong);
            return None;
        }
        let length = length.unwrap_or(1);
        let allowed: &[i128] = match (access, object.word()) {
            (Access::Execute, _) => &[1],
            (Access::Io, _) | (_, Word::W4) => &[1, 2, 4],
            (_, Word::W8) => &[1, 2, 4, 8],
        };
        let span = self.point_statement().map_or(place.span, Statement::span);
        if !allowed.contains(&length) {
            let list = allowed.iter().map(i128::to_string).collect::<Vec<_>>().join(", ");
            let plural = if allowed == [1] { "" } else { "s" };
            self.messages.add(
                Diagnostic::error(span, format!("a watchpoint of {length} bytes"))
                    .label(format!("the processor watches {list} byte{plural} for `{}`", access.name())),
            );
            return None;
        }
        let first = probe.header.iter().find_map(|statement| match &statement.value {
            Some(Value::Number(first) | Value::Range(first, _)) if statement.key == Key::Address => {
                first.value().ok()
            }
            _ => None,
        });
        if let Some(first) = first.filter(|first| first.symbol.is_none() && first.number % length != 0) {
            self.messages.add(
                Diagnostic::error(span, format!("the address {:#x} is not aligned", first.number))
                    .label(format!("expected a multiple of {length}")),
            );
            return None;
        }
        Some(Watch { access, length: u8::try_from(length).unwrap_or(1) })
    }

    /// The heap size of a probe, limited by the file header.
    fn heap(&mut self, most: usize) -> usize {
        let Some(number) = self.number(Key::Heap, 0..=vm::HEAP_LIMIT as i128) else { return most };
        if let Some(wrong) = self.find(Key::Heap).filter(|_| number > most as i128) {
            let plural = if number == 1 { "" } else { "s" };
            let wrong = Diagnostic::error(wrong.span(), format!("a heap of {number} byte{plural}"));
            let wrong = wrong.label(format!("the file header allows `heapmax = {most}`"));
            self.messages.add(wrong);
        }
        usize::try_from(number).unwrap_or(most)
    }

    fn opcode(&mut self, arch: Arch) -> Option<u32> {
        let most = (1i128 << (8 * arch.opcode_bytes())) - 1;
        let Some(Value::Number(expression)) = &self.find(Key::Opcode)?.value else { return None };
        let number = within(expression, "`opcode =`", 0..=most).map_err(|wrong| match arch.opcode_bytes() {
            1 => wrong,
            bytes => wrong.help(format!("it is the first {bytes} bytes of the instruction on {arch}")),
        });
        let number = u32::try_from(number.or_report(self.messages)?).ok()?;
        if let Some(named) = arch.unprobed(number) {
            let span = self.find(Key::Opcode).map_or(Span::default(), Statement::span);
            self.messages.add(
                Diagnostic::error(span, format!("no probe can be placed on `{named}`"))
                    .label("this is its opcode"),
            );
        }
        Some(number)
    }

    /// The group or type of a probe, spelled as in the file header.
    fn member(&mut self, key: Key, definition: Key, defined: &[String]) -> Option<String> {
        let name = self.name(key)?;
        if let Some(found) = defined.iter().find(|other| other.eq_ignore_ascii_case(&name.text)) {
            return Some(found.clone());
        }
        let what = key.name();
        let wrong = Diagnostic::error(name.place, format!("the {what} {} is not defined", quote(&name.text)))
            .label(expected_names(definition, defined));
        let wrong = match nearest(&name.text, defined.iter().map(String::as_str)) {
            Some(near) => wrong.suggest(Some(near)),
            None => wrong.help(format!("the file header defines it: `{} = {}`", definition.name(), name)),
        };
        self.messages.add(wrong);
        None
    }
}

/// The names that a header statement defines, for a message.
fn expected_names(definition: Key, defined: &[String]) -> String {
    /// Maximum number of names listed.
    const SHOWN: usize = 8;
    let names: Vec<String> = defined.iter().take(SHOWN).map(|name| quote(name)).collect();
    let definition = definition.name();
    match (names.as_slice(), defined.len().saturating_sub(SHOWN)) {
        ([], _) => format!("the file header has no `{definition} =`"),
        ([only], 0) => format!("expected {only}, which `{definition} =` defines"),
        (names, 0) => format!("expected one of {}, which `{definition} =` defines", names.join(", ")),
        (names, more) => format!("expected one of {} and {more} more of `{definition} =`", names.join(", ")),
    }
}

/// The value of an expression if it is a number within the limits.
pub(crate) fn within(
    expression: &Expression,
    what: &str,
    limits: RangeInclusive<i128>,
) -> Result<i128, Diagnostic> {
    let number = expression.value()?.plain()?;
    if limits.contains(&number) {
        return Ok(number);
    }
    let (least, most) = limits.into_inner();
    Err(Diagnostic::error(expression.place, format!("{what} cannot be {}", show(number))).label(format!(
        "expected {} to {}",
        show(least),
        show(most)
    )))
}

/// A number for messages: large ones in hexadecimal.
pub(crate) fn show(number: i128) -> String {
    if number.unsigned_abs() <= 0xffff_ffff {
        number.to_string()
    } else if number < 0 {
        format!("-{:#x}", number.unsigned_abs())
    } else {
        format!("{number:#x}")
    }
}
