//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use trace::sink::Target;
use trace::{Form, Items};

use crate::points::{At, Text};

/// Dynamic probes on running programs.
///
/// A probe program says where to probe (a module, and functions or offsets in it) and what to do at each hit:
/// test, count, log, change. It is put into a running process or a new one without changing it on disk, stopping
/// it, or losing a hit.
#[derive(Debug, Parser)]
#[command(
    name = "dprobes",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  dprobes run examples/malloc.rpn -- ls -l /      probe a command from its first instruction
  dprobes run --at 'libc:mem*:entry' -- ls -l /   count the calls of functions
  dprobes attach -p 4711 count.rpn --for 10s      probe a running process for ten seconds
  dprobes check --emit asm count.rpn              compile only, and show the instructions
  dprobes list /bin/ls 'str*'                     functions that can be probed"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command with probes in it
    Run(Run),
    /// Probe a running process
    Attach(Attach),
    /// Show what probes count, live in the terminal
    Top(crate::top::Top),
    /// Compile a probe program and report what is wrong with it
    Check(Check),
    /// Compile a probe program and resolve its probes, for use where neither compiler nor symbols are
    BuildPpdf(BuildPpdf),
    /// List modules and the functions in them that can be probed
    List(List),
    /// Put probes in and return; a background session keeps them
    Insert(Insert),
    /// Put the probes of a PPDF in and return
    ApplyPpdf(ApplyPpdf),
    /// Take probes out that were inserted
    Remove(Remove),
    /// Show the probes that are inserted
    Query(Query),
    /// Show or reset the variables of inserted programs
    Getvars(GetVars),
    /// Show or stop the background session
    Session(Session),
    /// Check and list the templates by which records are shown
    Templates(Templates),
    /// Show the records of a trace store
    #[command(visible_alias = "format")]
    Show(Show),
    /// Convert a trace store to other forms
    Convert(crate::convert::Convert),
    /// Report on a trace store: rates, latencies, top talkers
    Report(crate::report::Report),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, as roff
    #[command(hide = true)]
    Man {
        /// The page
        page: crate::man::Page,
    },
}

/// Run a command with probes in it
///
/// The probes are in before the command's first instruction, and in the libraries it loads as soon as they are
/// mapped. Processes that it creates are probed too. The exit status is the command's own; 125 if dprobes fails,
/// 126 or 127 if the command cannot be executed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes run count.rpn -- ls -l /
  dprobes run --at 'libc.so.6:mem*:entry' -- ls            calls of functions, counted
  dprobes run --at a.out:main:return --do 'push retval; log 1' -- ./app
  dprobes run --at 'a.out:parse:*' -- ./app                 how often each instruction runs
  dprobes run -D LIMIT=4096 --log PID,TSC -o records.txt malloc.rpn -- python3 script.py
  dprobes run -o trace.dpt malloc.rpn -- ./app              a trace store, for `dprobes show`
  dprobes run --log-target stderr,ctf:trace malloc.rpn -- ./app   seen, and kept for babeltrace2")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) probes: Probes,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Probe a running process
///
/// Until Ctrl-C, the end of the process, or the end of the time given. Then every byte of the process is as
/// before. Processes that it creates meanwhile are probed too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes attach -p 4711 count.rpn
  dprobes attach -p 4711 --at '::malloc:entry' --at '::free:entry' --for 5s
  dprobes attach -p 4711 --at libc:malloc:entry --do 'push arg, 0; log 1'
  dprobes attach -p $(pidof -s redis-server) count.rpn --for 10s --stats counts.json
  dprobes attach -p 4711 --log-target serial:/dev/ttyS0 app.rpn")]
pub(crate) struct Attach {
    #[command(flatten)]
    pub(crate) probes: Probes,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
}

