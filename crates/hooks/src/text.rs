//! Writing to the program's own text while other threads execute it.
//!
//! A site is one instruction and becomes one instruction of the same length, inside of one aligned word of 8 bytes. It is replaced by one
//! locked store of that word, so that no thread ever sees a part of it. Then `membarrier(SYNC_CORE)` makes every processor that
//! runs a thread of this process fetch its instructions anew.
//!
//! Two ways to get there, tried in this order:
//!
//! 1. The page is made writable (and stays executable: threads are in it), written, and made as it was.
//! 2. Where the system forbids that (`PR_SET_MDWE`, a security module), a copy of the page is made in a memory file, written
//!    there, and mapped, executable and never writable, in the place of the page. The kernel makes every processor forget
//!    the old page before the call returns.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::site::{LENGTH, Site};

const PAGE: usize = 4096;

/// Makes sites active or dormant. If one cannot be, those before it are made as they were.
///
/// # Errors
/// The system's refusal.
pub(crate) fn set(sites: &[Site], active: bool) -> io::Result<()> {
    for (place, site) in sites.iter().enumerate() {
        if let Err(error) = set_one(site, active) {
            for done in &sites[..place] {
                // What could be written a moment ago can be written again; else the site leads to a hook with no armed exit,
                // which is slow, not wrong.
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
    // SAFETY: the page of the word is writable now, the word is aligned, and what else writes to text (a debugger) does so while
    // this thread is stopped or, as here, in one locked store.
    let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at & !7)) };
    let within = at % 8;
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
        let mut new = old.to_le_bytes();
        new[within..within + LENGTH].copy_from_slice(&bytes);
        Some(u64::from_le_bytes(new))
    });
}

/// Puts a changed copy of a page in its place.
fn exchange(page: usize, at: usize, bytes: [u8; LENGTH]) -> io::Result<()> {
    let mut copy = [0; PAGE];
    // SAFETY: text is readable where sites are: the linker makes it so, and the first way would have kept it so.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(page), copy.as_mut_ptr(), PAGE)
    };
    copy[at - page..at - page + LENGTH].copy_from_slice(&bytes);
    // SAFETY: plain system calls. The new mapping has the bytes of the old one but for one instruction, which changes as a whole.
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

/// Returns when every processor executes the text as it is now. Where the kernel has no such barrier, changing the page's protection
/// back was one: it interrupts every processor that runs this process.
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

/// The site that is always there, so that the linker makes the section: it shows at the first arming that text can be changed, before
/// anything relies on it.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]
pub(crate) mod rehearsal {
    use super::*;
    use crate::head::Head;

    crate::declare_hook! {
        /// The hook of the rehearsal. It is never identified.
        pub(crate) REHEARSAL()
    }

    #[inline(never)]
    fn is_armed() -> bool {
        crate::site!(REHEARSAL, {
            return true;
        });
        false
    }

    /// Whether sites of the rehearsal's hook belong to nobody.
    pub(crate) fn is_own(head: *const Head) -> bool {
        std::ptr::eq(head, REHEARSAL.head())
    }

    /// Whether text can be changed: a site is made active, and dormant again, and was seen to be each.
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
    use crate::head::Head;

    pub(crate) fn is_own(_: *const Head) -> bool {
        false
    }

    pub(crate) fn passes() -> bool {
        true
    }
}
