//! Tests a process that may not have memory which is writable and executable, nor make any
//! executable later (`PR_SET_MDWE`): sites are changed by the second method. The restriction is
//! process-wide, so this is the file's only test.

#![cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hooks::{Verdict, declare_hook, hook};

declare_hook! {
    /// Hit in a process that is locked.
    LOCKED(number: u64)
}

#[test]
fn sites_are_changed_where_text_may_not_be_written() {
    const REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    // SAFETY: plain system calls; the page contains this function's own text, and keeps its
    // protection if the call is refused.
    let refused = unsafe {
        if libc::prctl(libc::PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0 {
            return testing::skipped("locked text", "a kernel with PR_SET_MDWE");
        }
        let page = sites_are_changed_where_text_may_not_be_written as *const () as usize & !4095;
        libc::mprotect(page as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) != 0
    };
    assert!(refused, "the first way is closed");
    static SUM: AtomicU64 = AtomicU64::new(0);
    let exit = LOCKED.exit(|_, (number,)| {
        SUM.fetch_add(number, Ordering::Relaxed);
        Verdict::Continue
    });
    let exit = exit.register().expect("free");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                hook!(LOCKED, 0);
            }
        });
        for _ in 0..200 {
            hook!(LOCKED, 1000);
            exit.arm().expect("the second way is open");
            hook!(LOCKED, 1);
            exit.disarm().expect("registered");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(SUM.load(Ordering::Relaxed), 200);
}
