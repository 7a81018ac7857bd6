//! Compiles small programs for tests, and runs binutils on them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use image::Image;
pub use testing::{have, output as run};

/// Macros for the assembler: the begin and the end of a function.
pub const FUNCTIONS: &str = "
    .macro function name
    .globl \\name
    .type \\name, @function
    \\name: .cfi_startproc
    .endm
    .macro done name
    .cfi_endproc
    .size \\name, . - \\name
    .endm
";

/// Options for a program without a library, at a fixed address.
pub const BARE: &[&str] = &["-nostdlib", "-static", "-no-pie"];
/// Options for a program without a library, at any address.
pub const BARE_ANYWHERE: &[&str] = &["-nostdlib", "-static-pie"];

/// A directory for one test's files, with the tools that make them.
pub struct Scratch(testing::Scratch);

impl Scratch {
    #[allow(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Scratch {
        Scratch(testing::Scratch::new())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        self.0.file(name, contents)
    }

    /// Compiles a source file; the suffix of its name decides the language.
    pub fn compile(&self, source: &str, contents: &str, output: &str, options: &[&str]) -> PathBuf {
        let source = self.file(source, contents);
        let output = self.path().join(output);
        let compiler = if source.extension().is_some_and(|suffix| suffix == "cc") { "g++" } else { "gcc" };
        run(Command::new(compiler)
            .current_dir(self.path())
            .arg("-o")
            .arg(&output)
            .arg(&source)
            .args(options));
        output
    }

    /// Assembles code that has [`FUNCTIONS`].
    pub fn assemble(&self, name: &str, code: &str, options: &[&str]) -> PathBuf {
        self.compile(&format!("{name}.S"), &[FUNCTIONS, code].concat(), name, options)
    }

    /// The image of a program that [`compile`](Self::compile) makes.
    pub fn image(&self, source: &str, contents: &str, output: &str, options: &[&str]) -> Image {
        Image::open(&self.compile(source, contents, output, options)).expect("it was just compiled")
    }

    /// The image of a program that [`assemble`](Self::assemble) makes.
    pub fn assembled(&self, name: &str, code: &str, options: &[&str]) -> Image {
        Image::open(&self.assemble(name, code, options)).expect("it was just assembled")
    }

    /// A stripped copy.
    pub fn strip(&self, program: &Path, output: &str, options: &[&str]) -> PathBuf {
        let output = self.path().join(output);
        run(Command::new("strip").args(options).arg("-o").arg(&output).arg(program));
        output
    }
}

/// Whether gcc makes 32-bit programs; if not, the test is skipped.
pub fn have_m32(test: &str) -> bool {
    if !have(test, &["gcc", "objdump", "nm", "strip"]) {
        return false;
    }
    let scratch = Scratch::new();
    let source = scratch.file("plain.c", PLAIN);
    let mut gcc = Command::new("gcc");
    gcc.arg("-m32").arg("-o").arg(scratch.path().join("plain")).arg(source);
    let has = gcc.output().is_ok_and(|output| output.status.success());
    if !has {
        testing::skipped(test, "gcc -m32");
    }
    has
}

/// The C library of 32-bit programs, as gcc finds it.
pub fn libc_32() -> PathBuf {
    let path = run(Command::new("gcc").args(["-m32", "-print-file-name=libc.so.6"]));
    PathBuf::from(path.trim())
}

/// Where the dynamic linker finds the C library.
pub fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own mappings");
    let line = maps.lines().find(|line| line.contains("/libc.so") || line.contains("/libc-2."));
    let path = line.and_then(|line| line.find('/').map(|at| &line[at..]));
    PathBuf::from(path.expect("tests are linked dynamically"))
}

pub const PLAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int twice(int x) { return 2 * x; }
int pick(int x) {
    switch (x) {
    case 0: return puts("zero");
    case 1: return twice(x) + rand();
    case 2: return atoi("7");
    case 3: return getchar();
    case 4: return abs(x);
    case 5: return printf("%d", x);
    default: return -1;
    }
}
int main(int argc, char **argv) { return pick(argc) == 77; }
"#;
