//! The programs under test: built with gcc when a test first asks for them, from `tests/targets` of the repository
//! into `target/test-targets`. The first line of each source says how.

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
    static BUILDING: Mutex<()> = Mutex::new(());
    let gcc = needs::find_program("gcc")?;
    let sources = repository().join("tests/targets");
    let source = ["c", "S"].map(|suffix| sources.join(format!("{name}.{suffix}")));
    let source =
        source.into_iter().find(|path| path.exists()).expect("the target's source is in tests/targets");
    let text = std::fs::read_to_string(&source).expect("the source can be read");
    let first = text.lines().next().unwrap_or_default();
    let asked = first.split("build:").nth(1).expect("the source's first line says how to build it");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-targets");
    let built = directory.join(output);

    let _one_at_a_time = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    std::fs::create_dir_all(&directory).expect("target/test-targets can be made");
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if modified(&built).is_none_or(|time| Some(time) < modified(&source)) {
        let part = directory.join(format!("{output}.{}", std::process::id()));
        let mut command = Command::new(gcc);
        command.arg("-o").arg(&part).arg(&source);
        command.args(asked.trim_end_matches("*/").split_whitespace()).args(flags);
        let result = command.output().expect("gcc starts");
        assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
        std::fs::rename(&part, &built).expect("the program can be put in its place");
    }
    Some(built.canonicalize().expect("the program was built"))
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
