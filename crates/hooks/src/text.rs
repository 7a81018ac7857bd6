//! Writes to the program's own text while other threads execute it.
//!
//! A site is one instruction and becomes one instruction of the same length, inside an aligned
//! 8-byte word. One locked store of that word replaces it, so that no thread ever sees part of it.
//! Then `membarrier(SYNC_CORE)` makes every processor that runs a thread of this process refetch
//! its instructions.
//!
//! Two methods are tried in this order:
//!
//! 1. Make the page writable (it stays executable, since threads may be in it), write, and restore
//!    the protection.
//! 2. If the system forbids that (`PR_SET_MDWE`, a security module), copy the page to a memory
//!    file, change the copy, and map it executable and never writable in place of the page. The
//!    kernel flushes the old page on every processor before the call returns.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::site::{LENGTH, Site};

const PAGE: usize = 4096;

/// Makes sites active or dormant. If one fails, the sites before it are restored.
///
/// # Errors
/// The system's error.
pub(crate) fn set(sites: &[Site], active: bool) -> io::Result<()> {
    for (place, site) in sites.iter().enumerate() {
        if let Err(error) = set_one(site, active) {
            for done in &sites[..place] {
                // It was writable a moment ago; if it fails, the site leads to a hook without armed
                // exits: slow, but correct.
                let _ = set_one(done, !active);
            }
            synchronise();
            return Err(error);
        }
    }
    if !sites.is_empty() {
        synchronise();
    }
    Ok(())
}

fn set_one(site: &Site, active: bool) -> io::Result<()> {
    let bytes = site.bytes(active).ok_or(io::ErrorKind::InvalidInput)?;
    let page = site.at & !(PAGE - 1);
    if protect(page, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).is_ok() {
        replace(site.at, bytes);
        return protect(page, libc::PROT_READ | libc::PROT_EXEC);
    }
    exchange(page, site.at, bytes)
}

fn protect(page: usize, protection: i32) -> io::Result<()> {
    // SAFETY: the page is a page of text, and stays readable and executable.
    match unsafe { libc::mprotect(std::ptr::with_exposed_provenance_mut(page), PAGE, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Replaces the bytes of a site in its aligned word.
fn replace(at: usize, bytes: [u8; LENGTH]) {
    // SAFETY: the word's page is writable now, the word is aligned, and other writers of text (a
    // debugger) write while this thread is stopped or, as here, in one locked store.
    let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at & !7)) };
    let within = at % 8;
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
        let mut new = old.to_le_bytes();
        new[within..within + LENGTH].copy_from_slice(&bytes);
        Some(u64::from_le_bytes(new))
    });
}

/// Maps a changed copy of a page in its place.
fn exchange(page: usize, at: usize, bytes: [u8; LENGTH]) -> io::Result<()> {
    let mut copy = [0; PAGE];
    // SAFETY: text with sites is readable: the linker makes it so, and the first method keeps it
    // so.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(page), copy.as_mut_ptr(), PAGE)
    };
    copy[at - page..at - page + LENGTH].copy_from_slice(&bytes);
    // SAFETY: plain system calls. The new mapping has the old bytes except for one instruction,
    // which changes as a whole.
    unsafe {
        let file = match libc::memfd_create(c"hooks".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_EXEC) {
            // Kernels before 6.3 know no MFD_EXEC.
            -1 => libc::memfd_create(c"hooks".as_ptr(), libc::MFD_CLOEXEC),
            file => file,
        };
        if file == -1 {
            return Err(io::Error::last_os_error());
        }
        let mut result = Ok(());
        if libc::write(file, copy.as_ptr().cast(), PAGE) != PAGE as isize
            || libc::mmap(
                std::ptr::with_exposed_provenance_mut(page),
                PAGE,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_FIXED,
                file,
                0,
            ) == libc::MAP_FAILED
        {
            result = Err(io::Error::last_os_error());
        }
        libc::close(file);
        result
    }
}

/// Returns when every processor executes the current text. Without membarrier, restoring the page's
/// protection had the same effect: it interrupts every processor that runs this process.
fn synchronise() {
    const SYNC_CORE: i32 = 1 << 5;
    const REGISTER_SYNC_CORE: i32 = 1 << 6;
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    // SAFETY: plain system calls without memory.
    let membarrier = |command: i32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    if *REGISTERED.get_or_init(|| membarrier(REGISTER_SYNC_CORE)) {
        membarrier(SYNC_CORE);
    }
}

/// A site that always exists, so that the linker creates the section. The first arming tests with
/// it whether text can be changed, before anything relies on it.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]
pub(crate) mod rehearsal {
    use super::*;
    use crate::head::HookHeader;

    crate::declare_hook! {
        /// The hook of the test site. It is never identified.
        pub(crate) REHEARSAL()
    }

    #[inline(never)]
    fn is_armed() -> bool {
        crate::site!(REHEARSAL, {
            return true;
        });
        false
    }

    /// Whether a hook is the test site's.
    pub(crate) fn is_own(head: *const HookHeader) -> bool {
        std::ptr::eq(head, REHEARSAL.head())
    }

    /// Whether text can be changed: makes a site active and dormant again, and checks both.
    pub(crate) fn passes() -> bool {
        static PASSES: OnceLock<bool> = OnceLock::new();
        *PASSES.get_or_init(|| {
            let own = |site: &&Site| is_own(site.head);
            let sites: Vec<Site> = crate::site::linked().iter().filter(own).copied().collect();
            let dormant = !is_armed();
            let active = set(&sites, true).is_ok() && is_armed();
            let again = set(&sites, false).is_ok() && !is_armed();
            dormant && active && again
        })
    }
}

/// A build with tested sites changes no text.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites"))))]
pub(crate) mod rehearsal {
    use crate::head::HookHeader;

    pub(crate) fn is_own(_: *const HookHeader) -> bool {
        false
    }

    pub(crate) fn passes() -> bool {
        true
    }
}
