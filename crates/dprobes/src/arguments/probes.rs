//! Arguments that say what is probed: programs, or points of functions; how programs are compiled,
//! and which of their probes are used.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::values::definition;
use crate::at_programs::Text;
use crate::points::At;

/// What is probed: a program, or points of functions.
#[derive(Debug, Args)]
pub(crate) struct Probes {
    /// The probe program, or the PPDF built from one
    #[arg(value_name = "PROG.rpn", required_unless_present = "at")]
    pub(crate) file: Option<PathBuf>,
    // Before `at`: what is parsed into a field is no longer among the matches.
    #[command(flatten)]
    pub(crate) handlers: Handlers,
    /// Probe points of functions, named as in DTrace's pid provider; may be given several times
    ///
    /// MODULE is a library (libc.so.6, or libc for short), a path, a.out for the program itself, or
    /// kernel.
    /// POINT is entry, which is meant if it is left out, return, * for every instruction, or a
    /// hexadecimal offset. All may be patterns with * ? [ ] (a POINT pattern matches entry and
    /// return); an empty value matches everything. A prefix pidPID: names the process of -p.
    /// Without --do, hits are counted per function.
    #[arg(long, value_name = "MODULE:FUNCTION[:POINT]", display_order = 0, value_parser = crate::points::parse, conflicts_with = "file")]
    pub(crate) at: Vec<At>,
    #[command(flatten)]
    pub(crate) preprocessor: Preprocessor,
}

/// What is done at the points of `--at`.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    texts: Vec<String>,
    /// Where on the command line these, and the points, are.
    places: Vec<usize>,
    points: Vec<usize>,
}

/// Its argument.
#[derive(Args)]
struct Do {
    /// What to do at each hit of --at: instructions of the probe language, separated by ;
    ///
    /// One --do is for all points; of several, each is for the points before it, up to the last
    /// --do. There are 64 local variables (lv) and 64 global ones (gv).
    #[arg(long = "do", value_name = "STATEMENTS", requires = "at", conflicts_with = "file")]
    handler: Vec<String>,
}

impl Handlers {
    /// The texts, in the order of the command line.
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Which text is for the `--at` with this number; none if only the hits are counted.
    pub(crate) fn of(&self, at: usize) -> Option<usize> {
        match self.texts.len() {
            0 | 1 => self.texts.first().map(|_| 0),
            _ => self.places.iter().position(|place| Some(place) > self.points.get(at)),
        }
    }
}

impl FromArgMatches for Handlers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Handlers, clap::Error> {
        let places = |id| matches.indices_of(id).into_iter().flatten().collect::<Vec<usize>>();
        let Do { handler: texts } = Do::from_arg_matches(matches)?;
        let handlers = Handlers { texts, places: places("handler"), points: places("at") };
        let used: Vec<usize> = (0..handlers.points.len()).filter_map(|at| handlers.of(at)).collect();
        match handlers.texts.iter().enumerate().find(|(number, _)| !used.contains(number)) {
            Some((_, text)) if !used.is_empty() => Err(clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                format!(
                    "no `--at` for `--do '{}'`: of several --do, each is for the --at before it",
                    printable::text(text)
                ),
            )),
            _ => Ok(handlers),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Handlers::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Handlers {
    fn augment_args(command: Command) -> Command {
        Do::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Do::augment_args_for_update(command)
    }
}

/// A probe program and how it is compiled.
#[derive(Clone, Debug, Args)]
pub(crate) struct Program {
    /// The probe program, or the PPDF built from one
    #[arg(value_name = "PROG.rpn")]
    pub(crate) file: PathBuf,
    /// The program's text, if it is not in a file
    #[arg(skip)]
    pub(crate) text: Option<Text>,
    #[command(flatten)]
    pub(crate) preprocessor: Preprocessor,
}

/// Options of the preprocessor.
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
    /// Only the probes of these groups: names, separated by commas or spaces; with --type, only
    /// probes that match both
    #[arg(short = 'u', long, value_name = "LIST", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) group: Vec<String>,
    /// Only the probes of these types
    #[arg(short = 't', long = "type", value_name = "LIST", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) kind: Vec<String>,
}
