//! `dprobes trace`, through the real command: what scripts print.
//!
//! Cases are in `*.case` beside this file; each is played with `--engine jump` and with
//! `--engine trap`, whose outputs must be the same, and many by Debian's bpftrace too:
//! `cargo test -p dprobes --test scripts -- 'part of a name'`. `case` describes their form. What
//! needs signals, other processes or terminals is in `live`, `ends` and `hostile`.
//!
//! | file | what it is |
//! |---|---|
//! | `case` | reads and plays cases |
//! | `peer` | the same scripts with bpftrace |
//! | `tracing` | a running `dprobes trace` |
//! | `live` | scripts on processes that run already; signals; several processes |
//! | `hostile` | strings, and memory, of a hostile process |
//! | `kernel` | scripts in all processes, by the kernel |
//! | `typed` | types and lines from debug information |
//! | `unwinding` | stacks of programs without frame pointers |

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../system/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the scripts use a part of it")]
mod support;

mod case;
mod hostile;
mod kernel;
mod live;
mod peer;
mod tracing;
mod typed;
mod unwinding;

use std::process::ExitCode;
use testing::Trials;

fn main() -> ExitCode {
    let mut trials = Trials::new();
    case::add(&mut trials);
    live::add(&mut trials);
    hostile::add(&mut trials);
    kernel::add(&mut trials);
    typed::add(&mut trials);
    unwinding::add(&mut trials);
    trials.run()
}
