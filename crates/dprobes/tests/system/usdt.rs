//! Static probes in scripts: the target prints what its probes' arguments are, and a script prints
//! what it sees, in the same words.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, dprobes, find_program, need, target};

/// A script that prints what the target does; `@` is the target.
const SCRIPT: &str = r#"
usdt:@:target:registers { printf("registers %d %u %ld %d %u %d %u\n", arg0, arg1, arg2, arg3, arg4, arg5, arg6); }
usdt:@:high { printf("high %d %u\n", arg0, arg1); }
usdt:@:target:memory { printf("memory %d %ld %d %u %d %ld\n", arg0, arg1, arg2, arg3, arg4, arg5); }
usdt:@:t*t:const* { printf("constants %d %d %d %d %ld\n", arg0, arg1, arg2, arg3, arg4); }
usdt:@:target:text { printf("text %s\n", str(arg0)); }
usdt:@:twice { printf("twice %d\n", arg0); }
"#;

fn script(target: &Path) -> String {
    SCRIPT.replace('@', &target.display().to_string())
}

/// The lines about probes that have arguments in the script.
fn told(text: &str) -> Vec<&str> {
    let others = ["semaphore", "counted"];
    text.lines().filter(|line| !line.is_empty() && !others.iter().any(|it| line.starts_with(it))).collect()
}

/// Runs a command to its end; its standard output.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn arguments_are_what_the_program_has_there() {
    let target = need!("usdt", target("usdt"), "gcc");
    let scratch = Scratch::new();
    let expected = output(&mut Command::new(&target));
    assert_eq!(told(&expected).len(), 21, "{expected}");
    for engine in ["auto", "trap"] {
        let seen = scratch.path().join(engine);
        let mut command = dprobes();
        command.args(["trace", "--engine", engine, "-o"]).arg(&seen).arg("-e").arg(script(&target));
        output(command.arg("--").arg(&target));
        let seen = std::fs::read_to_string(&seen).expect("the output is there");
        assert_eq!(told(&seen), told(&expected), "{engine}");
    }
}

/// The target, waiting for a byte, and a tracer that has armed its probes in it.
struct Attached {
    program: Child,
    said: BufReader<ChildStdout>,
    tracer: Child,
}

