//! The kernel engine, from outside: `dprobes attach` without -p, and with `--engine kernel -p PID`;
//! `dprobes insert`.
//!
//! A probe here fires in every process of the machine that executes the probed file. So each test
//! probes files of its own: copies of the programs in `tests/targets`, in its scratch directory.
//! Tests need root and a kernel that runs eBPF programs; without, they are skipped as `bpf: ...`.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod support;

mod by_process;
mod chosen;
mod core_dumps;
mod counts;
mod files;
mod filters;
mod functions;
mod in_kernel;
mod inserted;
mod limits;
mod losses;
mod messages;
mod one_process;
mod records;
mod tracepoints;
mod watch;
