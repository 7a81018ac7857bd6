//! The program `calls` makes as many system calls as it says: probes in the kernel are counted
//! against it.

use crate::oracle::Times::Exactly;
use crate::{oracle, trial::Trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        oracle::calls(
            "calls: getppid",
            ["", "calls getppid 2000", ""],
            &[("p __x64_sys_getppid", Exactly(2000)), ("r __x64_sys_getppid", Exactly(2000))],
        ),
        oracle::calls(
            "calls: open and close",
            ["", "calls open 50", ""],
            &[("p do_sys_openat2", Exactly(50)), ("p close_fd", Exactly(50))],
        ),
    ]
}
