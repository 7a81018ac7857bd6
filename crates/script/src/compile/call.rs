//! Compiles builtins and functions: those that give a word. Strings are in `strings`, other values
//! in `objects`, what the reader does in `event`.

use crate::ast::{Expr, ExprKind};
use crate::library::{self, Entry, Needs};
use crate::program_types::Convention;
use vm::{Op, Register};

use super::compiler::{Compiler, Result};
use super::event::Events;
use super::refuse;

/// The registers that have the first arguments of a function.
fn registers(convention: Convention) -> &'static [Register] {
    use Register::{R8, R9, R10, R11, Rax, Rbx, Rcx, Rdi, Rdx, Rsi};
    match convention {
        Convention::SystemV => &[Rdi, Rsi, Rdx, Rcx, R8, R9],
        Convention::Stack => &[],
        Convention::Go => &[Rax, Rbx, Rcx, Rdi, Rsi, R8, R9, R10, R11],
    }
}

/// A use of a builtin or a function.
pub(super) struct Call<'c, 'a> {
    pub(super) compiler: &'c mut Compiler<'a>,
    pub(super) entry: &'static Entry,
    /// Its name as written: `arg3`.
    pub(super) name: &'c str,
    pub(super) arguments: &'c [Expr],
    pub(super) expr: &'c Expr,
}

impl<'c, 'a> Call<'c, 'a> {
    /// A use of what this engine has.
    pub(super) fn new(
        compiler: &'c mut Compiler<'a>,
        name: &'c str,
        arguments: &'c [Expr],
        expr: &'c Expr,
    ) -> Result<Call<'c, 'a>> {
        let Some(entry) = library::find(name) else { return Err(refuse::unknown(expr)) };
        if entry.name == "args" {
            return Err(compiler.served.no_arguments(expr.at.0));
        }
        if refuse::is_refused(entry) {
            return Err(refuse::entry(entry, expr.at.0));
        }
        if entry.needs == Needs::Unsafe && !compiler.parameters.allow_unsafe {
            return Err(refuse::is_unsafe(name, expr.at.0));
        }
        Ok(Call { compiler, entry, name, arguments, expr })
    }

    pub(super) fn refused<T>(&self) -> Result<T> {
        Err(refuse::entry(self.entry, self.expr.at.0))
    }

