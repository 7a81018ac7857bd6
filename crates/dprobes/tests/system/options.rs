//! Every option of the original's manual (dprobes(8) of 5.0), with every command: accepted where
//! the manual has it, and refused elsewhere with the names of the commands that take it.

use crate::support::{Scratch, dprobes, run};

/// The manual's commands: as an option, its short form, as a word; and further arguments it needs.
const COMMANDS: [([&str; 3], &[&str]); 6] = [
    (["--insert", "-i", "insert"], &["nowhere.rpn"]),
    (["--remove", "-r", "remove"], &["--all"]),
    (["--query", "-q", "query"], &["--all"]),
    (["--getvars", "-g", "getvars"], &["--all"]),
    (["--build-ppdf", "-b", "build-ppdf"], &["nowhere.rpn"]),
    (["--apply-ppdf", "-p", "apply-ppdf"], &["nowhere.ppdf"]),
];

/// An option: its spellings with their values, the manual's commands that take it, and commands
/// that take it only here.
type Row = (&'static [&'static [&'static str]], &'static [&'static str], &'static [&'static str]);

const OPTIONS: &[Row] = &[
    (&[&["-D", "KEY=1"], &["-DKEY=1"]], &["insert", "build-ppdf"], &[]),
    (&[&["--sym", "f"], &["-s", "f"], &["--sym=f"]], &["insert", "build-ppdf"], &[]),
    (
        &[
            &["--group", "one"],
            &["-u", "one"],
            &["--group=one,two"],
            &["--group", "one", "two"],
            &["-u", "=", "one"],
        ],
        &["insert", "apply-ppdf"],
        &[],
    ),
    (
        &[&["--type", "one"], &["-t", "one"], &["--type=one,two"], &["-t", "one", "two"]],
        &["insert", "apply-ppdf"],
        &[],
    ),
    (&[&["--merge"], &["-m"]], &["insert", "apply-ppdf"], &[]),
    (&[&["--replace"], &["-c"]], &["insert", "apply-ppdf"], &[]),
    (&[&["--dont-verify-opcodes"]], &["insert", "apply-ppdf"], &["build-ppdf"]),
    (&[&["--stop-cpus"]], &["insert"], &[]),
    (
        &[
            &["--log", "PROCNAME", "PID", "UID", "SSESP", "CSEIP", "TSC"],
            &["-l", "ALL"],
            &["--log=pid,Tsc"],
            &["-l", "pid,", "uid", "--log", "TSC"],
        ],
        &["insert", "apply-ppdf"],
        &[],
    ),
    (&[&["--unformatted-output"], &["-f"]], &["insert", "apply-ppdf"], &[]),
    (
        &[
            &["--log-target", "KLOG"],
            &["--log-target=klog"],
            &["--log-target", "COM1"],
            &["--log-target", "com2"],
            &["--log-target=LTT"],
            &["--log-target", "Evl"],
            &["--log-target", "serial:/dev/ttyS3,ctf:d", "--log-target", "store:a.dpt"],
        ],
        &["insert", "apply-ppdf"],
        &[],
    ),
    (&[&["--name", "m"], &["-n", "m"], &["--name=m"]], &["remove", "query", "getvars"], &[]),
    (&[&["--all"], &["-a"]], &["remove", "query", "getvars"], &[]),
    (&[&["--extended"], &["-x"]], &["query"], &[]),
    (&[&["--index", "0-7"], &["-i", "0-7"], &["--index=0-7"], &["-i=0-7"]], &["getvars"], &[]),
    (&[&["--local"]], &["getvars"], &[]),
    (&[&["--global"]], &["getvars"], &[]),
    (&[&["--reset"]], &["getvars"], &[]),
    (&[&["--outfile", "f"], &["--outfile=f"]], &["build-ppdf"], &[]),
    // Where records go, here.
    (&[&["-o", "f"]], &["build-ppdf"], &["insert", "apply-ppdf"]),
];

/// Runs a command line without a session or file; returns its status and message.
fn said(scratch: &Scratch, words: &[&str]) -> (Option<i32>, String) {
    let mut command = dprobes();
    command.env("DPROBES_SESSION_DIR", scratch.path().join("none")).current_dir(scratch.path()).args(words);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!(stdout, "", "{words:?}");
    (status.code(), stderr)
}

#[test]
fn each_is_taken_by_its_commands_and_refused_by_the_others() {
    let scratch = Scratch::new();
    for (spellings, of_manual, of_ours) in OPTIONS {
        for (command, needed) in COMMANDS {
            let word = command[2];
            let takes = of_manual.contains(&word) || of_ours.contains(&word);
            for option in *spellings {
                // The option that selects programs may be given only once.
                let names = matches!(option[0].split('=').next(), Some("--name" | "-n" | "--all" | "-a"));
                let needed = if names && takes { &[][..] } else { needed };
                for spelled in command {
                    let line = [&[spelled], needed, option].concat();
                    let (status, stderr) = said(&scratch, &line);
                    if takes {
                        // It got as far as looking for the program, or the session.
                        assert_eq!(status, Some(1), "{line:?}: {stderr}");
                        let found = ["nowhere.", "nothing is inserted"].iter().any(|it| stderr.contains(it));
                        assert!(found, "{line:?}: {stderr}");
                    } else {
                        is_refused(&line, option[0], word, of_manual, status, &stderr);
                    }
                }
            }
        }
    }
}

/// Checks the refusal of an option by a command.
#[track_caller]
fn is_refused(
    line: &[&str],
    option: &str,
    command: &str,
    takers: &[&str],
    status: Option<i32>,
    stderr: &str,
) {
    assert_eq!(status, Some(2), "{line:?}: {stderr}");
    let option = match option.strip_prefix("--") {
        Some(_) => option.split('=').next().unwrap_or(option),
        None => &option[..2],
    };
    let reason = stderr.lines().next().unwrap_or_default();
    assert!(reason.starts_with(&format!("error: `{command}` takes no `{option}`; ")), "{line:?}: {reason}");
    for taker in takers {
        assert!(reason.contains(&format!("`{taker}`")), "{line:?}: {reason}");
    }
}

#[test]
fn options_may_stand_before_the_command() {
    let scratch = Scratch::new();
    for line in [
        &["-D", "A=1", "-l", "PID", "UID", "-m", "--insert", "nowhere.rpn"][..],
        &["--group", "one", "two", "--insert=nowhere.rpn"],
        &["-f", "-p", "nowhere.ppdf"],
        &["--outfile", "f", "-s", "g", "-b", "nowhere.rpn"],
        &["-a", "-q"],
        &["--index", "0-7", "--name", "m", "-g"],
    ] {
        let (status, stderr) = said(&scratch, line);
        assert_eq!(status, Some(1), "{line:?}: {stderr}");
    }
}

#[test]
fn what_excludes_another_is_refused() {
    let scratch = Scratch::new();
    for (line, named) in [
        (&["-i", "f", "-m", "-c"][..], "--replace"),
        (&["-p", "f", "--replace", "--merge"], "--merge"),
        (&["-r", "-a", "-n", "m"], "--name"),
        (&["-q"], "--all"),
        (&["-i", "f", "--log", "PSW"], "PSW is the program status word of s390"),
        (&["-i", "f", "--log", "PID", "upsw"], "UPSW is the user's program status word of s390"),
        (&["-p", "f", "--log-target", "com1:x"], "`com1` takes no path: write `com1` alone"),
        (&["-i", "f", "--log-target", "serial"], "`serial` needs a device"),
        (&["-i", "f", "--log-target", "KLOG,stderr"], "standard error is not there any more"),
        (&["-i", "f", "--log-target", "tape"], "the targets are KLOG"),
        (&["-g", "-a", "-i", "x"], "FROM-TO"),
    ] {
        let (status, stderr) = said(&scratch, line);
        assert!(status == Some(2) && stderr.contains(named), "{line:?}: {stderr}");
    }
}

#[test]
fn help_and_version_in_both_spellings() {
    for (words, expected) in [
        (&["--help"][..], "Usage: dprobes <COMMAND>"),
        (&["-h"], "Usage: dprobes <COMMAND>"),
        (&["--version"], "dprobes "),
        (&["-v"], "dprobes "),
        (&["--insert", "--help"], "Usage: dprobes insert"),
        (&["-g", "-h"], "Usage: dprobes getvars"),
    ] {
        let (status, stdout, stderr) = run(dprobes().args(words));
        assert!(status.success() && stdout.contains(expected), "{words:?}: {stdout}{stderr}");
    }
}
