//! Names of targets on the command line: `--log-target serial:/dev/ttyS0,ctf:trace`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The default file of `ltt`.
const STREAM: &str = "dprobes.ltt";

/// Where records go, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Standard error, as text.
    Terminal,
    /// The kernel log, or the system log for users that may not write the kernel's; or the device
    /// or socket at a path.
    KernelLog(Option<PathBuf>),
    /// A serial line.
    Serial(PathBuf),
    /// A file with a stream of raw events.
    Ltt(PathBuf),
    /// The journal, at journald's socket or at the one at a path.
    Journal(Option<PathBuf>),
    /// A directory in the Common Trace Format.
    Ctf(PathBuf),
    /// A file, as text.
    File(PathBuf),
    /// A trace store.
    Store(PathBuf),
    /// A collector of OpenTelemetry at a URL, as spans.
    Otlp(String),
}

/// The error for a text that names no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTarget(String);

impl fmt::Display for UnknownTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownTarget {}

/// The names of the targets that outlive the command.
macro_rules! kept {
    () => {
        "KLOG, COM1, COM2, serial:DEVICE, LTT[:FILE], EVL, ctf:DIR, file:PATH, store:PATH.dpt, otlp:URL"
    };
}

impl Target {
    /// The names of all targets, for messages.
    pub const ALL: &'static str = concat!(kept!(), ", stderr");

    /// The same without standard error, which a background session does not have.
    pub const KEPT: &'static str = kept!();

    /// Parses a target. Its name may be in capitals.
    ///
    /// # Errors
    /// The name is unknown, or a path is missing or not allowed.
    pub fn parse(text: &str) -> Result<Target, UnknownTarget> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let name = name.to_ascii_lowercase();
        let path = rest.filter(|rest| !rest.is_empty()).map(PathBuf::from);
        let missing =
            |what: &str| UnknownTarget(format!("`{name}` needs a {what}, as in {name}:{}", example(&name)));
        let needed = |what: &str| path.clone().ok_or_else(|| missing(what));
        let target = match name.as_str() {
            "klog" => Target::KernelLog(path),
            "evl" => Target::Journal(path),
            "ltt" => Target::Ltt(path.unwrap_or_else(|| PathBuf::from(STREAM))),
            "serial" => Target::Serial(needed("device")?),
            "ctf" => Target::Ctf(needed("directory")?),
            "file" => Target::File(needed("file")?),
            "store" => Target::Store(needed("file")?),
            "otlp" => {
                let url = rest.filter(|rest| !rest.is_empty()).ok_or_else(|| missing("URL"))?;
                Target::Otlp(url.to_owned())
            }
            "com1" | "com2" | "stderr" if rest.is_some() => {
                return Err(UnknownTarget(format!("`{name}` takes no path: write `{name}` alone")));
            }
            // The names of these ports on a PC under Linux.
            "com1" => Target::Serial(PathBuf::from("/dev/ttyS0")),
            "com2" => Target::Serial(PathBuf::from("/dev/ttyS1")),
            "stderr" => Target::Terminal,
            _ => return Err(UnknownTarget(format!("the targets are {}", Target::ALL))),
        };
        Ok(target)
    }

    /// Its path, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Target::Terminal | Target::Otlp(_) => None,
            Target::KernelLog(path) | Target::Journal(path) => path.as_deref(),
            Target::Serial(path)
            | Target::Ltt(path)
            | Target::Ctf(path)
            | Target::File(path)
            | Target::Store(path) => Some(path),
        }
    }

    /// The same target with another path; unchanged if it has no path.
    #[must_use]
    pub fn with_path(self, path: PathBuf) -> Target {
        match self {
            Target::Terminal | Target::KernelLog(None) | Target::Journal(None) | Target::Otlp(_) => self,
            Target::KernelLog(Some(_)) => Target::KernelLog(Some(path)),
            Target::Journal(Some(_)) => Target::Journal(Some(path)),
            Target::Serial(_) => Target::Serial(path),
            Target::Ltt(_) => Target::Ltt(path),
            Target::Ctf(_) => Target::Ctf(path),
            Target::File(_) => Target::File(path),
            Target::Store(_) => Target::Store(path),
        }
    }

    /// Whether it keeps all items of a record, whatever items are shown elsewhere.
    pub fn holds_all(&self) -> bool {
        match self {
            Target::Store(_) | Target::Ctf(_) | Target::Journal(_) | Target::Otlp(_) => true,
            Target::Terminal
            | Target::KernelLog(_)
            | Target::Serial(_)
            | Target::Ltt(_)
            | Target::File(_) => false,
        }
    }

    /// Whether it makes a new file or directory that must not exist before.
    pub fn is_made(&self) -> bool {
        match self {
            Target::Store(_) | Target::Ctf(_) => true,
            Target::Terminal
            | Target::KernelLog(_)
            | Target::Serial(_)
            | Target::Ltt(_)
            | Target::Journal(_)
            | Target::File(_)
            | Target::Otlp(_) => false,
        }
    }

    /// Whether text in it is a line for each record, unless another form is asked for.
    pub fn has_lines(&self) -> bool {
        match self {
            Target::Terminal | Target::File(_) => true,
            Target::Store(_)
            | Target::Ctf(_)
            | Target::Ltt(_)
            | Target::KernelLog(_)
            | Target::Serial(_)
            | Target::Journal(_)
            | Target::Otlp(_) => false,
        }
    }

    /// Whether records can be text in it.
    pub fn has_text(&self) -> bool {
        match self {
            Target::Store(_) | Target::Ctf(_) | Target::Ltt(_) | Target::Otlp(_) => false,
            Target::Terminal
            | Target::KernelLog(_)
            | Target::Serial(_)
            | Target::Journal(_)
            | Target::File(_) => true,
        }
    }
}

