//! The functions that are meant where one name, or a pattern, means many.

use std::ops::Range;

use super::Image;
use super::demangle;
use super::frames::Stack;
use super::functions::{Function, FunctionKind};
use super::region::branch_target;

/// What functions without a symbol are called, before their address in hexadecimal.
const NAMELESS: &str = "sub_";
/// How often the search for implementations follows a resolver to another function.
const STEPS: usize = 3;

/// A function that was selected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selected {
    /// Where it starts, before the load bias is added.
    pub vaddr: u64,
    /// What it is called: demangled, where the name is mangled; `sub_1a2b` where it has no symbol.
    pub name: String,
    /// Whether it only picks an implementation ([`Image::implementations`]).
    pub indirect: bool,
}

impl Image {
    /// The functions that a name means, one for each address: as of [`Image::lookup`], and `sub_1a2b` for the one
    /// without a symbol that the unwinding table has at 0x1a2b.
    pub fn select_named(&self, name: &str) -> Vec<Selected> {
        let found = self.lookup(name).matches;
        if !found.is_empty() {
            let shown = |function: &&Function| Selected {
                vaddr: function.vaddr,
                // What was typed, unless it means several.
                name: if found.len() == 1 { name.to_owned() } else { shown(function) },
                indirect: function.kind == FunctionKind::Indirect,
            };
            return found.iter().map(shown).collect();
        }
        let vaddr = name.strip_prefix(NAMELESS).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let vaddr = vaddr.filter(|vaddr| self.nameless_functions().any(|nameless| nameless == *vaddr));
        vaddr.map(nameless).into_iter().collect()
    }

    /// The functions whose names match, one for each address. A name is tried as the ELF file writes it, with and
    /// without its version; as its language writes it; and without its parameters. Labels are none, nor what only is a
    /// part of another function (`f.cold`).
    pub fn select_matching(&self, matches: &dyn Fn(&str) -> bool) -> Vec<Selected> {
        let mut found: Vec<Selected> = Vec::new();
        for function in self.functions() {
            let known = found.last().is_some_and(|last| last.vaddr == function.vaddr);
            if known || function.kind == FunctionKind::Label || !is_called(function, matches) {
                continue;
            }
            if self.is_part(&function.name, function.vaddr) {
                continue;
            }
            found.push(Selected {
                vaddr: function.vaddr,
                name: shown(function),
                indirect: function.kind == FunctionKind::Indirect,
            });
        }
        found.extend(self.nameless_functions().map(nameless).filter(|nameless| matches(&nameless.name)));
        found.sort_by_key(|selected| selected.vaddr);
        found
    }

    /// The names that a function's address has, as the ELF file writes them; the one people mean comes first.
    pub(crate) fn functions_at(&self, vaddr: u64) -> &[Function] {
        let all = self.functions();
        let from = all.partition_point(|function| function.vaddr < vaddr);
        let to = all.partition_point(|function| function.vaddr <= vaddr);
        &all[from..to]
    }

    /// Functions that have an unwinding entry and no symbol, as in stripped files. Entries that do not begin as functions
    /// do, with the return address on top of the stack, are parts of others.
    fn nameless_functions(&self) -> impl Iterator<Item = u64> {
        let frames = self.frames();
        let is_function = |range: &&Range<u64>| {
            let start = range.start;
            self.functions_at(start).is_empty()
                && self.function_at(start).is_none_or(|function| !function.contains(start))
                && self.headers.is_executable(start)
                && frames.stack_at(start) == Some(Stack::AtEntry)
                && !self.is_linkage(range)
        };
        frames.ranges.iter().filter(is_function).map(|range| range.start)
    }

    /// The implementations that an indirect function may pick: the functions whose addresses its resolver takes. Other
    /// functions may have the same ones. None where that cannot be told.
    pub fn implementations(&self, resolver: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let mut open = vec![(resolver, 0)];
        while let Some((resolver, step)) = open.pop() {
            let Ok(outline) = self.outline(resolver) else { continue };
            let is_start = |vaddr: u64| {
                let starts = &self.starts().starts;
                let at = starts.binary_search_by_key(&vaddr, |start| start.vaddr);
                at.is_ok_and(|at| starts[at].proven) && !outline.contains(vaddr)
            };
            for vaddr in &outline.instructions {
                let Ok(region) = self.region(*vaddr) else { continue };
                let Some(instruction) = region.instruction(*vaddr) else { continue };
                let taken = match instruction.mnemonic() {
                    iced_x86::Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                        Some(instruction.ip_rel_memory_address())
                    }
                    iced_x86::Mnemonic::Mov if instruction.op1_kind() != iced_x86::OpKind::Register => {
                        let number = instruction.try_immediate(1).ok();
                        number.filter(|_| !self.is_position_independent())
                    }
                    iced_x86::Mnemonic::Jmp if step < STEPS => {
                        let target = branch_target(&instruction);
                        open.extend(
                            target.filter(|target| is_start(*target)).map(|target| (target, step + 1)),
                        );
                        None
                    }
                    _ => None,
                };
                found.extend(taken.filter(|taken| is_start(*taken)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn nameless(vaddr: u64) -> Selected {
    Selected { vaddr, name: format!("{NAMELESS}{vaddr:x}"), indirect: false }
}

fn shown(function: &Function) -> String {
    function.demangled().unwrap_or_else(|| function.name.clone())
}

/// Whether one of a function's names is meant.
fn is_called(function: &Function, matches: &dyn Fn(&str) -> bool) -> bool {
    let version = || function.version.is_some() && matches(&function.full_name());
    matches(&function.name)
        || version()
        || function.demangled().is_some_and(|name| matches(&name))
        || demangle::without_parameters(&function.name).is_some_and(|name| matches(&name))
}
