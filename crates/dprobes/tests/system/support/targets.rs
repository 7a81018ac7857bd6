//! The programs under test: built with gcc, or with Go, when a test first asks for them, from `tests/targets` of the
//! repository into `target/test-targets`. The first line of each source says how.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The program `tests/targets/NAME.c` or `.S`, built; `None` where there is no gcc.
pub(crate) fn target(name: &str) -> Option<PathBuf> {
    variant(name, name, &[])
}

/// As [`target`], built with more flags under another name.
///
/// # Panics
/// Where gcc is there but does not build the program.
pub(crate) fn variant(name: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
    let gcc = needs::find_program("gcc")?;
    let sources = repository().join("tests/targets");
    let source = ["c", "S"].map(|suffix| sources.join(format!("{name}.{suffix}")));
    let source =
        source.into_iter().find(|path| path.exists()).expect("the target's source is in tests/targets");
    let text = std::fs::read_to_string(&source).expect("the source can be read");
    let first = text.lines().next().unwrap_or_default();
    let asked = first.split("build:").nth(1).expect("the source's first line says how to build it");
    Some(built(&source, output, |part| {
        let mut command = Command::new(&gcc);
        command.arg("-o").arg(part).arg(&source);
        command.args(asked.trim_end_matches("*/").split_whitespace()).args(flags);
        command
    }))
}

/// The program `tests/targets/NAME.go`, built; `None` where there is no Go.
///
/// # Panics
/// Where Go is there but does not build the program.
pub(crate) fn go_target(name: &str) -> Option<PathBuf> {
    let go = needs::find_program("go")?;
    let source = repository().join("tests/targets").join(format!("{name}.go"));
    Some(built(&source, name, |part| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-targets/go-cache");
        let mut command = Command::new(&go);
        command.arg("build").arg("-o").arg(part).arg(&source);
        command.env("GOCACHE", cache).env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        command
    }))
}

/// Builds a program under this name by a command, which is told where to put it, unless it is there and newer than its source.
///
/// # Panics
/// Where the command fails.
fn built(source: &Path, output: &str, build: impl FnOnce(&Path) -> Command) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-targets");
    let built = directory.join(output);

    let _one_at_a_time = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    std::fs::create_dir_all(&directory).expect("target/test-targets can be made");
    let directory = directory.canonicalize().expect("it was made");
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if modified(&built).is_none_or(|time| Some(time) < modified(source)) {
        let part = directory.join(format!("{output}.{}", std::process::id()));
        let mut command = build(&part);
        let result = command.output().expect("the compiler starts");
        assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
        std::fs::rename(&part, &built).expect("the program can be put in its place");
    }
    built.canonicalize().expect("the program was built")
}

/// A directory of one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory can be made");
        Scratch(path.canonicalize().expect("it was made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, in a directory of its own if its name has one, and gives its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let directory = path.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(directory).expect("a scratch directory can be made");
        std::fs::write(&path, text).expect("a scratch file can be written");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