/// An example of what follows the colon.
fn example(name: &str) -> &'static str {
    match name {
        "serial" => "/dev/ttyS0",
        "ctf" => "trace",
        "store" => "trace.dpt",
        "otlp" => "http://localhost:4318",
        _ => "records.txt",
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Target::Terminal => "stderr",
            Target::KernelLog(_) => "klog",
            Target::Serial(_) => "serial",
            Target::Ltt(_) => "ltt",
            Target::Journal(_) => "evl",
            Target::Ctf(_) => "ctf",
            Target::File(_) => "file",
            Target::Store(_) => "store",
            Target::Otlp(url) => return write!(f, "otlp:{}", printable::text(url)),
        };
        match self.path() {
            Some(path) => write!(f, "{name}:{}", printable::path(path)),
            None => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_named_as_the_original_did_and_in_more_ways() {
        for (text, target) in [
            ("KLOG", Target::KernelLog(None)),
            ("klog:/run/log", Target::KernelLog(Some("/run/log".into()))),
            ("COM1", Target::Serial("/dev/ttyS0".into())),
            ("Com2", Target::Serial("/dev/ttyS1".into())),
            ("serial:/dev/pts/3", Target::Serial("/dev/pts/3".into())),
            ("LTT", Target::Ltt("dprobes.ltt".into())),
            ("ltt:/tmp/a:b", Target::Ltt("/tmp/a:b".into())),
            ("EVL", Target::Journal(None)),
            ("ctf:trace", Target::Ctf("trace".into())),
            ("file:a", Target::File("a".into())),
            ("store:a.dpt", Target::Store("a.dpt".into())),
            ("stderr", Target::Terminal),
            ("otlp:http://localhost:4318", Target::Otlp("http://localhost:4318".into())),
        ] {
            assert_eq!(Target::parse(text).as_ref(), Ok(&target), "{text}");
            assert_eq!(Target::parse(&target.to_string()), Ok(target));
        }
        for name in Target::ALL.split(", ") {
            let target = Target::parse(&name.replace(['[', ']'], "")).expect(name);
            assert_eq!(Target::KEPT.contains(name), target != Target::Terminal, "{name}");
        }
        for (text, reason) in [
            ("tape", "the targets are KLOG"),
            ("", "the targets are KLOG"),
            ("serial", "`serial` needs a device, as in serial:/dev/ttyS0"),
            ("ctf:", "`ctf` needs a directory, as in ctf:trace"),
            ("otlp", "`otlp` needs a URL, as in otlp:http://localhost:4318"),
            ("com1:x", "`com1` takes no path"),
        ] {
            let error = Target::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
