//! What stacks are walked with: the tables of the modules of an address space, for the tracer and,
//! in a block of memory, for the process itself.
//!
//! Tables are read when a program that takes stacks is placed in a process, and again when modules
//! come or go; those of one file are read once for all processes. Where there are none - before
//! they are read, in code without a file, in a process that cannot have the block - stacks are
//! walked by frame pointers.

use std::io;
use std::rc::Rc;

use process::{Memory, Module};

use block::Block;
pub(crate) use tables::{FileTable, UnwindTables};

mod block;
mod placer;
mod tables;

/// A module of an address space with its table.
#[derive(Clone, Debug)]
pub(crate) struct Unwound {
    /// Its addresses.
    start: u64,
    end: u64,
    /// What its addresses are greater than those in the table.
    bias: u64,
    table: Rc<FileTable>,
}

impl Unwound {
    fn module(&self) -> unwind::Module<'_> {
        let Unwound { start, end, bias, ref table } = *self;
        unwind::Module { start, end, bias, table: table.rows() }
    }
}

/// The tables of one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwinding {
    /// By address, and apart from each other.
    modules: Vec<Unwound>,
    /// The block in the process that has them.
    block: Option<Block>,
    /// Blocks that were replaced. Threads may still read them.
    replaced: Vec<block::Replaced>,
    /// Whether the process could not have a block.
    refused: bool,
}

impl Unwinding {
    /// The tables of these modules; those that are not known yet are read.
    fn read(modules: &[Module], tables: &mut UnwindTables) -> Vec<Unwound> {
        let mut all: Vec<Unwound> = Vec::with_capacity(modules.len());
        for module in modules {
            let span = module.span();
            let is_apart = all.last().is_none_or(|last| last.end <= span.start);
            if let Some(table) = tables.of(&module.image).filter(|_| is_apart) {
                let bias = module.bias.wrapping_add(table.base());
                all.push(Unwound { start: span.start, end: span.end, bias, table });
            }
        }
        all
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !self.modules.is_empty()
    }

    /// The addresses of a thread's stack, as [`unwind::walk`] finds them.
    pub(crate) fn walk(
        &self,
        registers: &unwind::Registers<'_>,
        read: impl FnMut(u64) -> Option<u64>,
        frames: &mut [u64],
    ) -> usize {
        let modules: Vec<unwind::Module<'_>> = self.modules.iter().map(Unwound::module).collect();
        unwind::walk(registers, modules.as_slice(), read, frames)
    }

    /// The memory mapped for them: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        let replaced = self.replaced.iter().map(|replaced| replaced.memory);
        self.block.iter().map(Block::memory).chain(replaced)
    }

    /// Says in the process's directory where the tables are, so that its handlers use them. The
    /// directory is there once handlers work in a context.
    pub(crate) fn publish(&self, memory: &Memory, directory: u64) -> io::Result<()> {
        self.block.as_ref().map_or(Ok(()), |block| block.publish(memory, directory))
    }

    /// The same tables in a child, whose memory was copied perhaps while they were being written.
    pub(crate) fn copy(&self, memory: &Memory, directory: Option<u64>) -> Unwinding {
        let mut copy = self.clone();
        // Fails only if the child is gone.
        let _ = copy.block.as_mut().map_or(Ok(()), |block| block.write_again(memory, directory));
        // The child has one thread, which is in no handler; what was replaced is unmapped with the
        // rest.
        copy.replaced.iter_mut().for_each(block::Replaced::is_unused);
        copy
    }
}
