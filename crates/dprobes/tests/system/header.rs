//! Static probes by `dprobes header` and by the crate `usdt`: what a program passes is what tracers
//! see.

use std::path::{Path, PathBuf};
use std::process::Command;

use testing::{output, skipped};

use crate::support::{Scratch, dprobes, find_program, need};

const DESCRIPTION: &str = "\
/* The probes of a server. */
provider server {
    probe request__start(int, char *, unsigned char, long);
    probe request-done(int, short);
    probe idle();
};
#pragma D attributes Evolving/Evolving/Common provider server provider
";

/// A program whose probes are in itself and in a library, which may be a file of its own.
const PROGRAM: &str = r#"
#include <stdio.h>
#include "server.h"
int answer(int id, char *path);
#ifdef LIBRARY
int answer(int id, char *path)
{
    char text[32];
    snprintf(text, sizeof text, "%s/%d", path, id);
    SERVER_REQUEST_START(id, text, id + 250, -id);
    if (SERVER_REQUEST_DONE_ENABLED())
        SERVER_REQUEST_DONE(id * 2, -3 - id);
    return SERVER_REQUEST_DONE_ENABLED();
}
#endif
#ifdef PROGRAM
int main(void)
{
    int is_traced = 0;
    for (int id = 1; id <= 4; id++)
        is_traced = answer(id, "/page");
    SERVER_IDLE();
    printf("traced %d\n", is_traced);
    return 0;
}
#endif
"#;

/// What a tracer sees of it.
const SEEN: &str = "\
start 1 /page/1 251 -1
done 2 -4
start 2 /page/2 252 -2
done 4 -5
start 3 /page/3 253 -3
done 6 -6
start 4 /page/4 254 -4
done 8 -7
";

/// A script that shows it; `@` is the file with the probes.
const SCRIPT: &str = r#"
usdt:@:server:request__start { printf("start %d %s %d %d\n", arg0, str(arg1), arg2, arg3); }
usdt:@:server:request__done { printf("done %d %d\n", arg0, arg1); }
"#;

/// A directory with the description's header and the program's source.
fn written() -> Scratch {
    let scratch = Scratch::new();
    let description = scratch.file("server.d", DESCRIPTION);
    scratch.file("program.c", PROGRAM);
    let header = scratch.path().join("server.h");
    let said = output(dprobes().arg("header").arg(description).arg("-o").arg(header));
    assert_eq!(said, "");
    scratch
}

fn compile(gcc: &Path, scratch: &Scratch, name: &str, options: &[&str]) -> PathBuf {
    let out = scratch.path().join(name);
    let mut command = Command::new(gcc);
    command.current_dir(scratch.path()).arg("-o").arg(&out).arg("program.c").args(options);
    output(&mut command);
    out
}

/// Whether gcc makes programs of 32 bits.
fn has_32_bits(gcc: &Path, scratch: &Scratch) -> bool {
    let source = scratch.file("empty.c", "int main(void) { return 0; }");
    let mut command = Command::new(gcc);
    command.arg("-m32").arg("-o").arg(scratch.path().join("empty")).arg(source);
    command.output().expect("it starts").status.success()
}

/// What a tracer showed, in words of this file. Lines of two probes may come in another order than
/// that of the hits.
fn lines(text: &str) -> Vec<&str> {
    let ours = text.lines().filter(|line| line.starts_with("start ") || line.starts_with("done "));
    let mut ours: Vec<&str> = ours.collect();
    ours.sort_unstable();
    ours
}

#[test]
fn the_probes_of_a_header_are_hit_with_their_arguments() {
    let gcc = need!("header", find_program("gcc"), "gcc");
    let scratch = written();
    let whole = ["-DPROGRAM", "-DLIBRARY"];
    let ways: [&[&str]; 4] = [&["-O0"], &["-O2"], &["-O2", "-static"], &["-O1", "-no-pie", "-fno-pie"]];
    for way in ways {
        let program = compile(&gcc, &scratch, "program", &[&whole, way].concat());
        assert_eq!(output(&mut Command::new(&program)), "traced 0\n");
        for engine in ["auto", "trap"] {
            let script = SCRIPT.replace('@', &program.display().to_string());
            let seen =
                output(dprobes().args(["trace", "--engine", engine, "-e", &script, "--"]).arg(&program));
            assert_eq!(lines(&seen), lines(SEEN), "{way:?}, {engine}");
            assert!(seen.contains("traced 1\n"), "{way:?}, {engine}: {seen}");
        }
    }
}

