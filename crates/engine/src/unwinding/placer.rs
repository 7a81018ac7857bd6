//! Reads the tables of a process's modules, and gives the process its block.

use process::{Call, Error as ProcessError, Module, Stop, Stopped};

use super::block::{Block, Replaced};
use super::{Unwinding, Unwound};
use crate::mapping::{Called, count_mapping};
use crate::observer::Note;
use crate::placing::placer::Placer;
use crate::program::Engine;
use crate::reason::NotMapped;
use crate::space::Space;

/// How many blocks may be mapped that were replaced and that threads may still read.
const REPLACED: usize = 4;

impl Placer<'_, '_> {
    /// Whether handlers that take stacks are placed in an address space, or are about to be: by any
    /// engine, and by one that does not only trap.
    fn takes_stacks(&self, space: &Space) -> (bool, bool) {
        let mut taking = space.modules.placed.iter().map(|(program, _)| *program).filter_map(|program| {
            self.programs[program].takes_stacks.then_some(self.programs[program].options.engine)
        });
        let first = taking.next();
        let jumps = first.into_iter().chain(taking).any(|engine| engine != Engine::Trap);
        (first.is_some(), jumps)
    }

    /// Reads the tables of modules before they are needed.
    pub(crate) fn read_tables(&mut self, modules: &[Module]) {
        drop(Unwinding::read(modules, &mut self.cache.unwinding));
    }

    /// Gives an address space the tables of its modules, if handlers in it take stacks. Sites are
    /// written later, so that the first hit finds them.
    pub(crate) fn prepare_stacks(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        modules: &[Module],
    ) -> Result<(Stopped, Stop), ProcessError> {
        let (mut thread, mut stop) = (thread, stop);
        let Some(space) = self.followed.spaces.get(&number) else { return Ok((thread, stop)) };
        let (takes, jumps) = self.takes_stacks(space);
        if !takes {
            return Ok((thread, stop));
        }
        let modules = Unwinding::read(modules, &mut self.cache.unwinding);
        let Some(space) = self.followed.spaces.get_mut(&number) else { return Ok((thread, stop)) };
        space.shared.unwinding.modules = modules;
        let has_no_jumps =
            !jumps || space.shared.no_handler_memory.is_some() || space.shared.unwinding.refused;
        if has_no_jumps || thread.registers()?.is_32_bit() {
            return Ok((thread, stop));
        }
        (thread, stop) = self.unmap_replaced(number, thread, stop)?;
        match self.add_to_block(number) {
            Added::Yes | Added::Later => return Ok((thread, stop)),
            Added::No => {}
        }
        let (mut thread, mut stop, mapped) = self.map_block(number, thread, stop)?;
        if let Err(reason) = mapped {
            let pid = self.followed.threads.get(&thread.tid()).map_or(thread.tid(), |it| it.identity.pid);
            let note = format!("process {pid}: its stacks are walked by frame pointers: {reason}");
            self.messages.tell_once(Note::Other(note));
            if let Some(space) = self.followed.spaces.get_mut(&number) {
                space.shared.unwinding.refused = true;
            }
        } else {
            if !matches!(self.add_to_block(number), Added::Yes) {
                // The block before is about to be unmapped.
                self.withdraw_block(number);
            }
            (thread, stop) = self.unmap_replaced(number, thread, stop)?;
        }
        Ok((thread, stop))
    }

    /// Writes the tables into the block, and makes handlers use them.
    fn add_to_block(&mut self, number: u32) -> Added {
        let Some(Space { code, shared, .. }) = self.followed.spaces.get_mut(&number) else {
            return Added::Later;
        };
        let unwinding = &mut shared.unwinding;
        let Some(block) = &mut unwinding.block else { return Added::No };
        match block.add(&code.memory, &unwinding.modules) {
            Ok(false) if unwinding.replaced.len() < REPLACED => return Added::No,
            // Blocks that were replaced may still be read: the new tables wait for them.
            Ok(false) => return Added::Later,
            Ok(true) => {}
            Err(_) => {
                // The process is gone, or has unmapped the block.
                self.withdraw_block(number);
                return Added::Later;
            }
        }
        shared.publish_tables(&code.memory);
        Added::Yes
    }