/// Compile a probe program and report what is wrong with it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes check count.rpn
  dprobes check --emit asm -D LIMIT=4096 malloc.rpn
  dprobes check --arch s390 count.rpn")]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) program: Program,
    /// The machine that the program is for: i386, x86-64, s390, s390x, ppc or ppc64; only x86-64 and i386
    /// programs can be inserted
    #[arg(long, value_name = "MACHINE", default_value = "x86-64")]
    pub(crate) arch: rpn::Arch,
    /// Print what it was compiled to
    #[arg(long, value_name = "FORM")]
    pub(crate) emit: Option<Emit>,
}

/// Compile a probe program and resolve its probes, for use where neither compiler nor symbols are
///
/// The file that is made (a PPDF, see docs/ppdf.md) is given to `run` and `attach` in place of the program. It is for
/// this one build of the module: applied to another it is refused.
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
    /// The machine that the program is for [default: the module's]; where this one does not run it, symbols are kept as
    /// they are written
    #[arg(long, value_name = "MACHINE")]
    pub(crate) arch: Option<rpn::Arch>,
    /// The file to write [default: the program's name with .ppdf]
    #[arg(short, long = "outfile", alias = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Look symbols up in this file: a debug file of the module or the module before it was stripped, or the module itself
    /// where it is not found
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
}

/// List modules and the functions in them that can be probed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes list /bin/ls                 the functions of a file
  dprobes list libfoo.so 'foo_*'       those whose names match
  dprobes list /bin/ls main --points return   where main is left
  dprobes list --tactics /bin/ls       which jumps its functions' entries would get
  dprobes list --tactics -p 4711 'libc*:mem*' --points '*'   each of their instructions, in a process
  dprobes list -p 4711                 the modules of a process
  dprobes list -p 4711 'libc*:mall*'   functions of its modules")]
pub(crate) struct List {
    /// A program or shared library (with -p: the pattern)
    #[arg(value_name = "FILE", required_unless_present = "pid")]
    pub(crate) file: Option<OsString>,
    /// Functions whose names match, with * ? [ ]; MODULE:FUNCTION for both
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// The points of these functions that --at MODULE:FUNCTION:POINT would probe: entry, return, * or an offset
    #[arg(long, value_name = "POINT", value_parser = point)]
    pub(crate) points: Option<rpn::Point>,
    /// How many of these points would be jumps, by tactic, and how many would not, by reason; nothing is changed in any
    /// process
    ///
    /// What fits depends on what memory is free around a module. With -p that of the process is taken; for a file alone, where the
    /// kernel would most likely put it.
    #[arg(long)]
    pub(crate) tactics: bool,
    /// Print --tactics as JSON (docs/tactics.md)
    #[arg(long, requires = "tactics")]
    pub(crate) json: bool,
    /// A running process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
}

/// Which probes of a program are used.
#[derive(Debug, Default, Args)]
pub(crate) struct Select {
    /// Only the probes of these groups: names, separated by commas or spaces; with --type, those that both select
    #[arg(short = 'u', long, value_name = "LIST", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Vec<String>,
    /// Only the probes of these types
    #[arg(short = 't', long = "type", value_name = "LIST", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) kind: Vec<String>,
}

/// Put probes in and return; a background session keeps them
///
/// Without -p they are for every process of yours that maps the module, now or later: children of probed processes at
/// once, others within a tenth of a second of their start (a second, if they load the module late). Records go to the
/// kernel log, or where --log-target and -o say.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes insert count.rpn
  dprobes --insert count.rpn --merge             the same command, as the original spelled it
  dprobes insert -p 4711 -o records.txt malloc.rpn
  dprobes insert --sym app.debug --log PID TSC app.rpn
  dprobes insert --log-target KLOG,evl app.rpn             several targets: docs/targets.md
  dprobes insert -p 4711 --at a.out:main_loop:entry")]
pub(crate) struct Insert {
    #[command(flatten)]
    pub(crate) probes: Probes,
    /// Look symbols up in this file: a debug file of the module, or the module before it was stripped
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Let no thread of a process past a probe before all of them are in; so it always is
    #[arg(long)]
    pub(crate) stop_cpus: bool,
    #[command(flatten)]
    pub(crate) placing: Placing,
}

