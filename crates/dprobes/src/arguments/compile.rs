//! The arguments of `dprobes check` and `dprobes build-ppdf`, which compile a program and touch no
//! process.

use std::path::PathBuf;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};

use super::probes::Program;

/// The arguments of `dprobes check`
#[derive(Debug, Args)]
#[command(
    mut_arg("file", |file| file.required(false).required_unless_present("script")
        .default_value_if("script", ArgPredicate::IsPresent, SCRIPT)),
    after_help = "\
Examples:
  dprobes check count.rpn
  dprobes check --emit asm -D LIMIT=4096 malloc.rpn
  dprobes check --arch s390 count.rpn
  dprobes check --emit ast latency.bt
  dprobes check --emit bpf -o count.o count.rpn
  dprobes check -e 'uprobe:libc:malloc { @[comm] = hist(arg0); }'"
)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) program: Program,
    /// Check this script
    #[arg(short = 'e', long = "script", value_name = "TEXT", conflicts_with = "file")]
    pub(crate) script: Option<String>,
    /// The machine that the program is for: i386, x86-64, s390, s390x, ppc or ppc64; only x86-64
    /// and i386 programs can be inserted
    #[arg(long, value_name = "MACHINE", default_value = "x86-64")]
    pub(crate) arch: rpn::Arch,
    /// Print the compiled program in this form
    #[arg(long, value_name = "FORM")]
    pub(crate) emit: Option<Emit>,
    /// With `--emit bpf`: write ELF objects for `llvm-objdump -dr`, one for each probe: FILE, and
    /// for further probes FILE with their number
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What stands for the file's name where a script is given on the command line.
pub(crate) const SCRIPT: &str = "<script>";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// Assembly text of a program, disassembled from the code
    Asm,
    /// A script in its normal form, with its types
    Ast,
    /// A program's handlers as the kernel engine compiles them: eBPF instructions
    Bpf,
}

/// Compile a probe program and resolve its probes, for machines without the compiler or the symbols
///
/// `run` and `attach` take the resulting file (a PPDF, see `dprobes help ppdf`) in place of the
/// program. It is valid for this one build of the module and refused for any other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes build-ppdf app.rpn -o app.ppdf
  dprobes --build-ppdf app.rpn -o app.ppdf       the same command, as the original spelled it
  dprobes build-ppdf --sym /usr/lib/debug/app app.rpn
  dprobes run app.ppdf --group process memory --type leave -- app")]
pub(crate) struct BuildPpdf {
    #[command(flatten)]
    pub(crate) program: Program,
    /// The machine that the program is for [default: the module's]; for a machine other than this
    /// one, symbols stay as written
    #[arg(long, value_name = "MACHINE")]
    pub(crate) arch: Option<rpn::Arch>,
    /// The file to write [default: the program's name with .ppdf]
    #[arg(short, long = "outfile", alias = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Look symbols up in this file: a debug file of the module, the module before it was stripped,
    /// or the module itself if it is not found otherwise
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the
    /// program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
}