impl Attached {
    fn start(target: &Path, script: &str, probes: &str) -> Attached {
        let mut program = Command::new(target);
        let program = program.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().expect("the target starts");
        let mut command = dprobes();
        command.args(["trace", "-p", &program.id().to_string(), "-e", script]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tracer = command.spawn().expect("dprobes starts");
        let mut told = BufReader::new(tracer.stderr.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("armed") {
            line.clear();
            assert!(told.read_line(&mut line).expect("it can be read") > 0, "no probe was armed");
        }
        assert!(line.contains(probes), "{line}");
        // What it says later must not block it.
        std::thread::spawn(move || told.read_to_string(&mut String::new()));
        let said = BufReader::new(program.stdout.take().expect("it is piped"));
        Attached { program, said, tracer }
    }

    /// Lets the target go on.
    fn go_on(&mut self) {
        self.program.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("the target reads");
    }

    /// What the target prints, up to and with the number of those who trace.
    fn work(&mut self) -> String {
        self.go_on();
        let mut text = String::new();
        while !text.contains("semaphore") {
            assert!(self.said.read_line(&mut text).expect("it is text") > 0, "{text}");
        }
        text
    }

    /// What the target prints at last.
    fn end(mut self) -> String {
        self.go_on();
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("it is text");
        assert!(self.program.wait().expect("it ends").success());
        text
    }
}

#[test]
fn a_running_program_is_probed() {
    let target = need!("usdt", target("usdt"), "gcc");
    let mut attached = Attached::start(&target, &script(Path::new("usdt")), "7 probes");
    let expected = attached.work();
    attached.go_on();
    assert!(attached.program.wait().expect("it ends").success());
    let seen = attached.tracer.wait_with_output().expect("dprobes ends");
    let seen = String::from_utf8(seen.stdout).expect("it is text");
    assert_eq!(told(&seen), told(&expected));
}

/// A script about the probe that has a semaphore.
const COUNTED: &str = "usdt:@:counted { printf(\"seen %d\\n\", arg0); }";

#[test]
fn a_probe_with_a_semaphore_is_hit_in_parents_and_children() {
    let target = need!("usdt", target("usdt"), "gcc");
    let script = COUNTED.replace('@', &target.display().to_string());
    for engine in ["auto", "trap"] {
        for way in ["work", "fork"] {
            let mut command = dprobes();
            command.args(["trace", "--engine", engine, "-e", &script, "--"]).arg(&target).arg(way);
            let seen = output(&mut command);
            for expected in ["counted 0", "seen 0", "counted 6", "seen 6", "semaphore 1"] {
                assert!(seen.lines().any(|line| line == expected), "{engine}, {way}: {expected}: {seen}");
            }
        }
    }
    let untraced = output(&mut Command::new(&target));
    assert!(untraced.ends_with("semaphore 0\n") && !untraced.contains("counted"), "{untraced}");
}

#[test]
fn a_semaphore_is_counted_down_however_the_tracer_ends() {
    let target = need!("usdt", target("usdt"), "gcc");
    for way in ["interrupted", "tracer killed", "front killed"] {
        let mut attached = Attached::start(&target, &COUNTED.replace('@', "usdt"), "1 probe");
        assert!(attached.work().ends_with("counted 6\nsemaphore 1\n"));
        let front = attached.tracer.id() as i32;
        let (pid, signal) = match way {
            "interrupted" => (front, libc::SIGINT),
            "tracer killed" => {
                let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children"));
                let children = children.expect("the front lives");
                (children.split_whitespace().next().expect("a child").parse().expect("a pid"), libc::SIGKILL)
            }
            _ => (front, libc::SIGKILL),
        };
        // SAFETY: no memory is involved; both are processes of this test.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{way}");
        attached.tracer.wait().expect("dprobes ends");
        // If the front was killed, the tracer still has to notice.
        let began = Instant::now();
        let pid = attached.program.id();
        while crate::support::is_traced(pid) {
            assert!(began.elapsed() < Duration::from_secs(30), "{way}: it is still traced");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(attached.end(), "semaphore at the end 0\n", "{way}");
    }
}

#[test]
fn an_interpreters_probes_are_hit() {
    let python = need!("usdt", find_program("python3"), "python3");
    let listed = dprobes().args(["list", "-u"]).arg(&python).arg("gc__start").output().expect("it starts");
    let listed = listed.status.success().then_some(());
    need!("usdt", listed, "python3 with static probes");
    let script = format!("usdt:{}:python:gc__start / arg0 == 1 / {{ @ = count(); }}", python.display());
    let work = "import gc\ngc.disable()\nfor i in range(7): gc.collect(1)";
    let mut command = dprobes();
    command.args(["trace", "-e", &script, "--"]).arg(&python).args(["-c", work]);
    let seen = output(&mut command);
    assert!(seen.contains("@: 7\n"), "{seen}");
}

#[test]
fn static_probes_are_listed_as_scripts_name_them() {
    let target = need!("usdt", target("usdt"), "gcc");
    let listed = output(dprobes().args(["list", "-u"]).arg(&target));
    assert_eq!(listed.lines().count(), 9, "{listed}");
    let path = target.display();
    for expected in [
        format!("usdt:{path}:target:registers(int32, uint32, int64, int16, uint16, int8, uint8)"),
        format!("usdt:{path}:target:floats(double?)"),
        format!("usdt:{path}:target:counted(int32)  semaphore"),
    ] {
        assert!(listed.lines().any(|line| line.ends_with(&expected)), "{expected}\n{listed}");
    }
    let some = output(dprobes().args(["list", "-u"]).arg(&target).arg("target:t*"));
    assert_eq!(some.lines().count(), 3, "{some}");
    let scripts = output(dprobes().args(["trace", "-l"]).arg(format!("usdt:{path}:twice")));
    assert_eq!(scripts, format!("usdt:{path}:target:twice\nusdt:{path}:target:twice\n"));
}

#[test]
fn what_a_static_probe_does_not_have_is_refused() {
    let target = need!("usdt", target("usdt"), "gcc");
    let path = target.display();
    for (script, expected) in [
        (format!("usdt:{path}:text {{ print(arg1); }}"), "target:text has no `arg1`"),
        (format!("usdt:{path}:floats {{ print(arg0); }}"), "`arg0` of the static probe target:floats cannot"),
        (format!("usdt:{path}:none {{ print(1); }}"), "there is no such static probe"),
    ] {
        let outcome =
            dprobes().args(["trace", "-e", &script, "--"]).arg(&target).output().expect("it starts");
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(!outcome.status.success() && said.contains(expected), "{said}");
        assert!(outcome.stdout.is_empty(), "nothing was started");
    }
}

#[test]
fn exceptions_of_a_program_are_counted_in_its_library() {
    // libstdc++ has probes without semaphores, which fire where a program throws.
    let compiler = need!("usdt", find_program("g++"), "g++");
    let scratch = Scratch::new();
    let text = "int main() { for (int i = 0; i < 5; i++) try { throw i; } catch (int) { } }";
    let source = scratch.file("throws.cc", text);
    let program = scratch.path().join("throws");
    output(Command::new(compiler).arg("-o").arg(&program).arg(source));
    let script =
        "usdt:libstdc++:libstdcxx:throw { @throw = count(); } usdt:libstdc++:catch { @catch = count(); }";
    let seen = output(dprobes().args(["trace", "-e", script, "--"]).arg(&program));
    assert!(seen.contains("@throw: 5\n") && seen.contains("@catch: 5\n"), "{seen}");
}
