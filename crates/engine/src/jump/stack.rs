//! Which sites have no stack that a handler could use.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use image::Image;

/// Bytes of a function that are looked at, at most.
const MOST: u64 = 1 << 20;

/// How many functions are known at most.
const FUNCTIONS: usize = 1 << 20;

/// What is known of a function.
#[derive(Debug, Default)]
struct Function {
    /// Where its stack pointer is no stack pointer.
    foreign: Vec<Range<u64>>,
    /// Whether it is one of Go that does not look how much stack it has.
    unchecked: bool,
}

/// What is known of the stacks of an image's functions.
#[derive(Debug)]
pub(crate) struct Stacks {
    is_go: bool,
    functions: HashMap<u64, Function>,
}

impl Stacks {
    /// Of an image; nothing is looked at yet.
    pub(crate) fn of(image: &Image) -> Stacks {
        Stacks { is_go: image.is_go(), functions: HashMap::new() }
    }

    /// Why a handler must not run on the stack of the program at an instruction, if it must not. The address is one of the image, which is
    /// always the same.
    pub(crate) fn objection(&mut self, image: &Image, vaddr: u64) -> Option<&'static str> {
        let function = image.function_at(vaddr)?;
        let (start, size) = (function.vaddr, function.size.min(MOST));
        let known = self.functions.entry(start).or_insert_with(|| {
            let Some(code) = image.text(start, size as usize) else { return Function::default() };
            let unchecked = self.is_go && !patch::checks_go_stack(&code, start);
            Function { foreign: patch::foreign_stack(&code, start), unchecked }
        });
        if known.unchecked {
            return Some("its function is one of Go that does not check how much stack it has");
        }
        let foreign = known.foreign.iter().any(|range| range.contains(&vaddr));
        foreign.then_some("the stack pointer may be no stack pointer there")
    }
}

/// The same for images, which stay as long as they are known here: one that is probed again is not looked at again.
#[derive(Debug, Default)]
pub(crate) struct KnownStacks {
    images: HashMap<*const Image, (Arc<Image>, Stacks)>,
}

impl KnownStacks {
    /// What is known of an image's.
    pub(crate) fn of(&mut self, image: &Arc<Image>) -> &mut Stacks {
        let functions = |known: &(_, Stacks)| known.1.functions.len();
        if self.images.values().map(functions).sum::<usize>() >= FUNCTIONS {
            self.images.clear();
        }
        let known = self.images.entry(Arc::as_ptr(image));
        &mut known.or_insert_with(|| (Arc::clone(image), Stacks::of(image))).1
    }
}