#[test]
fn the_probes_of_a_header_are_hit_in_a_library() {
    let gcc = need!("header", find_program("gcc"), "gcc");
    let scratch = written();
    let library = compile(&gcc, &scratch, "libanswer.so", &["-DLIBRARY", "-O2", "-fPIC", "-shared"]);
    let program =
        compile(&gcc, &scratch, "program", &["-DPROGRAM", "-O2", "-L.", "-lanswer", "-Wl,-rpath,$ORIGIN"]);
    let script = SCRIPT.replace('@', &library.display().to_string());
    let seen = output(dprobes().args(["trace", "-e", &script, "--"]).arg(&program));
    assert_eq!(lines(&seen), lines(SEEN));
    // The program has semaphores of its own, which nobody counts up for the library.
    let idle = format!("usdt:{}:server:idle {{ @ = count(); }}", program.display());
    let seen = output(dprobes().args(["trace", "-e", &idle, "--"]).arg(&program));
    assert!(seen.contains("@: 1\n") && seen.contains("traced 0\n"), "{seen}");
}

#[test]
fn other_tracers_see_the_probes_of_a_header() {
    let gcc = need!("header", find_program("gcc"), "gcc");
    let scratch = written();
    let program = compile(&gcc, &scratch, "program", &["-DPROGRAM", "-DLIBRARY", "-O2"]);
    let listed = output(dprobes().args(["list", "-u"]).arg(&program));
    for expected in [
        "request__start(int32, uint64, uint8, int64)  semaphore",
        "request__done(int32, int16)  semaphore",
        "idle()",
    ] {
        let expected = format!(":server:{expected}");
        assert!(listed.lines().any(|line| line.contains(&expected)), "{expected}\n{listed}");
    }
    if has_32_bits(&gcc, &scratch) {
        let program = compile(&gcc, &scratch, "short", &["-DPROGRAM", "-DLIBRARY", "-O2", "-m32"]);
        let listed = output(dprobes().args(["list", "-u"]).arg(&program));
        assert!(
            listed.contains(":server:request__start(int32, uint32, uint8, int32)  semaphore"),
            "{listed}"
        );
    } else {
        skipped("header: 32 bits", "gcc-multilib");
    }
    match find_program("gdb") {
        None => skipped("header: gdb", "gdb"),
        Some(gdb) => {
            let mut command = Command::new(gdb);
            command.args([
                "-nx",
                "-batch",
                "-ex",
                "info probes stap server",
                "-ex",
                "break -probe-stap server:request__start",
            ]);
            command.args([
                "-ex",
                "run",
                "-ex",
                "printf \"%d %s %d %d\\n\", $_probe_arg0, $_probe_arg1, $_probe_arg2, $_probe_arg3",
            ]);
            let said = output(command.arg(&program));
            for name in ["request__start", "request__done", "idle"] {
                assert!(
                    said.lines().any(|line| line.starts_with("stap server ") && line.contains(name)),
                    "{said}"
                );
            }
            assert!(said.contains("1 /page/1 251 -1\n"), "{said}");
        }
    }
    let bpftrace = find_program("bpftrace").filter(|_| testing::is_root());
    match bpftrace {
        None => skipped("header: bpftrace", "bpftrace, as root"),
        Some(bpftrace) => {
            let said = output(Command::new(bpftrace).arg("-l").arg(format!("usdt:{}:*", program.display())));
            for name in ["request__start", "request__done", "idle"] {
                assert!(said.lines().any(|line| line.ends_with(&format!(":server:{name}"))), "{said}");
            }
        }
    }
}

#[test]
fn a_header_of_a_preprocessed_description_goes_to_standard_output() {
    let scratch = Scratch::new();
    let file = scratch.file("a.d", "# 1 \"a.d\"\nprovider a { probe x(int); };\n");
    let text = std::fs::File::open(file).expect("it was written");
    let header = output(dprobes().args(["header", "-"]).stdin(text));
    assert!(header.contains("#define A_X(arg0)") && header.contains("of standard input"), "{header}");
}

usdt::provider! {
    mod rusty {
        fn started(number: u32, text: *const u8, length: usize);
        fn done(is_even: bool, number: i16);
    }
}

/// The program that the test after this one traces: this one, as a process of its own.
#[test]
fn a_program_in_rust() {
    for number in 0..5_u32 {
        let text = format!("number {number}");
        rusty::started(number, text.as_ptr(), text.len());
        if rusty::done::enabled() {
            rusty::done(number.is_multiple_of(2), -(number as i16));
        }
    }
}

#[test]
fn probes_in_rust_are_hit_with_their_arguments() {
    let program = std::env::current_exe().expect("this program has a file");
    let path = program.display();
    let script = format!(
        "usdt:{path}:rusty:started {{ printf(\"start %d %s\\n\", arg0, str(arg1, arg2)); }}\n\
         usdt:{path}:rusty:done {{ printf(\"done %d %d\\n\", arg0, arg1); }}"
    );
    let mut command = dprobes();
    // The program prints as well.
    let scratch = Scratch::new();
    let seen = scratch.path().join("seen");
    command.args(["trace", "-e", &script, "-o"]).arg(&seen).arg("--").arg(&program);
    output(command.args(["--exact", "header::a_program_in_rust"]));
    let seen = std::fs::read_to_string(seen).expect("it was written");
    let expected: String = (0..5)
        .map(|number| format!("start {number} number {number}\ndone {} {}\n", 1 - number % 2, -number))
        .collect();
    assert_eq!(lines(&seen), lines(&expected));
}
