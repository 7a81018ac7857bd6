//! Plugins see what dprobes does, take records, and answer `callk`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Run, Scratch, Session, find_program, need, repository, target};

/// Builds the example in C, or another source, into a directory.
fn in_c(into: &Path, name: &str, text: Option<&str>) -> Option<PathBuf> {
    let cc = find_program("cc")?;
    let source = match text {
        Some(text) => {
            let source = into.join(name).with_extension("c");
            std::fs::write(&source, text).expect("a fresh directory");
            source
        }
        None => repository().join("examples/plugins").join(name).with_extension("c"),
    };
    let built = into.join(name).with_extension("so");
    let mut command = Command::new(cc);
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]);
    command.arg(repository().join("crates/hooks/include")).arg("-o").arg(&built).arg(source);
    let result = command.output().expect("cc starts");
    assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
    Some(built)
}

/// The example in Rust, built once; `None` if this user may not run cargo.
fn in_rust() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
        let manifest = repository().join("examples/plugins/unique/Cargo.toml");
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(&target);
        let status = match command.status() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
            status => status.expect("cargo starts"),
        };
        assert!(status.success());
        Some(target.join("debug/libunique.so"))
    };
    BUILT.get_or_init(build).clone()
}

/// A program that logs the length of each word.
fn lengths(module: &Path) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\noffset = t_word\nminor = 1\n    push r, rsi\n    log 1\n    exit\n",
        module.display()
    )
}

fn with_argument(plugin: &Path, argument: &Path) -> String {
    format!("{}={}", plugin.display(), argument.display())
}

#[test]
fn a_plugin_in_c_sees_programs_and_records() {
    let words = need!("a_plugin_in_c_sees_programs_and_records", target("words"), "gcc");
    let scratch = Scratch::new();
    let plugin = need!("a_plugin_in_c_sees_programs_and_records", in_c(scratch.path(), "events", None), "cc");
    let log = scratch.path().join("events.txt");
    let program = lengths(&words);
    let run = Run::new(&program).option("--plugin").option(with_argument(&plugin, &log));
    let outcome = run.on([words.as_os_str(), "a".as_ref(), "bcd".as_ref()]).ended_with(0);
    let lines = std::fs::read_to_string(&log).expect("the plugin wrote it");
    let lines: Vec<&str> = lines.lines().collect();
    let [create, first, second, destroy] = lines[..] else { panic!("{lines:#?}\n{outcome:#?}") };
    assert!(create.starts_with(&format!("create 1 {} HEX ", words.display())), "{create}");
    assert_eq!(destroy, "destroy 1");
    for (line, length) in [(first, 1_u64), (second, 3)] {
        let data: String = length.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(line.starts_with("log 1 major 7 minor 1 pid "), "{line}");
        // The flags, major, minor, the processor, the process.
        assert!(line.ends_with(&format!(" header 20 data {data}")), "{line}");
    }
    // The plugin passed them on.
    assert_eq!(outcome.headers().len(), 2, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 2, "{outcome:#?}");
}

/// What the example's `callk` pushes.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn a_plugin_in_rust_answers_callk_and_takes_records() {
    let words = need!("a_plugin_in_rust_answers_callk_and_takes_records", target("words"), "gcc");
    let program = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\noffset = t_word\nminor = 1\n    push r, rsi\n    push r, rdi\n    callk\n    \
         log 1\n    exit\n",
        words.display()
    );
    let said = ["alpha", "beta", "alpha", "gamma", "beta", "alpha"];
    let command = || std::iter::once(words.as_os_str()).chain(said.iter().map(AsRef::as_ref));
    let plugin = need!("plugins: Rust", in_rust(), "cargo");
    let outcome = Run::new(&program).option("--plugin").option(plugin).on(command()).ended_with(0);
    assert_eq!(outcome.headers().len(), 3, "{outcome:#?}");
    for word in ["alpha", "beta", "gamma"] {
        let bytes = fnv(word.as_bytes()).to_le_bytes();
        let row: Vec<String> =
            bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        assert!(outcome.records.contains(&row.join(" ")), "{row:?}: {outcome:#?}");
    }
    assert!(outcome.stderr.contains("unique: 3 records, 3 repeated\n"), "{outcome:#?}");
    assert_eq!((outcome.stats.hits(1), outcome.stats.runs(1)), (6, 6), "{outcome:#?}");
    // Without a plugin `callk` does nothing: the address is on top of the stack.
    let outcome = Run::new(&program).on(command()).ended_with(0);
    assert_eq!((outcome.headers().len(), outcome.stats.hits(1)), (6, 6), "{outcome:#?}");
}

