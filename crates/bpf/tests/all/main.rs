//! Programs in the kernel of this machine. They need root, or `CAP_BPF` and `CAP_PERFMON`.

mod assembling;
mod breakpoints;
mod events;
mod features;
mod kprobes;
mod loading;
mod maps;
mod object;
mod rings;
mod support;
mod tracepoints;
mod uprobes;
