//! Attaches to instructions of the kernel, and to the returns of its functions.

use bpf::{KernelPlace, Kprobe, Program};

use super::attached::Attached;
use super::halving;

/// A place in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSite {
    /// Its address.
    pub address: u64,
    /// Whether the program runs when the function at the address returns.
    pub on_return: bool,
    /// The cookie of the program there: [`crate::cookie`].
    pub cookie: u64,
}

/// Attaches a program of the kind [`bpf::ProgramKind::Kprobe`] to places in the kernel.
pub fn attach_kernel(program: &Program, sites: &[KernelSite]) -> Attached {
    let mut attached = Attached::default();
    for place in 0..sites.len() {
        halving::attach(place..place + 1, &mut attached, &mut |range| {
            let site = sites[range.start];
            let kprobe = Kprobe { place: KernelPlace::Address(site.address), on_return: site.on_return };
            kprobe.attach(program, site.cookie)
        });
    }
    attached
}
