//! Finds sites at which a handler has no usable stack.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use image::Image;

use crate::reason::NoJump;

/// The most bytes of a function that are examined.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// The most functions that are kept.
const FUNCTIONS: usize = 1 << 20;

#[derive(Debug, Default)]
struct Function {
    /// Where its rsp may not point to a stack.
    foreign: Vec<Range<u64>>,
    /// Whether it is a Go function that does not check its stack's size.
    unchecked: bool,
}

/// What is known of the stacks of an image's functions; filled on demand.
#[derive(Debug)]
pub(crate) struct Stacks {
    is_go: bool,
    functions: HashMap<u64, Function>,
}

impl Stacks {
    pub(crate) fn of(image: &Image) -> Stacks {
        Stacks { is_go: image.is_go(), functions: HashMap::new() }
    }

    /// Why a handler must not run on the program's stack at an instruction, if it must not. Always
    /// called with the same image.
    pub(crate) fn objection(&mut self, image: &Image, vaddr: u64) -> Option<NoJump> {
        let function = image.function_at(vaddr)?;
        let (start, size) = (function.vaddr, function.size.min(MAX_FUNCTION_BYTES));
        let known = self.functions.entry(start).or_insert_with(|| {
            let Some(code) = image.text(start, size as usize) else { return Function::default() };
            let unchecked = self.is_go && !patch::checks_go_stack(&code, start);
            Function { foreign: patch::foreign_stack(&code, start), unchecked }
        });
        if known.unchecked {
            return Some(NoJump::UncheckedStack);
        }
        let foreign = known.foreign.iter().any(|range| range.contains(&vaddr));
        foreign.then_some(NoJump::NoStack)
    }
}

/// The same for many images, which are kept alive here: an image that is probed again is not
/// examined again.
#[derive(Debug, Default)]
pub(crate) struct KnownStacks {
    images: HashMap<*const Image, (Arc<Image>, Stacks)>,
}

impl KnownStacks {
    pub(crate) fn of(&mut self, image: &Arc<Image>) -> &mut Stacks {
        let functions = |known: &(_, Stacks)| known.1.functions.len();
        if self.images.values().map(functions).sum::<usize>() >= FUNCTIONS {
            self.images.clear();
        }
        let known = self.images.entry(Arc::as_ptr(image));
        &mut known.or_insert_with(|| (Arc::clone(image), Stacks::of(image))).1
    }
}
