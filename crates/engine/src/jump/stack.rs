//! Which sites have no stack that a handler could use.

use std::collections::HashMap;
use std::ops::Range;

use image::Image;

/// Bytes of a function that are looked at, at most.
const MOST: u64 = 1 << 20;

/// What is known of a function.
#[derive(Debug, Default)]
struct Function {
    /// Where its stack pointer is no stack pointer.
    foreign: Vec<Range<u64>>,
    /// Whether it is one of Go that does not look how much stack it has.
    unchecked: bool,
}

/// What is known of the stacks of an image's functions.
pub(crate) struct Stacks<'a> {
    image: &'a Image,
    is_go: bool,
    functions: HashMap<u64, Function>,
}

impl Stacks<'_> {
    /// Of an image; nothing is looked at yet.
    pub(crate) fn of(image: &Image) -> Stacks<'_> {
        Stacks { image, is_go: image.is_go(), functions: HashMap::new() }
    }

    /// Why a handler must not run on the stack of the program at an instruction, if it must not. The address is one of the image.
    pub(crate) fn objection(&mut self, vaddr: u64) -> Option<&'static str> {
        let (image, is_go) = (self.image, self.is_go);
        let function = image.function_at(vaddr)?;
        let (start, size) = (function.vaddr, function.size.min(MOST));
        let known = self.functions.entry(start).or_insert_with(|| {
            let Some(code) = image.text(start, size as usize) else { return Function::default() };
            let unchecked = is_go && !patch::checks_go_stack(&code, start);
            Function { foreign: patch::foreign_stack(&code, start), unchecked }
        });
        if known.unchecked {
            return Some("its function is one of Go that does not check how much stack it has");
        }
        let foreign = known.foreign.iter().any(|range| range.contains(&vaddr));
        foreign.then_some("the stack pointer may be no stack pointer there")
    }
}