    /// Makes handlers walk by frame pointers from now on.
    fn withdraw_block(&mut self, number: u32) {
        let Some(Space { code, shared, .. }) = self.followed.spaces.get_mut(&number) else { return };
        if let Some(directory) = shared.directory() {
            // Fails only if the process is gone.
            let _ = Block::withdraw(&code.memory, directory);
        }
        let unwinding = &mut shared.unwinding;
        unwinding.replaced.extend(unwinding.block.take().as_ref().map(Replaced::new));
        unwinding.refused = true;
    }

    /// Maps a block with room for the tables, which replaces the one before.
    fn map_block(&mut self, number: u32, thread: Stopped, stop: Stop) -> Called<()> {
        let Some(space) = self.followed.spaces.get(&number) else {
            return Ok((thread, stop, Err(NotMapped::Gone)));
        };
        let mappings = match thread.mappings() {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, Err(NotMapped::Mappings(error.into())))),
        };
        if let Err(reason) = count_mapping(mappings.len(), space.mapped.mappings) {
            return Ok((thread, stop, Err(reason)));
        }
        let size = size_in(thread.tid(), &space.shared.unwinding.modules);
        const NEW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut outcome = Err(NotMapped::Ended);
        let done = self.followed.spaces.with_calls(number, thread, stop, &mappings, |caller| {
            let arguments = [0, size, libc::PROT_READ as u64, NEW as u64, !0, 0];
            let (mut caller, result) = caller.call("mmap", libc::SYS_mmap, arguments)?;
            if let Ok(base) = result {
                (caller, _) = caller.call_one(Call::leave_out_of_dumps(base, size))?;
            }
            outcome = result.map_err(|error| NotMapped::Refused(error.into()));
            Ok(caller)
        });
        let (thread, stop, allowed) = done?;
        let mapped = allowed.and(outcome);
        if let Some((space, base)) = self.followed.spaces.get_mut(&number).zip(mapped.as_ref().ok()) {
            let unwinding = &mut space.shared.unwinding;
            let block = Block::new(*base, size, unwinding.block.as_ref());
            let before = unwinding.block.replace(block);
            unwinding.replaced.extend(before.as_ref().map(Replaced::new));
            space.mapped.mappings += 1;
            space.note_memory();
            // Fails only if the process is gone.
            let _ = space.hide([]);
        }
        Ok((thread, stop, mapped.map(drop)))
    }

    /// Unmaps blocks that no thread can read any more.
    fn unmap_replaced(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
    ) -> Result<(Stopped, Stop), ProcessError> {
        let Some(Space { code, shared, .. }) = self.followed.spaces.get_mut(&number) else {
            return Ok((thread, stop));
        };
        let contexts = shared.directory().and(shared.handler_memory.as_ref()).map(|memory| memory.contexts);
        let (count, memory) = (contexts.map_or(0, |contexts| contexts.count()), &code.memory);
        let is_claimed = |context: u32| contexts.is_some_and(|contexts| contexts.is_claimed(memory, context));
        let unused = shared.unwinding.replaced.iter_mut().filter_map(|replaced| {
            let is_unused = replaced.look(count, is_claimed);
            is_unused.then_some(replaced.memory)
        });
        let unused: Vec<(u64, u64)> = unused.collect();
        if unused.is_empty() {
            return Ok((thread, stop));
        }
        let (thread, stop, left) = self.followed.spaces.unmap_pieces(number, thread, stop, &unused)?;
        if let Some((space, left)) = self.followed.spaces.get_mut(&number).zip(left.ok()) {
            let is_gone = |memory: &(u64, u64)| unused.contains(memory) && !left.contains(memory);
            space.shared.unwinding.replaced.retain(|replaced| !is_gone(&replaced.memory));
            let gone = unused.len() - left.len();
            space.mapped.mappings = space.mapped.mappings.saturating_sub(gone);
            space.note_memory();
        }
        Ok((thread, stop))
    }
}

/// Whether tables were written into a block.
enum Added {
    Yes,
    /// There is no block, or no room in it.
    No,
    /// They cannot be written now.
    Later,
}

/// The bytes of a block in a thread's process: without room for more, if its limit of addresses is
/// low.
fn size_in(tid: i32, modules: &[Unwound]) -> u64 {
    let (size, least) = Block::size_for(modules);
    let few = process::addresses_left(tid).is_some_and(|left| left / 8 < size);
    if few { least } else { size }
}
