//! The sites of this program: where they are, and their bytes.
//!
//! ```text
//! site:   0f 1f 44 00 00     nop
//!         e9 xx xx xx xx     jmp armed      xx = armed - (site + 5)
//! ```

use crate::head::HookHeader;

/// The length of a site.
pub(crate) const LENGTH: usize = 5;

/// The bytes of a dormant site.
pub(crate) const DORMANT: [u8; LENGTH] = [0x0f, 0x1f, 0x44, 0, 0];

/// A site as the section `dprobes_hook_sites` lists it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Site {
    /// The no-operation's address.
    pub(crate) at: usize,
    /// The target of its jump while an exit is armed.
    pub(crate) armed: usize,
    /// The hook.
    pub(crate) head: *const HookHeader,
}

// SAFETY: the addresses of code and of a hook that is never dropped.
unsafe impl Send for Site {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Site {}

impl Site {
    /// The bytes of an active or dormant site; `None` if no jump reaches the target, or the site
    /// crosses the end of its aligned 8-byte word.
    pub(crate) fn bytes(&self, active: bool) -> Option<[u8; LENGTH]> {
        if self.at % 8 > 8 - LENGTH {
            return None;
        }
        if !active {
            return Some(DORMANT);
        }
        let distance = (self.armed as i64).checked_sub(self.at as i64 + LENGTH as i64)?;
        let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
        Some([0xe9, a, b, c, d])
    }
}

/// The sites linked into this program, or into the library that contains this code.
pub(crate) fn linked() -> &'static [Site] {
    let (start, stop): (*const Site, *const Site);
    // SAFETY: the linker defines the two symbols, since the section is not empty: `text` has a
    // site.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]
    unsafe {
        std::arch::asm!(
            ".hidden __start_dprobes_hook_sites",
            ".hidden __stop_dprobes_hook_sites",
            "lea {start}, [rip + __start_dprobes_hook_sites]",
            "lea {stop}, [rip + __stop_dprobes_hook_sites]",
            start = out(reg) start,
            stop = out(reg) stop,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites"))))]
    {
        (start, stop) = (std::ptr::null(), std::ptr::null());
    }
    // SAFETY: between the two symbols there are only sites.
    unsafe { table(start, stop) }
}

/// The sites of a section.
///
/// # Safety
/// There are only sites from `start` to `stop`, for as long as the program lives.
pub(crate) unsafe fn table(start: *const Site, stop: *const Site) -> &'static [Site] {
    let bytes = (stop as usize).saturating_sub(start as usize);
    if start.is_null() || bytes < size_of::<Site>() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, bytes / size_of::<Site>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_leads_to_the_armed_path() {
        let site = Site { at: 0x1000, armed: 0x2005, head: std::ptr::null() };
        assert_eq!(site.bytes(true), Some([0xe9, 0, 0x10, 0, 0]));
        assert_eq!(site.bytes(false), Some(DORMANT));
        let back = Site { at: 0x1003, armed: 0x1000, head: std::ptr::null() };
        assert_eq!(back.bytes(true), Some([0xe9, 0xf8, 0xff, 0xff, 0xff]));
    }

    #[test]
    fn a_site_that_cannot_be_written_at_once_is_none() {
        assert_eq!(Site { at: 0x1004, armed: 0x2000, head: std::ptr::null() }.bytes(true), None);
        assert_eq!(Site { at: 0x1000, armed: 1 << 40, head: std::ptr::null() }.bytes(true), None);
    }
}
