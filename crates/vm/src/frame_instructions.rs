//! Instructions on the frame, and what scripts know of the thread.

use crate::flow::Flow;
use crate::handler_frame::HandlerFrame;
use crate::hit::RunContext;
use crate::log::{PAGE, read_before_fault};
use crate::machine::{self, Clock, Machine};
use crate::slow_path::granted;
use crate::{Exception, Op, Program};

/// Bytes of a string that are read first; most strings end there.
const FIRST_PIECE: usize = 64;

/// Bytes that are read at a time of a string that is longer.
const LATER_PIECE: usize = 512;

/// Executes an instruction of these.
pub(crate) fn execute<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    op: Op,
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) -> Result<(), Exception> {
    let word = Flow::<WIDE>::WORD;
    match op {
        Op::PushF => {
            let offset = flow.code.u16()?;
            flow.stack.push(word.truncate(hit.aside().frame.word(offset.into())?));
        }
        Op::PopF => {
            let offset = flow.code.u16()?;
            hit.aside().frame.set_word(offset.into(), flow.stack.top())?;
            flow.stack.discard(1);
        }
        Op::PushF8 => {
            let offset = flow.stack.pop();
            flow.stack.push(hit.aside().frame.get(offset, 1)?[0].into());
        }
        Op::FillF => {
            let (offset, count) = (flow.stack.pop(), flow.stack.pop());
            hit.aside().frame.get_mut(offset, count)?.fill(0);
        }
        Op::MoveF => {
            let (to, from, count) = (flow.stack.pop(), flow.stack.pop(), flow.stack.pop());
            hit.aside().frame.copy(to, from, count)?;
        }
        Op::ReadF => {
            let (offset, address, count) = (flow.stack.pop(), flow.stack.pop(), flow.stack.pop());
            let (machine, frame) = hit.machine_and_frame();
            let into = frame.get_mut(offset, count)?;
            let read = machine::read(machine, word, address, 0, into).is_ok();
            if !read {
                into.fill(0);
            }
            flow.stack.push(read.into());
        }
        Op::StrF => {
            let (offset, address, room) = (flow.stack.pop(), flow.stack.pop(), flow.stack.pop());
            let (machine, frame) = hit.machine_and_frame();
            // Only as far as the string goes do bytes of the frame change, but all of its room must
            // be there.
            frame.get(offset, room)?;
            let length = string::<M, WIDE>(machine, frame, offset, address, room)?;
            flow.stack.push(word.truncate(length.unwrap_or(u64::MAX)));
        }
        Op::TextF => {
            let (offset, number) = (flow.stack.pop(), flow.stack.pop());
            let length = match program.constants.get(number) {
                Some(text) => {
                    let into = hit.aside().frame.padded(offset, text.len() as u64)?;
                    let (bytes, padding) = into.split_at_mut(text.len());
                    bytes.copy_from_slice(text);
                    padding.fill(0);
                    text.len() as u64
                }
                None => u64::MAX,
            };
            flow.stack.push(word.truncate(length));
        }
        Op::CompareF => {
            let [first, second] = [(); 2].map(|()| (flow.stack.pop(), flow.stack.pop()));
            let frame = &hit.aside().frame;
            let order = frame.get(first.0, first.1)?.cmp(frame.get(second.0, second.1)?);
            flow.stack.push(word.truncate(order as i64 as u64));
        }
        Op::FindF => {
            let [first, second] = [(); 2].map(|()| (flow.stack.pop(), flow.stack.pop()));
            let frame = &hit.aside().frame;
            let (all, part) = (frame.get(first.0, first.1)?, frame.get(second.0, second.1)?);
            let found = match part.len() {
                0 => Some(0),
                size => all.windows(size).position(|window| window == part),
            };
            flow.stack.push(word.truncate(found.map_or(u64::MAX, |place| place as u64)));
        }
        Op::GlobF => {
            let [text, pattern] = [(); 2].map(|()| (flow.stack.pop(), flow.stack.pop()));
            let frame = &hit.aside().frame;
            let matches = crate::glob::matches(frame.get(text.0, text.1)?, frame.get(pattern.0, pattern.1)?);
            flow.stack.push(matches.into());
        }
        Op::LogF => {
            let (offset, count) = (flow.stack.pop(), flow.stack.pop());
            hit.log_frame(&[], (offset, count), &[])?;
        }
        Op::LogTextF => {
            let (offset, length) = (flow.stack.pop(), flow.stack.pop());
            let padding = length.wrapping_neg() % 8;
            hit.log_frame(&length.to_le_bytes(), (offset, length), &[0; 8][..padding as usize])?;
        }
        Op::PushTid => {
            let thread = granted(flow, hit.machine.thread())?;
            flow.stack.push(word.truncate(thread));
        }
        Op::PushNsecs => {
            let clock = Clock::of(flow.code.u8()?);
            let time = clock.and_then(|clock| hit.machine.time(clock));
            let time = granted(flow, time)?;
            flow.stack.push(word.truncate(time));
        }
        Op::PushRand => {
            let number = granted(flow, hit.machine.random())?;
            flow.stack.push(number.into());
        }
        Op::PushIds => {
            let (user, group) = granted(flow, hit.machine.ids())?;
            flow.stack.push(word.truncate(u64::from(group) << 32 | u64::from(user)));
        }
        Op::PushParent => {
            let parent = granted(flow, hit.machine.parent())?;
            flow.stack.push(parent.into());
        }
        Op::Signal => {
            let to_thread = match flow.code.u8()? {
                0 => false,
                1 => true,
                _ => return Err(flow.code.invalid()),
            };
            let sent = hit.machine.signal(flow.stack.pop(), to_thread);
            granted(flow, sent.then_some(()))?;
        }
        Op::Override => {
            let taken = hit.machine.override_function(flow.stack.pop());
            granted(flow, taken.then_some(()))?;
        }
        Op::CommF => {
            let offset = flow.stack.pop();
            let name = granted(flow, hit.machine.name())?;
            hit.aside().frame.get_mut(offset, 16)?.copy_from_slice(&name);
            let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            flow.stack.push(length as u64);
        }
        // The others are elsewhere.
        _ => return Err(flow.code.invalid()),
    }
    Ok(())
}

/// Copies the string at an address, without its NUL and at most `room` bytes of it, to the frame,
/// and zeros behind it up to a multiple of 8. A string ends, too, where it cannot be read. Returns
/// its length; `None` if not one byte can be read.
fn string<M: Machine, const WIDE: bool>(
    machine: &mut M,
    frame: &mut HandlerFrame,
    offset: u64,
    address: u64,
    room: u64,
) -> Result<Option<u64>, Exception> {
    let word = Flow::<WIDE>::WORD;
    let mut bytes = [0; LATER_PIECE];
    let mut length = 0;
    while length < room {
        let to_page_end = PAGE - address.wrapping_add(length) % PAGE;
        let most = if length == 0 { FIRST_PIECE } else { LATER_PIECE };
        let piece = (room - length).min(to_page_end).min(most as u64) as usize;
        let into = &mut bytes[..piece];
        let read = read_before_fault(machine, word, address, length as usize, into).map_or(0, |read| read.0);
        if read == 0 && length == 0 {
            return Ok(None);
        }
        let text = &bytes[..read];
        let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
        frame.get_mut(offset + length, text.len() as u64)?.copy_from_slice(text);
        length += text.len() as u64;
        if text.len() < piece {
            break;
        }
    }
    frame.padded(offset, length)?[length as usize..].fill(0);
    Ok(Some(length))
}
