//! The arguments of `dprobes list`.

use std::ffi::OsString;

use clap::Args;

use super::processes::one;
use super::values::parse_point;

/// List modules, and the functions and static probes in them that can be probed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes list /bin/ls                 the functions of a file
  dprobes list libc 'mem*'             those of a library whose names match
  dprobes list /bin/ls main --points return   where main is left
  dprobes list --tactics /bin/ls       which jumps its functions' entries would get
  dprobes list --tactics -p 4711 'libc:mem*' --points '*'   each of their instructions, in a process
  dprobes list -u /usr/bin/python3 'gc__*'   static probes (USDT) and the types of their arguments
  dprobes list --data -p 4711 'a.out:*state*'   variables for `dprobes watch`, with their sizes
  dprobes list kernel 'vfs_*'          functions of the kernel, and why some cannot be probed
  dprobes list -p 4711                 the modules of a process
  dprobes list -p 4711 libc            the functions of one of them
  dprobes list -p 4711 'libc:mall*'    those whose names match")]
pub(crate) struct List {
    /// A program or shared library: its path, or its name, as in libc; kernel; with -p, the pattern
    #[arg(value_name = "FILE", required_unless_present = "pid")]
    pub(crate) file: Option<OsString>,
    /// Functions whose names match, with * ? [ ]; MODULE:FUNCTION for both. With --data, variables.
    /// With -u, static probes: NAME or PROVIDER:NAME
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// List the points of these functions that --at MODULE:FUNCTION:POINT would probe: entry,
    /// return, * or an offset
    #[arg(long, value_name = "POINT", value_parser = parse_point)]
    pub(crate) points: Option<rpn::FunctionPoint>,
    /// List static probes (USDT), as scripts name them, and the types of their arguments; a
    /// question mark marks an argument whose place is not understood
    #[arg(short, long, conflicts_with_all = ["points", "tactics"])]
    pub(crate) usdt: bool,
    /// List global and static variables with their addresses and sizes, as `dprobes watch` and
    /// `uaddr` of scripts name them
    #[arg(long, conflicts_with_all = ["points", "tactics", "usdt"])]
    pub(crate) data: bool,
    /// Count how many of these points would be jumps, by tactic, and how many would not, by reason;
    /// no process is changed
    ///
    /// What fits depends on the free memory around a module: with -p, that of the process; for a
    /// file alone, around the address where the kernel would most likely map it.
    #[arg(long)]
    pub(crate) tactics: bool,
    /// Print --tactics as JSON (`dprobes help tactics`)
    #[arg(long, requires = "tactics")]
    pub(crate) json: bool,
    /// A running process: its id, or the name of its program
    #[arg(short, long, value_name = "PID|NAME", value_parser = one)]
    pub(crate) pid: Option<i32>,
}
