//! What is probed: programs, and points of functions; how they are compiled, and which of their probes are used.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::values::definition;
use crate::points::{At, Text};

/// What is probed: by a program, or by points of functions.
#[derive(Debug, Args)]
pub(crate) struct Probes {
    /// The probe program, or the PPDF built from one
    #[arg(value_name = "PROG.rpn", required_unless_present = "at")]
    pub(crate) file: Option<PathBuf>,
    /// Probe points of functions, as DTrace's pid provider names them; may be given several times
    ///
    /// MODULE is a library (libc.so.6, or libc for short), a path, or a.out for the program itself. POINT is entry,
    /// return, * for every instruction, or an offset in hexadecimal. All may be patterns with * ? [ ] (of POINT for entry and return), and
    /// empty for any. pidPID: before them names the process of -p. Without --do, hits are counted by function.
    #[arg(long, value_name = "MODULE:FUNCTION:POINT", value_parser = crate::points::parse, conflicts_with = "file")]
    pub(crate) at: Vec<At>,
    /// What to do at each hit of --at: instructions of the probe language, with ; between them
    ///
    /// There are 64 local variables (lv) and 64 global ones (gv).
    #[arg(long = "do", value_name = "STATEMENTS", requires = "at", conflicts_with = "file")]
    pub(crate) handler: Option<String>,
    #[command(flatten)]
    pub(crate) preprocessor: Preprocessor,
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
    #[command(flatten)]
    pub(crate) preprocessor: Preprocessor,
}

/// What the preprocessor is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Preprocessor {
    /// Define a macro of the program
    #[arg(short = 'D', value_name = "KEY[=VALUE]", value_parser = definition)]
    pub(crate) define: Vec<(String, String)>,
    /// Look for included files in this directory too
    #[arg(short = 'I', value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,
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
