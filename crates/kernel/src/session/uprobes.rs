//! Attaches to instructions of files.
//!
//! The kernel examines an instruction when it first puts a breakpoint there: when the file is
//! mapped. If no process has it mapped, an instruction that it cannot probe would be refused later,
//! and nobody would hear of it. So this process maps the file while it attaches; with a limit to
//! another process, it first attaches to itself, for the examination only.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use bpf::{AttachError, Feature, Link, Program, ProgramKind, Uprobe, UprobeMulti};
use memmap2::MmapOptions;

use super::attached::Attached;
use super::halving;

/// An instruction of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its offset.
    pub offset: u64,
    /// The offset in the file of a counter that is above zero while the program is attached, in
    /// each process where it is: the semaphore of a static probe. 0: none.
    pub counter: u64,
    /// The cookie of the program there: [`crate::cookie`].
    pub cookie: u64,
}

/// How instructions of files are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uprobes {
    /// Whether many places have one link.
    together: bool,
    /// The process that is watched; all if there is none.
    process: Option<u32>,
}

impl Uprobes {
    /// The best way on this machine.
    pub fn new(process: Option<u32>) -> Uprobes {
        let needed = match process {
            None => Feature::UprobeMulti,
            Some(_) => Feature::UprobeMultiProcess,
        };
        Uprobes { together: needed.is_available(), process }
    }

    /// One link for each place, as Linux before 6.6 needs it.
    pub fn one_by_one(process: Option<u32>) -> Uprobes {
        Uprobes { together: false, process }
    }

    /// Whether many places have one link.
    pub fn is_together(self) -> bool {
        self.together
    }

    /// The kind that a program must have.
    pub fn kind(self, sleepable: bool) -> ProgramKind {
        match self.together {
            true => ProgramKind::UprobeMulti { sleepable },
            false => ProgramKind::Uprobe { sleepable },
        }
    }

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self.together {
            true => "uprobe_multi",
            false => "uprobe",
        }
    }

    /// Attaches a program to places of a file.
    pub fn attach(self, program: &Program, file: &File, sites: &[Site]) -> Attached {
        let mut attached = Attached::default();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // SAFETY: the memory is never read; whatever happens to the file does not matter.
        let mapped = unsafe { MmapOptions::new().map_copy_read_only(file) };
        let mut good: Vec<(usize, Site)> = sites.iter().copied().enumerate().collect();
        if self.process.is_some() && mapped.is_ok() {
            let own = Uprobes { process: Some(std::process::id()), ..self };
            let mut examined = Attached::default();
            own.attach_all(program, &path, &good, &mut examined);
            good.retain(|(index, _)| examined.refused.iter().all(|(refused, _)| refused != index));
            attached.refused.append(&mut examined.refused);
        }
        self.attach_all(program, &path, &good, &mut attached);
        attached
    }

    fn attach_all(self, program: &Program, path: &PathBuf, sites: &[(usize, Site)], attached: &mut Attached) {
        let before = attached.refused.len();
        let mut attach = |range: Range<usize>| match self.together {
            true => self.attach_together(program, path, &sites[range]),
            false => self.attach_one(program, path, sites[range.start].1),
        };
        match self.together {
            true => halving::attach(0..sites.len(), attached, &mut attach),
            false => {
                (0..sites.len()).for_each(|place| halving::attach(place..place + 1, attached, &mut attach))
            }
        }
        for (refused, _) in &mut attached.refused[before..] {
            *refused = sites[*refused].0;
        }
    }

    fn attach_together(
        self,
        program: &Program,
        path: &PathBuf,
        sites: &[(usize, Site)],
    ) -> Result<Link, AttachError> {
        let offsets: Vec<u64> = sites.iter().map(|(_, site)| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|(_, site)| site.cookie).collect();
        let counters: Vec<u64> = sites.iter().map(|(_, site)| site.counter).collect();
        let none = counters.iter().all(|counter| *counter == 0);
        let all = UprobeMulti {
            path,
            offsets: &offsets,
            cookies: &cookies,
            reference_counters: if none { &[] } else { &counters },
            on_return: false,
            process: self.process,
        };
        all.attach(program)
    }

    fn attach_one(self, program: &Program, path: &PathBuf, site: Site) -> Result<Link, AttachError> {
        // The kernel has 32 bits for it.
        let reference_counter =
            u32::try_from(site.counter).map_err(|_| AttachError::Event(bpf::Errno::EFBIG))?;
        let one =
            Uprobe { path, offset: site.offset, on_return: false, reference_counter, process: self.process };
        one.attach(program, site.cookie)
    }
}
