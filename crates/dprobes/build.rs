//! Gives the command its version, with the commit that it is built from: `0.1.0 (0123456789ab)`.
//!
//! The commit is that of DPROBES_COMMIT, which whoever builds without a repository may set, or the
//! repository's. A build for tests does without: each commit would build the tests anew. There is
//! no date and no name of a machine, so that two builds of a commit have one version.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DPROBES_COMMIT");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = env::var("DPROBES_COMMIT").ok();
    let commit = given.or_else(|| is_release.then(of_repository).flatten());
    let version = env!("CARGO_PKG_VERSION");
    let version = match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=DPROBES_VERSION={version}");
}

/// The commit of the repository that this crate is in; `None` if it is a copy without one.
fn of_repository() -> Option<String> {
    // A copy may lie in the repository of something else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // They change with each commit and with each change of branches.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What a command of git says, in one line.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
