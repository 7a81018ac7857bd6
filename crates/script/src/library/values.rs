//! Builtins, a row each: values that a probe has without arguments.
//!
//! What a builtin compiles to is in `compile/call.rs` and the files named there.

use super::entry::Accepts::{Any, Integer, Word};
use super::entry::Gives::{Later, Signed, Text, Unsigned};
use super::entry::Usage::Value;
use super::entry::{Entry, Gives, Needs, Parameter, optional};
use crate::provider::Providers;
use crate::types::Opaque;

const NONE: &[Parameter] = &[];
const NAMESPACE: &[Parameter] = &[optional("namespace", Word(&["curr_ns", "init"]))];
const CLOCK: &[Parameter] = &[optional("clock", Word(&["monotonic", "boot", "tai", "sw_tai"]))];
const STACK: &[Parameter] =
    &[optional("mode", Word(&["bpftrace", "perf", "raw", "build_id"])), optional("limit", Integer)];
const PID: &[Parameter] = &[optional("pid", Integer)];
const TASK: &[Parameter] = &[optional("task", Any)];

const fn value(name: &'static str, parameters: &'static [Parameter], gives: Gives) -> Entry {
    Entry::new(name, Value, parameters, gives)
}

/// The rows.
pub(super) const TABLE: &[Entry] = &[
    value("argN", NONE, Signed(8))
        .within(Providers::ARGUMENTS)
        .about("an argument of the function, counted from `arg0`"),
    value("args", NONE, Later)
        .within(Providers::NAMED_ARGUMENTS)
        .about("all arguments by name: `args.name`; from debug information or the tracepoint's format"),
    value("cgroup", NONE, Unsigned(8)).needs(Needs::Kernel).about("the number of the process's cgroup"),
    value("comm", PID, Text).about("the name of the thread; of a process, to be printed: a `comm_t`"),
    value("cpid", NONE, Unsigned(4)).about("the process that dprobes started"),
    value("cpu", NONE, Unsigned(4)).about("the processor"),
    value("ctx", NONE, Later).about("the context of the probe, as the kernel gives it"),
    value("curtask", NONE, Unsigned(8))
        .needs(Needs::Kernel)
        .about("the address of the thread's `struct task_struct`"),
    value("elapsed", NONE, Unsigned(8)).about("nanoseconds since tracing began"),
    value("func", NONE, Text)
        .within(Providers::FUNCTIONS)
        .about("the name of the function; of a source line or an address, of the function that contains it"),
    value("gid", NONE, Unsigned(8)).about("the group of the thread"),
    value("has_cpid", NONE, Gives::Bool).about("whether dprobes started a process"),
    value("jiffies", NONE, Unsigned(8)).needs(Needs::Kernel).about("the kernel's ticks"),
    value("kstack", STACK, Gives::Opaque(Opaque::KernelStack)).about("the stack of the kernel"),
    value("ncpus", NONE, Unsigned(8)).about("the number of processors"),
    value("nsecs", CLOCK, Unsigned(8)).about("the time in nanoseconds"),
    value("numaid", NONE, Unsigned(4)).about("the NUMA node"),
    value("pcomm", TASK, Gives::Opaque(Opaque::Process)).about("the name of the process"),
    value("pid", NAMESPACE, Unsigned(4)).about("the process"),
    value("ppid", TASK, Unsigned(4)).about("the parent of the process"),
    value("probe", NONE, Text).about("the attach point, in its full form"),
    value("probetype", NONE, Text).about("the provider of the attach point"),
    value("rand", NONE, Unsigned(4)).about("a random number"),
    value("retval", NONE, Unsigned(8)).within(Providers::RETURNS).about("what the function returns"),
    value("sargN", NONE, Unsigned(8))
        .within(Providers::ARGUMENTS)
        .about("an argument on the stack, counted from `sarg0`"),
    value("tid", NAMESPACE, Unsigned(4)).about("the thread"),
    value("uid", NONE, Unsigned(8)).about("the user of the thread"),
    value("usermode", NONE, Unsigned(1))
        .needs(Needs::Kernel)
        .about("1 if the thread ran outside of the kernel"),
    value("username", NONE, Gives::Opaque(Opaque::User)).about("the name of the user"),
    value("ustack", STACK, Gives::Opaque(Opaque::UserStack)).about("the stack of the process"),
];
