//! Compiles builtins and functions: those that give a word. Strings are in `strings`, other values
//! in `objects`, what the reader does in `event`.

use crate::ast::{Expr, ExprKind};
use crate::library::{self, Entry, Needs};
use crate::program_types::Convention;
use crate::provider::{Provider, Providers};
use crate::types::{Opaque, Type};
use vm::{Op, Register};

use super::compiler::{Compiler, Result};
use super::event::Events;
use super::refuse;

/// The registers that have the first arguments of a function.
pub(super) fn registers(convention: Convention) -> &'static [Register] {
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
        if refuse::is_refused(entry) && !has_in_kernel(compiler, entry.name) {
            return Err(refuse::entry(entry, expr.at.0));
        }
        if entry.needs == Needs::Unsafe && !compiler.parameters.allow_unsafe {
            return Err(refuse::is_unsafe(&format!("`{name}`"), expr.at.0));
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
            "strlen" | "strcap" | "strcontains" | "strstr" | "globmatch" | "strncmp" | "memcmp" => {
                return self.texts();
            }
            "bswap" => return self.swap(),
            "nsecs" => return self.time(),
            _ => {}
        }
        let parameters = self.compiler.parameters;
        let asm = &mut self.compiler.asm;
        match self.entry.name {
            "pid" => asm.op(Op::PushPid),
            "tid" => asm.op(Op::PushTid),
            "ppid" => match self.arguments.first() {
                Some(task) => return Err(refuse::task("ppid", task.at.0)),
                None => asm.op(Op::PushParent),
            },
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
            "has_cpid" => asm.push((parameters.child.is_some() || parameters.starts).into()),
            "numaid" => return self.node(),
            "cgroupid" => return self.cgroup(),
            "cpid" => match parameters.child {
                Some(child) => asm.push(child.into()),
                None if parameters.starts => {
                    let Some(map) = self.compiler.maps.child() else { return self.refused() };
                    asm.push(0);
                    asm.push(0);
                    asm.short(Op::Load, map);
                }
                None => {
                    return Err(source::Diagnostic::error(span, "`cpid` is the process that dprobes starts")
                        .label("none is started")
                        .help("start it with `-c COMMAND`, or use `has_cpid`"));
                }
            },
            "default_str_length" => asm.push(self.compiler.settings.max_strlen as u64),
            "kaddr" => {
                let address = self.kernel_address()?;
                self.compiler.asm.push(address);
            }
            // What is known stands in its place already.
            "comptime" => return Err(refuse::unknown(self.argument(0)?)),
            "kptr" | "uptr" => return self.compiler.word(self.argument(0)?),
            "curtask" => asm.op(Op::PushTask),
            "usermode" => return self.user_mode(),
            "percpu_kaddr" => return self.processor_address(),
            "uaddr" => return self.program_address(),
            _ => return self.refused(),
        }
        Ok(())
    }

    /// `usermode`: whether the registers are those of a process. A probe in a program, or in the
    /// kernel, interrupts that.
    fn user_mode(self) -> Result<()> {
        let asm = &mut self.compiler.asm;
        let providers = &self.compiler.served.providers;
        let all = |some: &[Provider]| providers.iter().all(|provider| some.contains(provider));
        if all(&[Provider::Uprobe, Provider::Uretprobe, Provider::Usdt]) {
            asm.push(1);
        } else if all(&[Provider::Kprobe, Provider::Kretprobe, Provider::Fentry, Provider::Fexit]) {
            asm.push(0);
        } else if all(&[Provider::Profile, Provider::Hardware, Provider::Software]) {
            // The lowest bits of the code segment are the privilege: 3 or 0.
            asm.short(Op::PushR, Register::Cs as u16);
            asm.push(1);
            asm.op(Op::And);
        } else {
            return self.refused();
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
        let only = |provider| self.compiler.served.providers.iter().all(|it| *it == provider);
        let is_field = match self.entry.name {
            "argN" => only(Provider::Rawtracepoint),
            "retval" => only(Provider::Fexit),
            _ => false,
        };
        if is_field {
            return self.compiler.record_field(self.name, span);
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

    /// `numaid`: the node of the processor. The numbers of a node's processors follow each other.
    fn node(self) -> Result<()> {
        let nodes = &self.compiler.parameters.nodes;
        let node = |number: usize| u64::from(nodes.get(number).copied().unwrap_or(0));
        let begins: Vec<usize> =
            (1..nodes.len()).filter(|number| node(*number) != node(number - 1)).collect();
        if begins.is_empty() {
            self.compiler.asm.push(node(0));
            return Ok(());
        }
        let at = self.compiler.take(16, self.expr.at.0)?;
        let asm = &mut self.compiler.asm;
        asm.op(Op::PushProcid);
        asm.set(at);
        asm.push(node(0));
        asm.set(at + 8);
        for first in begins {
            let before = asm.label();
            asm.push(first as u64);
            asm.get(at);
            asm.op(Op::Ult);
            asm.jump(Op::Jnz, before);
            asm.drop();
            asm.push(node(first));
            asm.set(at + 8);
            asm.push(0);
            asm.bind(before);
            asm.drop();
        }
        asm.get(at + 8);
        Ok(())
    }

    /// `cgroupid`: the number of a cgroup that is known when the script is compiled.
    fn cgroup(self) -> Result<()> {
        let argument = self.argument(0)?;
        let path = match &argument.kind {
            ExprKind::Text(path) => String::from_utf8_lossy(path).into_owned(),
            _ => return self.refused(),
        };
        match self.compiler.parameters.cgroups.get(&path) {
            Some(Ok(number)) => {
                self.compiler.asm.push(*number);
                Ok(())
            }
            found => {
                let reason = match found {
                    Some(Err(reason)) => reason.clone(),
                    _ => "not looked up: no system is traced".to_owned(),
                };
                let message = format!("{} is no cgroup", source::quote(&path));
                Err(source::Diagnostic::error(argument.at.0, message)
                    .label(reason)
                    .help("name a directory of cgroup2, such as `/sys/fs/cgroup/system.slice`"))
            }
        }
    }

    /// `len`: the entries of a map, or the frames of a stack.
    fn count(self) -> Result<()> {
        if let ExprKind::Map(name, None) = &self.argument(0)?.kind
            && let Some((map, _)) = self.compiler.maps.find(name)
        {
            self.compiler.asm.short(Op::Entries, map);
            return Ok(());
        }
        let stack = self.argument(0)?;
        if !matches!(stack.ty, Type::Opaque(Opaque::UserStack | Opaque::KernelStack)) {
            return self.refused();
        }
        let at = self.compiler.wide(stack)?;
        let Some(stacks) = self.compiler.maps.stacks(0) else { return self.refused() };
        self.compiler.asm.get(at);
        self.compiler.asm.short(Op::Depth, stacks);
        Ok(())
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
            "signal" | "signal_thread" => self.signal(),
            "override" => self.overridden(),
            "core" => {
                self.compiler.asm.byte(Op::ExitTo, CORE_DUMP);
                Ok(())
            }
            name => Events::new(self.compiler, self.expr).call(name, self.arguments),
        }
    }
}

/// The debug facility that writes a core dump (`exit 3`).
const CORE_DUMP: u8 = 3;

/// Whether all points of the probe can have what else needs code in the kernel.
fn has_in_kernel(compiler: &Compiler<'_>, name: &str) -> bool {
    let providers = &compiler.served.providers;
    match name {
        "curtask" | "kptr" | "percpu_kaddr" => {
            providers.iter().all(|provider| Providers::KERNEL.has(*provider))
        }
        // It depends on the provider.
        "usermode" => true,
        _ => false,
    }
}

/// A register by the name that `reg` knows.
pub(super) fn named(name: &str) -> Option<Register> {
    let name = match name {
        "flags" => "rflags".to_string(),
        "bp" | "bx" | "ax" | "cx" | "dx" | "si" | "di" | "ip" | "sp" => format!("r{name}"),
        name => name.to_string(),
    };
    Register::ALL.iter().copied().find(|register| register.name() == name)
}
