//! Addresses and stacks as text.
//!
//! ```text
//! <empty line>                                 perf:  <empty line>
//!         helper (inlined)                            \t55d0c0a01139 helper (inlined)
//!         inner+4                                     \t55d0c0a01139 inner+4 (/usr/bin/app)
//!         main+28                                     \t55d0c0a0115c main+28 (/usr/bin/app)
//!         0x7f3d5c02a1ca                              \t7f3d5c02a1ca 0x7f3d5c02a1ca ([unknown])
//! ```

use crate::datum::append;
use crate::world::{Symbol, World};

/// How stacks are shown (the setting `stack_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMode {
    /// Functions and offsets.
    #[default]
    Bpftrace,
    /// As `perf script` shows them: with addresses and files.
    Perf,
    /// Addresses only.
    Raw,
}

/// The name of the function at an address of a process.
pub(crate) fn user_symbol(address: u64, pid: u32, world: &mut dyn World) -> Vec<u8> {
    name(address, world.user_symbol(address, pid))
}

/// The name of the function at an address of the kernel.
pub(crate) fn kernel_symbol(address: u64, world: &mut dyn World) -> Vec<u8> {
    name(address, world.kernel_symbol(address))
}

fn name(address: u64, symbol: Option<Symbol>) -> Vec<u8> {
    symbol.map_or_else(|| format!("{address:#x}"), |symbol| symbol.name).into()
}

/// A stack of a process.
pub(crate) fn user_stack(number: u64, pid: u32, mode: StackMode, world: &mut dyn World) -> Vec<u8> {
    stack(number, mode, world, |world, address, place| world.frame(address, pid, place == 0))
}

/// A stack of the kernel.
pub(crate) fn kernel_stack(number: u64, mode: StackMode, world: &mut dyn World) -> Vec<u8> {
    stack(number, mode, world, |world, address, _| world.kernel_symbol(address))
}

fn stack(
    number: u64,
    mode: StackMode,
    world: &mut dyn World,
    mut symbol: impl FnMut(&mut dyn World, u64, usize) -> Option<Symbol>,
) -> Vec<u8> {
    // A stack that could not be taken or kept shows nothing, not even its first line break.
    let Some(frames) = world.stack(number) else { return Vec::new() };
    let mut out = vec![b'\n'];
    for (place, address) in frames.into_iter().enumerate() {
        if mode == StackMode::Raw {
            append(&mut out, format_args!("{address:x}\n"));
            continue;
        }
        let symbol = symbol(world, address, place);
        for line in lines(address, symbol, mode) {
            match mode {
                StackMode::Perf => append(&mut out, format_args!("\t{address:x} {line}\n")),
                _ => append(&mut out, format_args!("        {line}\n")),
            }
        }
    }
    out
}

/// The functions of one frame, the innermost one first.
fn lines(address: u64, symbol: Option<Symbol>, mode: StackMode) -> Vec<String> {
    let perf = mode == StackMode::Perf;
    let Some(Symbol { name, offset, module, inlined, line }) = symbol else {
        return vec![format!("{address:#x}{}", if perf { " ([unknown])" } else { "" })];
    };
    let module = match module {
        Some(module) if perf => format!(" ({module})"),
        _ => String::new(),
    };
    let at = |line: Option<String>| line.map_or(String::new(), |line| format!("@{line}"));
    let inlined = inlined.into_iter().map(|it| format!("{} (inlined){}", it.name, at(it.line)));
    let mut lines: Vec<String> = inlined.collect();
    lines.push(format!("{name}+{offset}{}{module}", at(line)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Inlined;

    #[test]
    fn a_frame_shows_what_was_inlined_first() {
        let symbol = Symbol {
            name: "main".into(),
            offset: 28,
            module: Some("/bin/app".into()),
            inlined: ["inner", "outer"].map(|name| Inlined { name: name.into(), line: None }).to_vec(),
            line: None,
        };
        let shown = |mode| lines(0x1234, Some(symbol.clone()), mode);
        assert_eq!(shown(StackMode::Bpftrace), ["inner (inlined)", "outer (inlined)", "main+28"]);
        assert_eq!(shown(StackMode::Perf), ["inner (inlined)", "outer (inlined)", "main+28 (/bin/app)"]);
        let lined = Symbol {
            inlined: vec![Inlined { name: "inner".into(), line: Some("a.h:3".into()) }],
            line: Some("a.c:7".into()),
            ..symbol.clone()
        };
        assert_eq!(
            lines(0x1234, Some(lined.clone()), StackMode::Bpftrace),
            ["inner (inlined)@a.h:3", "main+28@a.c:7"]
        );
        assert_eq!(lines(0x1234, Some(lined), StackMode::Perf)[1], "main+28@a.c:7 (/bin/app)");
        assert_eq!(lines(0x1234, None, StackMode::Bpftrace), ["0x1234"]);
        assert_eq!(lines(0x1234, None, StackMode::Perf), ["0x1234 ([unknown])"]);
    }
}