    pub(super) fn argument(&self, index: usize) -> Result<&'c Expr> {
        self.arguments.get(index).ok_or_else(|| refuse::entry(self.entry, self.expr.at.0))
    }

    /// The map that is the first argument, and its key if that is written with it.
    fn map(&self) -> Result<(&'c str, Option<&'c Expr>)> {
        match &self.argument(0)?.kind {
            ExprKind::Map(name, key) => Ok((name, key.as_deref())),
            _ => self.refused(),
        }
    }

    /// Pushes its value.
    pub(super) fn word(self) -> Result<()> {
        let span = self.expr.at.0;
        match self.entry.name {
            "argN" | "sargN" | "retval" | "reg" => return self.register(),
            "find" => {
                let (map, _) = self.map()?;
                return self.compiler.find_entry(map, self.argument(1)?, self.argument(2)?);
            }
            "delete" | "has_key" => {
                let (map, key) = self.map()?;
                let op = if self.entry.name == "delete" { Op::Erase } else { Op::Has };
                return self.compiler.ask(op, map, self.arguments.get(1).or(key), span);
            }
            "len" => return self.count(),
            "strlen" | "strcap" | "strcontains" | "strstr" | "strncmp" | "memcmp" => return self.texts(),
            "bswap" => return self.swap(),
            "nsecs" => return self.time(),
            _ => {}
        }
        let parameters = self.compiler.parameters;
        let asm = &mut self.compiler.asm;
        match self.entry.name {
            "pid" => asm.op(Op::PushPid),
            "tid" => asm.op(Op::PushTid),
            "cpu" => asm.op(Op::PushProcid),
            "rand" => asm.op(Op::PushRand),
            "elapsed" => asm.byte(Op::PushNsecs, 1),
            "uid" => {
                asm.op(Op::PushIds);
                asm.extend(4, false);
            }
            "gid" => {
                asm.op(Op::PushIds);
                asm.byte(Op::ShrImm, 32);
            }
            "ncpus" => asm.push(parameters.processors.into()),
            "has_cpid" => asm.push(parameters.child.is_some().into()),
            "cpid" => match parameters.child {
                Some(child) => asm.push(child.into()),
                None => {
                    return Err(source::Diagnostic::error(span, "`cpid` is the process that dprobes starts")
                        .label("none is started")
                        .help("start it with `-c COMMAND`, or use `has_cpid`"));
                }
            },
            "default_str_length" => asm.push(self.compiler.settings.max_strlen as u64),
            "kptr" | "uptr" => return self.compiler.word(self.argument(0)?),
            _ => return self.refused(),
        }
        Ok(())
    }

    fn time(self) -> Result<()> {
        let clock = match self.arguments.first().map(|clock| &clock.kind) {
            Some(ExprKind::Name(name)) => name.as_str(),
            _ => "monotonic",
        };
        let asm = &mut self.compiler.asm;
        match clock {
            "boot" => asm.byte(Op::PushNsecs, 2),
            "tai" | "sw_tai" => {
                asm.byte(Op::PushNsecs, 3);
                asm.plus(self.compiler.parameters.atomic_time);
            }
            _ => asm.byte(Op::PushNsecs, 0),
        }
        Ok(())
    }

    /// Pushes a register, or an argument of the function.
    fn register(mut self) -> Result<()> {
        use crate::provider::Provider;
        let span = self.expr.at.0;
        let number = library::argument(self.name).unwrap_or(0);
        if self.compiler.served.sites.is_some() && self.entry.name == "argN" {
            return self.static_argument(number);
        }
        if self.compiler.served.providers.contains(&Provider::Usdt)
            && matches!(self.entry.name, "argN" | "sargN")
        {
            let message = format!("`{}` of a `usdt` probe is not available", self.name);
            return Err(source::Diagnostic::error(span, message)
                .label("where it is is said in the program's notes")
                .help("read it with `reg()`, or probe a function"));
        }
        let arguments = registers(self.compiler.served.convention);
        let register = match self.entry.name {
            "retval" => Some(Register::Rax),
            "reg" => match &self.argument(0)?.kind {
                ExprKind::Text(text) => named(&String::from_utf8_lossy(text)),
                _ => None,
            },
            "argN" => arguments.get(number as usize).copied(),
            _ => None,
        };
        if register.is_none()
            && self.entry.name == "argN"
            && self.compiler.served.convention == Convention::Go
        {
            let message = format!("`{}` is not in a register of a Go function", self.name);
            return Err(source::Diagnostic::error(span, message)
                .label("Go passes nine words in registers")
                .help("use the name of the argument: `args.name`"));
        }
        let asm = &mut self.compiler.asm;
        if let Some(register) = register {
            asm.short(Op::PushR, register as u16);
            return Ok(());
        }
        // The others are on the stack, behind the address to return to.
        let slot = match self.entry.name {
            "argN" => number - arguments.len() as u32,
            "sargN" => number,
            _ => {
                return Err(source::Diagnostic::error(span, "this register cannot be read here")
                    .label("not a register of a probe in a process")
                    .help("use one such as `reg(\"ax\")`"));
            }
        };
        let at = self.compiler.take(8, span)?;
        let asm = &mut self.compiler.asm;
        asm.push(8);
        asm.short(Op::PushR, Register::Rsp as u16);
        asm.plus(8 + 8 * u64::from(slot));
        asm.push(at.into());
        asm.op(Op::ReadF);
        asm.drop();
        asm.get(at);
        Ok(())
    }

    /// `len`: the entries of a map.
    fn count(self) -> Result<()> {
        if let ExprKind::Map(name, None) = &self.argument(0)?.kind
            && let Some((map, _)) = self.compiler.maps.find(name)
        {
            self.compiler.asm.short(Op::Entries, map);
            return Ok(());
        }
        Err(source::Diagnostic::error(self.expr.at.0, "the frames of a stack are not counted in a handler")
            .label("expected a map")
            .help("print the stack"))
    }

    /// `bswap`: the bytes in the other order.
    fn swap(self) -> Result<()> {
        let value = self.argument(0)?;
        let bytes = value.ty.as_integer().map_or(8, |integer| integer.bytes);
        self.compiler.word(value)?;
        let asm = &mut self.compiler.asm;
        asm.extend(bytes, false);
        // Neighbours change places: bytes, pairs of bytes, and halves.
        let steps = [(8u8, 0x00ff_00ff_00ff_00ff_u64), (16, 0x0000_ffff_0000_ffff), (32, 0xffff_ffff)];
        for (bits, mask) in steps.into_iter().filter(|(bits, _)| *bits < bytes * 8) {
            asm.byte(Op::DupImm, 1);
            asm.byte(Op::ShrImm, bits);
            asm.push(mask);
            asm.ops(&[Op::And, Op::Xchg]);
            asm.push(mask);
            asm.op(Op::And);
            asm.byte(Op::ShlImm, bits);
            asm.op(Op::Or);
        }
        Ok(())
    }

    /// A function that gives nothing.
    pub(super) fn effect(self) -> Result<()> {
        match self.entry.name {
            // What they ask was answered when the script was checked.
            "static_assert" | "assert_str" => Ok(()),
            "fail" => Err(source::Diagnostic::error(self.expr.at.0, "the script refuses itself")
                .label("reached when the probe fires")
                .help("what leads here is the script's own condition")),
            name => Events::new(self.compiler, self.expr).call(name, self.arguments),
        }
    }
}

/// A register by the name that `reg` knows.
fn named(name: &str) -> Option<Register> {
    let name = match name {
        "flags" => "rflags".to_string(),
        "bp" | "bx" | "ax" | "cx" | "dx" | "si" | "di" | "ip" | "sp" => format!("r{name}"),
        name => name.to_string(),
    };
    Register::ALL.iter().copied().find(|register| register.name() == name)
}
