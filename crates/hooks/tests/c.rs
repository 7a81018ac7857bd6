//! Tests the C interface from C: compiles the header and runs C programs. Without a C compiler the
//! tests are skipped.

#![cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library for C programs, built once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
        let built = Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "--lib", "--crate-type", "staticlib", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status();
        assert!(built.expect("cargo is there").success());
        target.join("debug/libhooks.a")
    };
    LIBRARY.get_or_init(build)
}

fn run(command: &mut Command) {
    let output = command.output().expect("it can be executed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    assert!(said.is_empty(), "{command:?}\n{said}");
}

fn compiler(compiler: &str, flags: &[&str]) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(compiler);
    command.current_dir(here.join("tests/c")).arg("-I").arg(here.join("include"));
    command.args(["-Wall", "-Wextra", "-Werror"]).args(flags);
    command
}

/// Compiles the program and its library, and runs it.
fn check(name: &str, flags: &[&str]) {
    if !testing::have("hooks in C", &["cc"]) {
        return;
    }
    let into = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, loaded) = (into.join(name), into.join(format!("{name}.so")));
    run(compiler("cc", flags).args(["-shared", "-fPIC", "library.c", "-o"]).arg(&loaded));
    run(compiler("cc", flags)
        .args(["-rdynamic", "main.c", "other.c"])
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    run(Command::new(&program).arg(&loaded));
}

#[test]
fn a_program_without_optimisation() {
    check("plain", &["-O0", "-g"]);
}

#[test]
fn a_program_with_optimisation() {
    check("optimised", &["-O2"]);
}

#[test]
fn a_program_whose_unused_sections_are_dropped() {
    check("sections", &["-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]);
}

#[test]
fn each_hit_sees_all_of_a_list_or_nothing_of_it() {
    if !testing::have("hooks in C", &["cc"]) {
        return;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("list");
    run(compiler("cc", &["-O2"])
        .arg("list.c")
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    run(&mut Command::new(&program));
}

#[test]
fn the_header_is_cpp_too() {
    if !testing::have("hooks in C++", &["c++"]) {
        return;
    }
    run(compiler("c++", &["-O2"]).args(["-x", "c++", "-fsyntax-only", "other.c"]));
}

/// The header's constants equal the library's.
#[test]
fn the_numbers_of_the_header_are_those_of_the_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dprobes_hooks.h");
    let header = std::fs::read_to_string(path).expect("the header is there");
    for (name, error) in [
        ("EXCLUSIVE", hooks::Error::Exclusive),
        ("FIRST_TAKEN", hooks::Error::FirstTaken),
        ("LAST_TAKEN", hooks::Error::LastTaken),
        ("UNKNOWN_HOOK", hooks::Error::UnknownHook),
        ("NOT_REGISTERED", hooks::Error::NotRegistered),
        ("REGISTERED", hooks::Error::Registered),
        ("INVALID", hooks::Error::Invalid),
        ("IN_USE", hooks::Error::InUse),
        ("TEXT", hooks::Error::Text),
    ] {
        let line = header.lines().find(|line| line.starts_with(&format!("#define HOOK_ERROR_{name} ")));
        let number = line.and_then(|line| line.split(['(', ')']).nth(1)).expect(name);
        assert_eq!(number.parse(), Ok(error.code()), "{name}");
    }
}

/// The field offsets required by C.
macro_rules! offsets {
    ($text:ident, $rust:ty, $c:literal, $($field:ident)*) => {
        $(
            let offset = std::mem::offset_of!($rust, $field);
            $text += &format!("_Static_assert(offsetof(struct {}, {}) == {offset}, \"\");\n", $c, stringify!($field));
        )*
        $text += &format!("_Static_assert(sizeof(struct {}) == {}, \"\");\n", $c, size_of::<$rust>());
    };
}

#[test]
fn the_structures_of_plugins_are_those_of_the_library() {
    use hooks::plugin::{Api, Callk, Event};
    if !testing::have("hooks in C", &["cc"]) {
        return;
    }
    let mut text = "#include \"dprobes_plugin.h\"\n".to_owned();
    offsets!(text, Api, "dprobes_api", version size create_event log_event destroy_event callk argument exit_register
        exit_deregister exit_arm exit_disarm find tell);
    offsets!(text, Event, "dprobes_event", id size data log_size word log major minor pid tid cpu probe time);
    offsets!(text, Callk, "dprobes_callk", size word pid tid cpu major minor event address module own pop push log
        get_register set_register read write);
    offsets!(text, hooks::Record, "hook_rec", hook_exit hook_next hook_flags hook_index hook_head hook_exit_name
        hook_context);
    text += &format!("_Static_assert(DPROBES_PLUGIN_VERSION == {}, \"\");\n", hooks::plugin::VERSION);
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("structures.c");
    std::fs::write(&source, text).expect("the directory of tests can be written");
    run(compiler("cc", &["-fsyntax-only"]).arg(&source));
}
