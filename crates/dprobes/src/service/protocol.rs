//! What the client and the session say to each other: a line of JSON each.

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::points::Text;

/// Bytes of a message, at most.
const LIMIT: u64 = 1 << 24;

/// A request to the session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Put a program in.
    Insert(Box<Insert>),
    /// Take programs out: those of a module, or all.
    Remove {
        /// The module, as its program names it.
        name: Option<String>,
    },
    /// Tell what is inserted.
    Query {
        /// The module, or all.
        name: Option<String>,
        /// With the code and the variables.
        extended: bool,
    },
    /// Tell variables, or reset them.
    GetVars(GetVars),
    /// Say that the session is there, and which process it is.
    Status,
    /// Take everything out and end.
    Stop,
}

/// A program to insert.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Insert {
    /// The program's file, absolute.
    pub(crate) file: PathBuf,
    /// Its text, where it is in no file.
    pub(crate) text: Option<Text>,
    pub(crate) defines: Vec<(String, String)>,
    pub(crate) includes: Vec<PathBuf>,
    /// The groups and types of which probes are wanted; empty: all.
    pub(crate) groups: Vec<String>,
    pub(crate) types: Vec<String>,
    pub(crate) verify_opcodes: bool,
    pub(crate) engine: crate::arguments::Engine,
    /// Lists of header items, by name; none: those that are usual.
    pub(crate) items: Vec<String>,
    /// Whether the logged bytes are written without rows.
    pub(crate) unformatted: bool,
    /// Whether the program waits where there is no room for a record.
    #[serde(default)]
    pub(crate) lossless: bool,
    /// Bytes of records that may wait, in processes that are followed from now on.
    #[serde(default)]
    pub(crate) buffer: Option<u64>,
    /// Whether processes share variables, whoever they are.
    #[serde(default)]
    pub(crate) share_variables: bool,
    /// The directory of the templates, absolute.
    pub(crate) templates: Option<PathBuf>,
    /// The file whose symbols are meant, absolute.
    pub(crate) symbols: Option<PathBuf>,
    pub(crate) mode: Mode,
    /// The processes; empty: all of the user's.
    pub(crate) processes: Vec<i32>,
    /// Plugins that the session is to have, with absolute paths.
    pub(crate) plugins: Vec<crate::arguments::Plugin>,
    /// Where the records go, as `--log-target` has it; the paths are absolute.
    pub(crate) targets: Vec<String>,
}

/// What happens if the module has probes already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// That is an error.
    New,
    /// The file's probes are added; where both have a probepoint, the file's is taken.
    Merge,
    /// The module's old probes are removed.
    Replace,
}

/// Which variables are wanted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GetVars {
    pub(crate) name: Option<String>,
    pub(crate) local: bool,
    pub(crate) global: bool,
    /// First and last index.
    pub(crate) range: Option<(usize, usize)>,
    pub(crate) reset: bool,
}

/// The session's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Whether the request was carried out.
    pub(crate) done: bool,
    /// What there is to say, to be shown as it is.
    pub(crate) text: String,
    /// What else should be known, a line each.
    pub(crate) warnings: Vec<String>,
}

impl Reply {
    pub(crate) fn done(text: impl Into<String>) -> Reply {
        Reply { done: true, text: text.into(), warnings: Vec::new() }
    }

    pub(crate) fn failed(text: impl Into<String>) -> Reply {
        Reply { done: false, text: text.into(), warnings: Vec::new() }
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
