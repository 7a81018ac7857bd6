//! Selects functions where one name, or a pattern, means several.

use std::ops::Range;

use super::Image;
use super::boundary::region;
use super::demangle;
use super::frames::Stack;
use super::functions::{Function, FunctionKind};
use super::lookup::lookup;
use super::outline::{is_linkage, is_part, outline};
use super::region::branch_target;

/// The name prefix of functions without a symbol, before their address in hexadecimal.
const NAMELESS: &str = "sub_";
/// How many jumps to other functions the search for implementations follows from a resolver.
const STEPS: usize = 3;

/// A selected function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selected {
    /// Its start, before the load bias is added.
    pub vaddr: u64,
    /// Its name: demangled, if it is mangled; `sub_1a2b` if it has no symbol.
    pub name: String,
    /// Whether it is only a resolver that picks an implementation ([`Image::implementations`]).
    pub indirect: bool,
}

/// Answers [`Image::select_named`].
pub(crate) fn select_named(image: &Image, name: &str) -> Vec<Selected> {
    let found = lookup(image, name).matches;
    if !found.is_empty() {
        let shown = |function: &&Function| Selected {
            vaddr: function.vaddr,
            // The name as typed, unless it means several.
            name: if found.len() == 1 { name.to_owned() } else { shown(function) },
            indirect: function.kind == FunctionKind::Indirect,
        };
        return found.iter().map(shown).collect();
    }
    let vaddr = name.strip_prefix(NAMELESS).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let vaddr = vaddr.filter(|vaddr| nameless_functions(image).any(|nameless| nameless == *vaddr));
    vaddr.map(nameless).into_iter().collect()
}

/// Answers [`Image::select_matching`].
pub(crate) fn select_matching(image: &Image, matches: &dyn Fn(&str) -> bool) -> Vec<Selected> {
    let mut found: Vec<Selected> = Vec::new();
    for function in image.functions() {
        let known = found.last().is_some_and(|last| last.vaddr == function.vaddr);
        if known || function.kind == FunctionKind::Label || !is_called(function, matches) {
            continue;
        }
        if is_part(image, &function.name, function.vaddr) {
            continue;
        }
        found.push(Selected {
            vaddr: function.vaddr,
            name: shown(function),
            indirect: function.kind == FunctionKind::Indirect,
        });
    }
    found.extend(nameless_functions(image).map(nameless).filter(|nameless| matches(&nameless.name)));
    found.sort_by_key(|selected| selected.vaddr);
    found
}

/// Functions with an unwinding entry and no symbol, as in stripped files. An entry whose stack
/// does not begin as a function's, with the return address on top, is a part of another
/// function.
fn nameless_functions(image: &Image) -> impl Iterator<Item = u64> {
    let frames = image.frames();
    let is_function = |range: &&Range<u64>| {
        let start = range.start;
        image.functions_at(start).is_empty()
            && image.function_at(start).is_none_or(|function| !function.contains(start))
            && image.headers.is_executable(start)
            && frames.stack_at(start) == Some(Stack::AtEntry)
            && !is_linkage(image, range)
    };
    frames.ranges.iter().filter(is_function).map(|range| range.start)
}

/// Answers [`Image::implementations`].
pub(crate) fn implementations(image: &Image, resolver: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut open = vec![(resolver, 0)];
    while let Some((resolver, step)) = open.pop() {
        let Ok(outline) = outline(image, resolver) else { continue };
        let is_start = |vaddr: u64| {
            let starts = &image.starts().starts;
            let at = starts.binary_search_by_key(&vaddr, |start| start.vaddr);
            at.is_ok_and(|at| starts[at].proven) && !outline.contains(vaddr)
        };
        for vaddr in &outline.instructions {
            let Ok(region) = region(image, *vaddr) else { continue };
            let Some(instruction) = region.instruction(*vaddr) else { continue };
            let taken = match instruction.mnemonic() {
                iced_x86::Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                    Some(instruction.ip_rel_memory_address())
                }
                iced_x86::Mnemonic::Mov if instruction.op1_kind() != iced_x86::OpKind::Register => {
                    let number = instruction.try_immediate(1).ok();
                    number.filter(|_| !image.is_position_independent())
                }
                iced_x86::Mnemonic::Jmp if step < STEPS => {
                    let target = branch_target(&instruction);
                    open.extend(target.filter(|target| is_start(*target)).map(|target| (target, step + 1)));
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

fn nameless(vaddr: u64) -> Selected {
    Selected { vaddr, name: format!("{NAMELESS}{vaddr:x}"), indirect: false }
}

fn shown(function: &Function) -> String {
    function.demangled().unwrap_or_else(|| function.name.clone())
}

/// Whether one of a function's names matches.
fn is_called(function: &Function, matches: &dyn Fn(&str) -> bool) -> bool {
    let version = || function.version.is_some() && matches(&function.full_name());
    matches(&function.name)
        || version()
        || function.demangled().is_some_and(|name| matches(&name))
        || demangle::without_parameters(&function.name).is_some_and(|name| matches(&name))
}
