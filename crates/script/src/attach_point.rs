//! Attach points: where a probe fires.

use std::fmt::{self, Display, Formatter};

use crate::ast::At;
use crate::provider::Provider;

/// An attach point.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachPoint {
    /// Where it is written.
    pub at: At,
    /// `name=` before it.
    pub label: Option<String>,
    /// Its provider.
    pub provider: Provider,
    /// Where it is.
    pub place: AttachTarget,
}

/// Where an attach point is. Names of functions, events, modules and files may have wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachTarget {
    /// The provider has one point.
    Only,
    /// A signal to dprobes.
    Signal(String),
    /// Regularly.
    Period(Unit, Number),
    /// After a number of events.
    Event(String, Option<Number>),
    /// A function of the kernel.
    Kernel {
        /// The kernel module.
        module: Option<String>,
        /// The function.
        function: String,
        /// The offset of the instruction in the function.
        offset: Option<u64>,
    },
    /// A tracepoint: subsystem or module, and event.
    Tracepoint(Option<String>, String),
    /// A function of a program or library.
    Function {
        /// The program or library.
        binary: Binary,
        /// The function; if `cpp`, as C++ writes it.
        function: String,
        /// Whether C++ names are meant.
        cpp: bool,
        /// The offset of the instruction in the function.
        offset: Option<u64>,
    },
    /// An offset in a program or library.
    Offset(Binary, u64),
    /// A source line.
    Line {
        /// The program or library.
        binary: Binary,
        /// The source file.
        file: String,
        /// The line, from 1.
        line: u64,
    },
    /// A probe that a program's author placed.
    Usdt {
        /// The program or library.
        binary: Binary,
        /// The probe's provider.
        namespace: Option<String>,
        /// The probe.
        name: String,
    },
    /// Accesses to memory.
    Watch {
        /// The memory.
        memory: Memory,
        /// The number of bytes: 1, 2, 4 or 8.
        length: u64,
        /// `w`, `rw` or `x`.
        mode: String,
    },
    /// The fields of a provider that no engine serves.
    Other(Vec<String>),
}

/// A program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Its path or name.
    pub path: String,
    /// The only process that is meant.
    pub process: Option<Process>,
}

/// The process of D's `pid` provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// `$target`: the process that dprobes starts or attaches to.
    Target,
    /// A number.
    Number(u32),
}

/// The unit of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None is written: nanoseconds.
    Nanoseconds,
    /// `us`
    Microseconds,
    /// `ms`
    Milliseconds,
    /// `s`
    Seconds,
    /// `hz`: times in a second.
    Hertz,
}

impl Unit {
    pub(crate) const ALL: &[(Unit, &str)] =
        &[(Unit::Microseconds, "us"), (Unit::Milliseconds, "ms"), (Unit::Seconds, "s"), (Unit::Hertz, "hz")];
}

/// A number that may come from the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A number.
    Literal(u64),
    /// `$1`.
    Positional(u32),
}

/// The memory that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// An address.
    Address(u64),
    /// A variable, or a function: of the probed program, else of the kernel.
    Symbol(String),
    /// Where an argument of a function points.
    Argument(String, u32),
}

impl Display for Number {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Number::Literal(value) => write!(out, "{value}"),
            Number::Positional(index) => write!(out, "${index}"),
        }
    }
}

/// A field of an attach point; in quotes if it would not be read back as one field. In a path,
/// `/` is part of the field.
fn field(text: &str, path: bool) -> String {
    let ends = |each: char| {
        each.is_whitespace() || matches!(each, ',' | '{' | '}' | ':' | '"' | ';') || each == '/' && !path
    };
    if text.is_empty() || text.chars().any(ends) { quoted(text) } else { text.to_string() }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A function's name; in quotes if it would be read as something else.
fn function_name(text: &str) -> String {
    let other = text.starts_with(|each: char| each.is_ascii_digit())
        || text.contains('+')
        || matches!(text, "cpp" | "entry" | "return");
    if other { quoted(text) } else { field(text, false) }
}

fn before(text: &Option<String>) -> String {
    text.as_ref().map_or(String::new(), |text| format!("{}:", field(text, false)))
}

fn plus(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!("+{offset:#x}"))
}

impl Display for AttachPoint {
    /// The point in its full form.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            write!(out, "{label}=")?;
        }
        let name = self.provider.name();
        match &self.place {
            AttachTarget::Only => out.write_str(name),
            AttachTarget::Signal(signal) => write!(out, "{name}:signal:{signal}"),
            AttachTarget::Period(unit, count) => match Unit::ALL.iter().find(|(each, _)| each == unit) {
                Some((_, unit)) => write!(out, "{name}:{unit}:{count}"),
                None => write!(out, "{name}:{count}"),
            },
            AttachTarget::Event(event, count) => {
                write!(out, "{name}:{event}")?;
                count.map_or(Ok(()), |count| write!(out, ":{count}"))
            }
            AttachTarget::Kernel { module, function, offset } => {
                write!(out, "{name}:{}{}{}", before(module), function_name(function), plus(*offset))
            }
            AttachTarget::Tracepoint(group, event) => {
                write!(out, "{name}:{}{}", before(group), field(event, false))
            }
            AttachTarget::Function { binary, function, cpp, offset } => {
                let function = function_name(function);
                if let Some(process) = binary.process {
                    let process = match process {
                        Process::Target => "$target".to_string(),
                        Process::Number(number) => number.to_string(),
                    };
                    let end = match (offset, self.provider) {
                        (Some(offset), _) => format!("{offset:x}"),
                        (None, Provider::Uretprobe) => "return".into(),
                        (None, _) => "entry".into(),
                    };
                    return write!(out, "pid{process}:{}:{function}:{end}", field(&binary.path, true));
                }
                let cpp = if *cpp { "cpp:" } else { "" };
                write!(out, "{name}:{}:{cpp}{function}{}", field(&binary.path, true), plus(*offset))
            }
            AttachTarget::Offset(binary, offset) => {
                write!(out, "{name}:{}:{offset:#x}", field(&binary.path, true))
            }
            AttachTarget::Line { binary, file, line } => {
                let file = if file.contains('/') { field(file, true) } else { function_name(file) };
                write!(out, "{name}:{}:{file}:{line}", field(&binary.path, true))
            }
            AttachTarget::Usdt { binary, namespace, name: probe } => {
                write!(
                    out,
                    "{name}:{}:{}{}",
                    field(&binary.path, true),
                    before(namespace),
                    field(probe, false)
                )
            }
            AttachTarget::Watch { memory, length, mode } => match memory {
                Memory::Address(address) => write!(out, "{name}:{address:#x}:{length}:{mode}"),
                Memory::Symbol(symbol) => write!(out, "{name}:{}:{length}:{mode}", function_name(symbol)),
                Memory::Argument(function, index) => {
                    write!(out, "{name}:{}+arg{index}:{length}:{mode}", field(function, false))
                }
            },
            AttachTarget::Other(fields) => {
                let path = self.provider == Provider::Iter;
                out.write_str(name)?;
                fields.iter().try_for_each(|each| write!(out, ":{}", field(each, path)))
            }
        }
    }
}
