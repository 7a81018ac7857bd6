//! Static probes in scripts: the target prints what its probes' arguments are, and a script prints
//! what it sees, in the same words.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

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

#[test]
fn a_running_program_is_probed() {
    let target = need!("usdt", target("usdt"), "gcc");
    let piped = || (Stdio::piped(), Stdio::piped());
    let (stdin, stdout) = piped();
    let mut program = Command::new(&target);
    let mut program = program.arg("wait").stdin(stdin).stdout(stdout).spawn().expect("the target starts");
    let mut command = dprobes();
    command.args(["trace", "-p", &program.id().to_string(), "-e"]).arg(script(Path::new("usdt")));
    let mut tracer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dprobes starts");
    let mut said = BufReader::new(tracer.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("armed") {
        line.clear();
        assert!(said.read_line(&mut line).expect("it can be read") > 0, "no probe was armed");
    }
    assert!(line.contains("7 probes"), "{line}");
    program.stdin.take().expect("it is piped").write_all(b"\n").expect("the target reads");
    let mut expected = String::new();
    program.stdout.take().expect("it is piped").read_to_string(&mut expected).expect("it is text");
    assert!(program.wait().expect("it ends").success());
    let seen = tracer.wait_with_output().expect("dprobes ends");
    let seen = String::from_utf8(seen.stdout).expect("it is text");
    assert_eq!(told(&seen), told(&expected));
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