/// Put the probes of a PPDF in and return
///
/// As `insert` does it, for a file that `build-ppdf` has made. Symbols and macros were given when it was built.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes apply-ppdf app.ppdf
  dprobes --apply-ppdf app.ppdf --group process memory --type leave")]
pub(crate) struct ApplyPpdf {
    /// The PPDF
    #[arg(value_name = "PROG.ppdf")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) placing: Placing,
}

/// How probes are inserted.
#[derive(Debug, Args)]
pub(crate) struct Placing {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Add to the probes that the module has; a probepoint that both have is taken from the file
    #[arg(short, long, conflicts_with = "replace")]
    pub(crate) merge: bool,
    /// Put these in the place of the probes that the module has
    #[arg(short = 'c', long)]
    pub(crate) replace: bool,
    /// For these processes and their children only
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Vec<i32>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Where records go, several with commas between them or one after the other: KLOG, COM1, COM2, serial:DEVICE, LTT[:FILE], EVL,
    /// ctf:DIR, file:PATH, store:PATH.dpt [default: KLOG]
    ///
    /// docs/targets.md has what each of them is, and what it promises.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = kept_target)]
    pub(crate) log_target: Vec<Target>,
    /// Write records to the end of a file; to a new trace store where its name ends in .dpt
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What the file is, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    /// Load a plugin into the session, where it stays; may be given several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// Take probes out that were inserted
#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Show the probes that are inserted
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) which: Which,
    /// With the programs' code and variables
    #[arg(short = 'x', long)]
    pub(crate) extended: bool,
}

/// Show or reset the variables of inserted programs
///
/// Processes are not stopped for it.
#[derive(Debug, Args)]
pub(crate) struct GetVars {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Local variables only
    #[arg(long)]
    pub(crate) local: bool,
    /// Global variables only
    #[arg(long)]
    pub(crate) global: bool,
    /// Those of this range of indices, both included
    #[arg(short, long, value_name = "FROM-TO", value_parser = range)]
    pub(crate) index: Option<(usize, usize)>,
    /// Set them to zero
    #[arg(long)]
    pub(crate) reset: bool,
}

/// Show or stop the background session
#[derive(Debug, Args)]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) action: SessionAction,
}

/// Show the records of a trace store
///
/// A store is made with -o FILE.dpt. It has all header items, whichever are shown, and says where its probes were, what was
/// counted and what was lost. A store whose writer was killed, or that was damaged, is read as far as there is something
/// to be read; what is lost is told, and the exit status is 1 then. Records are shown by the templates given, else by those that
/// were given when the store was made, and their bytes where there is none.
#[derive(Debug, Args)]
#[command(mut_arg("templates", |templates| templates.short('t')), after_help = "\
Examples:
  dprobes show trace.dpt                                   all records
  dprobes format trace.dpt -t examples/templates           the same, by templates
  dprobes show --info trace.dpt                            what is in it
  dprobes show --log PID TSC PROCNAME trace.dpt
  dprobes show --from 1.5s --to 2s trace.dpt               from its start
  dprobes show --from 2026-01-31T12:00:00Z trace.dpt       by the clock, in UTC
  dprobes show --probe malloc --pid 4711 trace.dpt
  dprobes show --probe 1,2 trace.dpt                       major and minor code")]
pub(crate) struct Show {
    /// The store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// Show what is known of the trace, and no record
    #[arg(short, long)]
    pub(crate) info: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Only records from this time on: from the start of the trace (1.5s, 500ms, 2m), a date and time in UTC, or @SECONDS since 1970
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) from: Option<Moment>,
    /// Only records up to this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) to: Option<Moment>,
    /// Only records of these processes
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Only records of these threads
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub(crate) tid: Vec<u32>,
    /// Only records of these probes: a probepoint as `--info` shows it, with or without its module (patterns with * ? [ ]), or
    /// MAJOR,MINOR; may be given several times
    #[arg(long, value_name = "PROBE")]
    pub(crate) probe: Vec<String>,
}

/// A time in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So long after the trace has begun.
    After(Duration),
    /// Nanoseconds since 1970.
    At(u64),
}

