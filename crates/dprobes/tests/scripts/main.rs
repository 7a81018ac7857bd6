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
//! | `changed` | arguments and memory that scripts set |
//! | `peer` | the same scripts with bpftrace |
//! | `tracing` | a running `dprobes trace` |
//! | `theirs` | bpftrace's own programs for user space |
//! | `live` | scripts on processes that run already; signals; several processes |
//! | `export` | maps as metrics |
//! | `hostile` | strings, and memory, of a hostile process |
//! | `kernel` | scripts in all processes, by the kernel |
//! | `events` | scripts with events and probes of the kernel, on a command |
//! | `kernel_types` | arguments of the kernel's functions and tracepoints by name; what is listed of it |
//! | `semaphores` | static probes with semaphores, by the kernel |
//! | `stores` | what `printf` says as records |
//! | `symbols` | the addresses of symbols |
//! | `system_map` | the kernel's names from a System.map |
//! | `typed`, `typed_languages` | types and lines from debug information |
//! | `debuginfod` | debug information that a server has |
//! | `watches` | watchpoints |
//! | `unwinding` | stacks of programs without frame pointers |

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../system/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the scripts use a part of it")]
mod support;

mod case;
mod changed;
mod debuginfod;
mod events;
mod export;
mod hostile;
mod kernel;
mod kernel_types;
mod live;
mod peer;
mod semaphores;
mod stores;
mod symbols;
mod system_map;
mod theirs;
mod tracing;
mod typed;
mod typed_languages;
mod unwinding;
mod watches;

use std::process::ExitCode;
use testing::Trials;

fn main() -> ExitCode {
    let mut trials = Trials::new();
    case::add(&mut trials);
    changed::add(&mut trials);
    live::add(&mut trials);
    export::add(&mut trials);
    hostile::add(&mut trials);
    kernel::add(&mut trials);
    events::add(&mut trials);
    theirs::add(&mut trials);
    kernel_types::add(&mut trials);
    semaphores::add(&mut trials);
    stores::add(&mut trials);
    symbols::add(&mut trials);
    system_map::add(&mut trials);
    typed::add(&mut trials);
    typed_languages::add(&mut trials);
    debuginfod::add(&mut trials);
    unwinding::add(&mut trials);
    watches::add(&mut trials);
    trials.run()
}
