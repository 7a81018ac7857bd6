//! The protocol of client and session: messages of one line of JSON each.

use std::io::{self, BufRead, Read, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::arguments::LogFormat;
use crate::at_programs::Text;

/// Largest message, in bytes.
const LIMIT: u64 = 1 << 24;

/// A request to the session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Insert a program.
    Insert(Box<Insert>),
    /// Remove the programs of a module, or all.
    Remove {
        /// The module, as its program names it.
        name: Option<String>,
    },
    /// Describe the inserted programs.
    Query {
        /// The module, or all.
        name: Option<String>,
        /// Include the code and the variables.
        extended: bool,
    },
    /// Show or reset variables.
    GetVars(GetVars),
    /// Report that the session exists, and its process id.
    Status,
    /// Remove all programs and end the session.
    Stop,
}

/// The limit of dumps for clients that name none.
fn one() -> u32 {
    1
}

/// A program to insert. Its fields are the options of `insert`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Insert {
    /// The program's file, as an absolute path.
    pub(crate) file: PathBuf,
    /// Its text, if it is not in a file.
    pub(crate) text: Option<Text>,
    pub(crate) defines: Vec<(String, String)>,
    pub(crate) includes: Vec<PathBuf>,
    /// The groups and types of the probes to insert; empty: all.
    pub(crate) groups: Vec<String>,
    pub(crate) types: Vec<String>,
    pub(crate) verify_opcodes: bool,
    pub(crate) engine: crate::arguments::InsertEngine,
    /// Lists of header items, by name; empty: the default items.
    pub(crate) items: Vec<String>,
    /// The form of records as text, if one was asked for.
    #[serde(default)]
    pub(crate) log_format: Option<LogFormat>,
    /// Whether logged bytes are written without rows.
    pub(crate) unformatted: bool,
    /// Whether the probed program waits if there is no room for a record.
    #[serde(default)]
    pub(crate) lossless: bool,
    /// How many core dumps each probe may write.
    #[serde(default = "one")]
    pub(crate) max_dumps: u32,
    /// Bytes of records that may wait, for processes followed from now on.
    #[serde(default)]
    pub(crate) buffer: Option<u64>,
    /// Whether all processes share variables, also those of different users.
    #[serde(default)]
    pub(crate) share_variables: bool,
    /// Whether handlers in the kernel may call its debugger or a crash dump.
    #[serde(default)]
    pub(crate) allow_panic: bool,
    /// The templates' directory, as an absolute path.
    pub(crate) templates: Option<PathBuf>,
    /// The file to take symbols from, as an absolute path.
    pub(crate) symbols: Option<PathBuf>,
    pub(crate) mode: Mode,
    /// The processes to probe; empty: all of the user's.
    pub(crate) processes: Vec<i32>,
    /// Plugins that the session must load, with absolute paths.
    pub(crate) plugins: Vec<crate::arguments::Plugin>,
    /// Where the records go, as for `--log-target`, with absolute paths.
    pub(crate) targets: Vec<String>,
}

/// What to do if the module already has probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Fail.
    New,
    /// Add the file's probes; the file's replace existing ones at the same probepoint.
    Merge,
    /// Remove the module's old probes.
    Replace,
}

/// Selects the variables to show or reset.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GetVars {
    pub(crate) name: Option<String>,
    pub(crate) local: bool,
    pub(crate) global: bool,
    /// First and last index.
    pub(crate) range: Option<(usize, usize)>,
    pub(crate) reset: bool,
}

impl GetVars {
    /// The indices of the variables.
    pub(crate) fn indices(&self) -> RangeInclusive<usize> {
        self.range.map_or(0..=usize::MAX, |(from, to)| from..=to)
    }

    /// Whether local variables are wanted: with neither given, both are.
    pub(crate) fn wants_locals(&self) -> bool {
        self.local || !self.global
    }

    /// Whether global variables are wanted.
    pub(crate) fn wants_globals(&self) -> bool {
        self.global || !self.local
    }
}

/// The session's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Whether the request was carried out.
    pub(crate) done: bool,
    /// The text to show.
    pub(crate) text: String,
    /// Warnings, a line each.
    pub(crate) warnings: Vec<String>,
    /// Whether the text of a refusal is a whole message, as of a compiler.
    #[serde(default)]
    pub(crate) is_whole: bool,
}

impl Reply {
    pub(crate) fn done(text: impl Into<String>) -> Reply {
        Reply { done: true, text: text.into(), warnings: Vec::new(), is_whole: false }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Reply {
        Reply { done: false, text: text.into(), warnings: Vec::new(), is_whole: false }
    }

    /// The message of a failure, as a command of its own would print it.
    pub(crate) fn refused(failure: &Failure) -> Reply {
        Reply { is_whole: true, ..Reply::failed(failure.text()) }
    }
}

/// Writes a message.
pub(crate) fn write(message: &impl Serialize, to: &mut impl Write) -> io::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    to.write_all(line.as_bytes())
}

/// Reads a message.
pub(crate) fn read<M: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<M> {
    let mut line = String::new();
    from.take(LIMIT).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let request = Request::Remove { name: Some("a \"b\"\n".to_owned()) };
        let mut bytes = Vec::new();
        write(&request, &mut bytes).expect("a vector takes everything");
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let back: Request = read(&mut bytes.as_slice()).expect("a request");
        assert!(matches!(back, Request::Remove { name: Some(name) } if name == "a \"b\"\n"));
        assert!(read::<Request>(&mut &b"{\"Steal\":1}\n"[..]).is_err());
        assert!(read::<Request>(&mut &b""[..]).is_err());
    }
}