#[test]
fn what_a_plugin_loses_is_counted_as_dropped() {
    let words = need!("what_a_plugin_loses_is_counted_as_dropped", target("words"), "gcc");
    let scratch = Scratch::new();
    let text = r#"
        #include "dprobes_plugin.h"
        DPROBES_PLUGIN;
        static int lose(struct hook *hook, long *code, uint32_t event, const struct dprobes_event *record)
        {
            (void)hook; (void)event;
            *code = -5;
            return record->log[0] == 1 ? HOOK_RETURN : HOOK_TERMINATE;
        }
        static struct hook_rec record = {.hook_exit = HOOK_EXIT(lose)};
        int dprobes_plugin_init(const struct dprobes_api *api)
        {
            int error = api->exit_register(api->log_event, &record);
            return error ? error : api->exit_arm(&record);
        }
    "#;
    let plugin =
        need!("what_a_plugin_loses_is_counted_as_dropped", in_c(scratch.path(), "lose", Some(text)), "cc");
    let program = lengths(&words);
    let run = Run::new(&program).option("--plugin").option(&plugin);
    let outcome = run.on([words.as_os_str(), "a".as_ref(), "bcd".as_ref(), "x".as_ref()]).ended_with(0);
    assert_eq!(outcome.headers().len(), 1, "{outcome:#?}");
    let [probe] = &outcome.stats.probes[..] else { panic!("{outcome:#?}") };
    assert_eq!((probe.runs, probe.logged, probe.dropped), (3, 1, 2), "{outcome:#?}");
}

#[test]
fn what_is_no_plugin_is_refused_before_the_command_begins() {
    let words = need!("what_is_no_plugin_is_refused_before_the_command_begins", target("words"), "gcc");
    let scratch = Scratch::new();
    let none = need!(
        "what_is_no_plugin_is_refused_before_the_command_begins",
        in_c(scratch.path(), "none", Some("int nothing;\n")),
        "cc"
    );
    let newer = "const unsigned dprobes_plugin_version = 99;\n";
    let newer = need!(
        "what_is_no_plugin_is_refused_before_the_command_begins",
        in_c(scratch.path(), "newer", Some(newer)),
        "cc"
    );
    let unwilling = "#include \"dprobes_plugin.h\"\nDPROBES_PLUGIN;\n\
                     int dprobes_plugin_init(const struct dprobes_api *api) { (void)api; return 42; }\n";
    let unwilling = need!(
        "what_is_no_plugin_is_refused_before_the_command_begins",
        in_c(scratch.path(), "unwilling", Some(unwilling)),
        "cc"
    );
    let program = scratch.file("program.rpn", &lengths(&words));
    for (plugin, expected) in [
        (scratch.path().join("absent.so"), "cannot open shared object file"),
        (none, "it is no plugin"),
        (newer, "it is for version 99 of the interface, and this is version 1"),
        (unwilling, "it refuses to be loaded: 42"),
    ] {
        let mut command = crate::support::dprobes();
        command.arg("run").arg("--plugin").arg(&plugin).arg(&program).arg("--").arg(&words);
        let (status, stdout, stderr) = crate::support::run(&mut command);
        assert_eq!((status.code(), stdout.as_str()), (Some(125), ""), "{stderr}");
        assert!(stderr.contains(expected) && stderr.contains("plugin "), "{expected}: {stderr}");
    }
}

#[test]
fn a_session_has_plugins_too() {
    let program_under_test = need!("a_session_has_plugins_too", target("server"), "gcc");
    let session = Session::new();
    let server = session.path().join("server");
    std::fs::copy(program_under_test, &server).expect("room for a copy");
    let plugin = need!("a_session_has_plugins_too", in_c(session.path(), "events", None), "cc");
    let log = session.path().join("events.txt");
    let program = session.program(
        "program.rpn",
        &format!(
            "name = \"{}\"\nmodtype = user\nmajor = 7\noffset = main\nminor = 1\n    exit\n",
            server.display()
        ),
    );
    let with = with_argument(&plugin, &log);
    session.done(&["insert", "--plugin", &with, &program]);
    session.done(&["remove", "--all"]);
    session.done(&["insert", "--plugin", &with, &program]);
    session.done(&["session", "stop"]);
    let lines = std::fs::read_to_string(&log).expect("the plugin wrote it");
    let words: Vec<String> =
        lines.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(words, ["create 1", "destroy 1", "create 2", "destroy 2"]);
}
