//! Instructions on maps. A key, or a value, is a range of the frame.

use crate::flow::Flow;
use crate::hit::RunContext;
use crate::machine::{Clock, Machine};
use crate::slow_path::granted;
use crate::{Exception, FRAMES_LIMIT, Op, Program, Word};

/// `parm1` of INVALID_OPERAND: a map's index, or the length of a key or a value.
const MAP: u64 = 9;

/// Pops a key's offset, then its length.
fn pop_key<const WIDE: bool>(flow: &mut Flow<'_, '_, WIDE>) -> (u64, u64) {
    (flow.stack.pop(), flow.stack.pop())
}

/// Executes an instruction of these.
pub(crate) fn execute<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    op: Op,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let word = Flow::<WIDE>::WORD;
    let maps = &program.maps;
    let number = flow.code.u16()?;
    let index = usize::from(number);
    let Some(info) = maps.infos.get(index) else { return Err(Exception::operand(MAP, number.into())) };
    let value_size = u64::from(info.value);
    // A key that is too long for the map is a mistake of the program, be it to be set or looked up.
    let fits = |length: u64| match length <= u64::from(info.key) {
        true => Ok(()),
        false => Err(Exception::operand(MAP, length)),
    };
    match op {
        Op::Update => {
            let (key, value) = (pop_key(flow), flow.stack.pop());
            fits(key.1)?;
            let now = match info.kind == maps::Kind::Tseries as u32 {
                true => granted(flow, hit.machine.time(Clock::Monotonic))?,
                false => 0,
            };
            let processor = hit.machine.processor();
            let key = hit.aside().frame.get(key.0, key.1)?;
            maps.update(index, key, signed(word, value), processor as u32, now);
        }
        Op::Fetch => {
            let (key, to) = (pop_key(flow), flow.stack.pop());
            fits(key.1)?;
            let [key, value] = hit.aside().frame.two(key, (to, value_size))?;
            let found = maps.fetch(index, key, value);
            flow.stack.push(found.into());
        }
        Op::Store => {
            let (key, value) = (pop_key(flow), pop_key(flow));
            fits(key.1)?;
            if value.1 > value_size {
                return Err(Exception::operand(MAP, value.1));
            }
            let frame = &hit.aside().frame;
            maps.store(index, frame.get(key.0, key.1)?, frame.get(value.0, value.1)?);
        }
        Op::Erase => {
            let key = pop_key(flow);
            fits(key.1)?;
            let erased = maps.erase(index, hit.aside().frame.get(key.0, key.1)?);
            flow.stack.push(erased.into());
        }
        Op::Load => {
            let key = pop_key(flow);
            fits(key.1)?;
            let value = maps.load(index, hit.aside().frame.get(key.0, key.1)?);
            flow.stack.push(word.truncate(value));
        }
        Op::Put => {
            let (key, value) = (pop_key(flow), flow.stack.pop());
            fits(key.1)?;
            maps.put(index, hit.aside().frame.get(key.0, key.1)?, signed(word, value));
        }
        Op::Bump => {
            let (key, by) = (pop_key(flow), flow.stack.pop());
            fits(key.1)?;
            let before = maps.bump(index, hit.aside().frame.get(key.0, key.1)?, signed(word, by));
            flow.stack.push(word.truncate(before));
        }
        Op::Has => {
            let key = pop_key(flow);
            fits(key.1)?;
            let has = maps.has(index, hit.aside().frame.get(key.0, key.1)?);
            flow.stack.push(has.into());
        }
        Op::Next => {
            let (position, key, value) = (flow.stack.pop(), flow.stack.pop(), flow.stack.pop());
            let [key, value] = hit.aside().frame.two((key, info.key.into()), (value, value_size))?;
            let next = maps.next(index, position, key, value);
            flow.stack.push(word.truncate(next));
        }
        Op::Entries => flow.stack.push(word.truncate(maps.entries(index))),
        Op::StackOf => {
            let most = flow.stack.pop().min(FRAMES_LIMIT as u64) as usize;
            let number = granted(flow, hit.machine.stack_number(maps, index, most))?;
            flow.stack.push(word.truncate(number));
        }
        // Only the kernel has it.
        Op::KStackOf => {
            flow.stack.pop();
            flow.stack.push(0);
        }
        Op::Depth => {
            let number = flow.stack.pop();
            flow.stack.push(word.truncate(maps.depth(index, number)));
        }
        // The others are elsewhere.
        _ => return Err(flow.code.invalid()),
    }
    Ok(())
}

/// A word as a number of 64 bits: an aggregate is of 64 bits whatever the word.
fn signed(word: Word, value: u64) -> u64 {
    word.signed(value) as u64
}