impl Moment {
    /// Nanoseconds since 1970; `start` is when the trace has begun.
    pub(crate) fn time(self, start: u64) -> u64 {
        match self {
            Moment::After(passed) => {
                start.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
            }
            Moment::At(time) => time,
        }
    }
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Say whether there is a session
    Status,
    /// Take all probes out and end the session
    Stop,
}

/// Check and list the templates by which records are shown
///
/// A template says what the bytes of a record are and how they are shown, by the codes of its probe. The language is described
/// in docs/templates.md. With a mistake in a template, its records are shown as dumps; the others are shown as they should be.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes templates check examples/templates
  dprobes templates list examples/templates
  dprobes run --templates examples/templates examples/malloc.rpn -- ls -l /")]
pub(crate) struct Templates {
    #[command(subcommand)]
    pub(crate) action: TemplatesAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplatesAction {
    /// Tell all mistakes; the exit status is 1 if there is one
    Check {
        /// The template directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Show what each template says that its records hold: names and types
    List {
        /// The template directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Which programs are meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Those of this module
    #[arg(short, long, value_name = "MODULE")]
    pub(crate) name: Option<String>,
    /// All
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// What is probed: by a program, or by points of functions.
#[derive(Debug, Args)]
pub(crate) struct Probes {
    /// The probe program, or the PPDF built from one
    #[arg(value_name = "PROG.rpn", required_unless_present = "at")]
    pub(crate) file: Option<PathBuf>,
    /// Probe points of functions, as DTrace's pid provider names them; may be given several times
    ///
    /// MODULE is a library (libc.so.6, or libc for short), a path, or a.out for the program itself. POINT is entry,
    /// return, * for every instruction, or an offset in hexadecimal. MODULE and FUNCTION may be patterns with * ? [ ],
    /// and empty for any. Without --do, hits are counted by function.
    #[arg(long, value_name = "MODULE:FUNCTION:POINT", value_parser = crate::points::parse, conflicts_with = "file")]
    pub(crate) at: Vec<At>,
    /// What to do at each hit of --at: instructions of the probe language, with ; between them
    ///
    /// There are 64 local variables (lv) and 64 global ones (gv).
    #[arg(long = "do", value_name = "STATEMENTS", requires = "at", conflicts_with = "file")]
    pub(crate) handler: Option<String>,
    /// Define a macro of the program
    #[arg(short = 'D', value_name = "KEY[=VALUE]", value_parser = definition)]
    pub(crate) define: Vec<(String, String)>,
    /// Look for included files in this directory too
    #[arg(short = 'I', value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,
}

/// A probe program and how it is compiled.
#[derive(Clone, Debug, Args)]
pub(crate) struct Program {
    /// The probe program, or the PPDF built from one
    #[arg(value_name = "PROG.rpn")]
    pub(crate) file: PathBuf,
    /// The text of a program that is in no file
    #[arg(skip)]
    pub(crate) text: Option<Text>,
    /// Define a macro of the program
    #[arg(short = 'D', value_name = "KEY[=VALUE]", value_parser = definition)]
    pub(crate) define: Vec<(String, String)>,
    /// Look for included files in this directory too
    #[arg(short = 'I', value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,
}

/// What is shown of a record.
#[derive(Debug, Default, Args)]
pub(crate) struct Shown {
    /// Header items of records: PROCNAME PID UID SSESP CSEIP TSC, or ALL; separated by commas or spaces [default: PID]
    #[arg(short, long, value_name = "ITEMS", value_parser = items)]
    pub(crate) log: Vec<String>,
    /// Write what was logged byte after byte, without offsets and characters
    #[arg(short = 'f', long)]
    pub(crate) unformatted_output: bool,
    /// Show records by the templates in this directory: a file `directory`, or *.fmt files (docs/templates.md)
    #[arg(long, value_name = "DIR", conflicts_with = "unformatted_output")]
    pub(crate) templates: Option<PathBuf>,
}

impl Shown {
    /// The header items.
    pub(crate) fn items(&self) -> Items {
        match self.log.as_slice() {
            [] => Items::DEFAULT,
            // They were checked when the command line was read.
            lists => lists.iter().flat_map(|list| Items::parse(list)).fold(Items::NONE, Items::with),
        }
    }

    /// How the bytes are written.
    pub(crate) fn form(&self) -> Form {
        if self.unformatted_output { Form::Unformatted } else { Form::Formatted }
    }
}

/// What becomes of records that come faster than they are written.
#[derive(Debug, Default, Args)]
pub(crate) struct Buffering {
    /// Lose no record: where the buffer is full, the program waits until there is room
    ///
    /// Without it, records of jumps that find no room are dropped, and counted.
    #[arg(long)]
    pub(crate) lossless: bool,
    /// Bytes of records that may wait to be written, for each processor: 256K to 64M, a power of two [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<u64>,
}

/// How a program is used.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Look symbols up in this file: a debug file of the module, or the module before it was stripped
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Where records go, several with commas between them or one after the other: stderr, KLOG, COM1, COM2, serial:DEVICE, LTT[:FILE],
    /// EVL, ctf:DIR, file:PATH, store:PATH.dpt [default: stderr]
    ///
    /// docs/targets.md has what each of them is, and what it promises.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Target::parse)]
    pub(crate) log_target: Vec<Target>,
    /// Write records to a file instead of standard error; to a trace store where its name ends in .dpt (`dprobes show` reads it)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What the file is, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    /// Write counts and variables to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Load a plugin, a shared object that is called for records and by `callk`; may be given several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// A plugin, and what it is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plugin {
    pub(crate) file: PathBuf,
    /// What stands behind the first `=`; empty if there is none.
    pub(crate) argument: String,
}

/// What a file of records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text, as in the kernel's log
    Text,
    /// A trace store
    Dpt,
}

impl Format {
    /// The format of an output: the one that is asked for, else as its name ends.
    pub(crate) fn of(output: Option<&Path>, asked: Option<Format>) -> Format {
        let is_store = output.and_then(Path::extension).is_some_and(|extension| extension == "dpt");
        asked.unwrap_or(if is_store { Format::Dpt } else { Format::Text })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Engine {
    /// A jump wherever one can stand, a trap elsewhere
    Auto,
    /// A jump inside the process; where none can stand, the probe is refused
    Jump,
    /// A breakpoint that this command answers
    Trap,
}

impl From<Engine> for engine::Engine {
    fn from(engine: Engine) -> engine::Engine {
        match engine {
            Engine::Auto => engine::Engine::Auto,
            Engine::Jump => engine::Engine::Jump,
            Engine::Trap => engine::Engine::Trap,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Emit {
    /// The program's text as disassembled from its code
    Asm,
}

/// Reads `KEY=VALUE`, or `KEY` for 1, as C compilers do.
fn definition(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, "1"));
    let key = key.trim();
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    let goes_on = |c: char| starts(c) || c.is_ascii_digit();
    if key.is_empty() || !key.starts_with(starts) || !key.chars().all(goes_on) {
        return Err(format!("`{key}` is no name; KEY=VALUE expected, as in -D LIMIT=4096"));
    }
    Ok((key.to_owned(), value.trim().to_owned()))
}

/// Checks header items, and keeps their names.
fn items(text: &str) -> Result<String, String> {
    if text.trim_matches([',', ' ', '\t']).is_empty() {
        return Err("no header item is named; as in --log PID TSC, or --log ALL".to_owned());
    }
    Items::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads a plugin and its argument.
fn plugin(text: &str) -> Result<Plugin, String> {
    let (file, argument) = text.split_once('=').unwrap_or((text, ""));
    match file.is_empty() {
        true => Err("the plugin's file is missing; as in --plugin ./plugin.so=ARGUMENT".to_owned()),
        false => Ok(Plugin { file: file.into(), argument: argument.to_owned() }),
    }
}

/// Reads a point of a function.
fn point(text: &str) -> Result<rpn::Point, String> {
    let wrong = || "entry, return, * or an offset in hexadecimal expected".to_owned();
    rpn::Point::parse(text).ok_or_else(wrong)
}

/// Reads a target of probes that stay.
fn kept_target(text: &str) -> Result<Target, String> {
    match Target::parse(text) {
        Ok(Target::Terminal) => {
            Err("standard error is not there any more when probes that stay are hit".to_owned())
        }
        target => target.map_err(|error| error.to_string()),
    }
}

/// Reads a range of indices.
fn range(text: &str) -> Result<(usize, usize), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
        _ => Err("a range is written as FROM-TO, as in 0-7".to_owned()),
    }
}

/// Reads a size in bytes.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is written as 512K or 16M, and is from 256K to 64M".to_owned();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        _ => return Err(wrong()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.filter(|bytes| engine::BUFFERS.contains(bytes)).ok_or_else(wrong)?;
    if !bytes.is_power_of_two() {
        let next = bytes.next_power_of_two() >> 10;
        return Err(format!("a buffer's size is a power of two; the next one is {next}K"));
    }
    Ok(bytes)
}

/// Reads a time; a bare number means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; a time is written as 10s, 500ms or 2m"))
}

/// Reads a time in a trace.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    const HOW: &str =
        "a time is written as 1.5s, 500ms or 2m after the start, as 2026-01-31T12:00:00Z, or as @SECONDS";
    let seconds = |text: &str| {
        let seconds: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let since_1970 =
        |passed: Duration| u64::try_from(passed.as_nanos()).map(Moment::At).map_err(|_| HOW.to_owned());
    if let Some(text) = text.strip_prefix('@') {
        // As text: a number of seconds with nanoseconds has more digits than a double.
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let whole: u64 = whole.parse().map_err(|_| HOW.to_owned())?;
        let part: u32 = format!("{part:0<9}").get(..9).and_then(|part| part.parse().ok()).ok_or(HOW)?;
        return since_1970(Duration::new(whole, part));
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Some(passed) = seconds(text.strip_suffix('s').unwrap_or(text)) {
        return Ok(Moment::After(passed));
    }
    if let Ok(passed) = humantime::parse_duration(text) {
        return Ok(Moment::After(passed));
    }
    let date = humantime::parse_rfc3339_weak(text).map_err(|_| HOW.to_owned())?;
    since_1970(date.duration_since(std::time::UNIX_EPOCH).map_err(|_| HOW.to_owned())?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_time_in_a_trace_is_written_in_three_ways() {
        use super::{Moment, moment};
        use std::time::Duration;
        for (text, meant) in [
            ("1.5s", Moment::After(Duration::from_millis(1500))),
            ("+2", Moment::After(Duration::from_secs(2))),
            ("500ms", Moment::After(Duration::from_millis(500))),
            ("@1700000000.000000001", Moment::At(1_700_000_000_000_000_001)),
            ("@1700000000", Moment::At(1_700_000_000_000_000_000)),
            ("1970-01-01T00:00:01.5Z", Moment::At(1_500_000_000)),
            ("1970-01-01 00:01:00", Moment::At(60_000_000_000)),
        ] {
            assert_eq!(moment(text), Ok(meant), "{text}");
        }
        for text in ["", "noon", "-1s", "@", "@1.x", "@99999999999999999999"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert_eq!(Moment::After(Duration::from_secs(1)).time(5), 1_000_000_005);
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        assert_eq!(super::size("16M"), Ok(16 << 20));
        assert_eq!(super::size("512kib"), Ok(512 << 10));
        assert_eq!(super::size("4194304"), Ok(4 << 20));
        for wrong in ["", "M", "1K", "128M", "3M", "4G", "-1", "99999999999999999999M"] {
            assert!(super::size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn definitions_are_as_for_a_c_compiler() {
        assert_eq!(super::definition("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(super::definition("A"), Ok(("A".to_owned(), "1".to_owned())));
        assert!(super::definition("1A=2").is_err());
        assert!(super::definition("=2").is_err());
    }
}
