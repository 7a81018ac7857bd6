//! Stops the threads of a process and reads all of it but the memory.

use process::{PageMap, Registers, Stopped};

use super::auxiliary::auxiliary_vector;
use super::moment::Moment;
use super::{breakpoints, hold, threads};
use crate::followed::Followed;
use crate::messages::Messages;
use crate::reason::NotDumped;

/// Stops the other threads of the process of a stopped thread, which is shown with `registers`, and
/// reads all but the memory. They stay stopped; their events are handled next.
///
/// # Errors
/// Why there can be no core dump.
pub(super) fn take_moment(
    followed: &mut Followed,
    messages: &mut Messages<'_>,
    pid: i32,
    thread: &Stopped,
    registers: &Registers,
) -> Result<Moment, NotDumped> {
    let tid = thread.tid();
    let left_out = hold::hold_others(followed, messages, tid, pid)?;
    let number = followed.threads.get(&tid).and_then(|tracked| tracked.space);
    let Some(space) = number.and_then(|number| followed.spaces.get(&number)) else {
        return Err(NotDumped::NoLayout);
    };
    let threads = threads::views(followed, pid, thread, registers, space)?;
    let mut changes = Vec::new();
    space.sites.each_change(|change| changes.push(*change));
    let mappings = process::maps(tid).map_err(|error| NotDumped::Read(error.into()))?;
    let areas = space.mapped.areas.iter().map(|area| area.base()..area.base() + area.size());
    let hidden = areas.chain(breakpoints::kernel_memory(&mappings)).collect();
    Ok(Moment {
        process: pid,
        tid,
        threads,
        left_out,
        changes,
        hidden,
        auxiliary: auxiliary_vector(tid),
        narrow: registers.is_32_bit(),
        mappings,
        pages: PageMap::open(tid).map_err(|error| NotDumped::Read(error.into()))?,
    })
}
