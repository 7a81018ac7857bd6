//! The memory that jump probes need in an address space, beside their trampolines.

use std::os::fd::AsRawFd;

use process::{Stop, Stopped};

use crate::mapping::{self, Called};
use crate::slots;
use crate::tracer::Tracer;

/// Where an address space has it.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// The address of the shared words.
    pub(crate) cells: u64,
    /// What is mapped: addresses and sizes.
    mapped: Vec<(u64, u64)>,
}

impl Ground {
    /// What is mapped: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        self.mapped.iter().copied()
    }
}

impl Tracer<'_> {
    /// Makes sure that an address space has it.
    pub(crate) fn make_ground(&mut self, number: u32, thread: Stopped, stop: Stop) -> Called<()> {
        let tid = thread.tid();
        let Some(space) = self.spaces.get_mut(&number) else {
            return Ok((thread, stop, Err("the process is gone".to_owned())));
        };
        if space.ground.is_some() {
            return Ok((thread, stop, Ok(())));
        }
        let Some(cells) = &self.cells else {
            return Ok((thread, stop, Err("there is no memory to share with it".to_owned())));
        };
        let shared = cells.shared().clone();
        let mappings = match process::maps(tid) {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, Err(error.to_string()))),
        };
        let size = (shared.size() as u64).next_multiple_of(4096);
        let places = slots::gaps(&mapping::taken(tid, &mappings), size, 0x1000_0000, &(0x1_0000..=0x7fff_ffff));
        let Some(gap) = places.first().copied() else {
            return Ok((thread, stop, Err("it has no room below 2 GiB".to_owned())));
        };
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), shared.descriptor().as_raw_fd());
        let place = thread.registers()?.rsp() - 2048;
        let _ = process::write(tid, place, path.as_bytes());
        let mut outcome = Err("it cannot open the tracer's memory".to_owned());
        let (thread, stop, allowed) = self.with_calls(number, thread, stop, &mappings, |thread, syscall| {
            let (thread, stop, fd) =
                thread.call(syscall, libc::SYS_open, [place, (libc::O_RDWR | libc::O_CLOEXEC) as u64, 0, 0, 0, 0])?;
            let Ok(fd) = fd else { return Ok((thread, stop)) };
            let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
            let (thread, _, mapped) = thread.call(syscall, libc::SYS_mmap, [gap.start, size, rights, flags, fd, 0])?;
            let (thread, stop, _) = thread.call(syscall, libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
            outcome = mapped.map_err(|error| format!("mapping shared memory: {error}"));
            Ok((thread, stop))
        })?;
        let made = allowed.and(outcome).map(|cells| {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.ground = Some(Ground { cells, mapped: vec![(cells, size)] });
            }
        });
        Ok((thread, stop, made))
    }
}
