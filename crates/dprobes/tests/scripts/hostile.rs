//! What a hostile process puts into strings and into the memory that it shares.

use super::support::{Scratch, dprobes, find_program, run, target};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    trials.add("hostile: a file gets strings as they are", as_they_are);
    trials.add("hostile: a terminal gets no control characters", terminal);
    trials.add("hostile: who erases the maps harms nobody but the counts", erased);
}

const NAMES: &str =
    "uprobe:a.out:scripted_name { printf(\"\\033[1m%s\\033[0m|\", str(arg0)); @[str(arg0)] = 1; }";

/// The string of `scripted rude`.
const RUDE: &[u8] = b"\x1b]0;owned\x07\x9b31m\xff\tend\r\n";

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn as_they_are() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: hostile", "gcc") };
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let mut command = dprobes();
    command.args(["trace", "-q", "-o"]).arg(&out).arg(NAMES).arg("--").arg(program).arg("rude");
    assert_eq!(run(&mut command).0.code(), Some(3));
    let bytes = std::fs::read(out).expect("it was written");
    assert!(contains(&bytes, &[b"\x1b[1m", RUDE, b"\x1b[0m|"].concat()), "{bytes:?}");
    assert!(contains(&bytes, &[b"@[", RUDE, b"]: 1\n"].concat()), "{bytes:?}");
}

/// `script` runs a command in a terminal of its own.
fn terminal() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: hostile", "gcc") };
    let Some(script) = find_program("script") else { return testing::skipped("trace: terminal", "script") };
    let scratch = Scratch::new();
    let (text, log) = (scratch.file("names.bt", NAMES), scratch.path().join("log"));
    for format in ["text", "json"] {
        let line = format!(
            "'{}' trace -q -f {format} '{}' -- '{}' rude",
            env!("CARGO_BIN_EXE_dprobes"),
            text.display(),
            program.display()
        );
        let mut command = Command::new(&script);
        let (status, _, stderr) = run(command.args(["-qec", &line]).arg(&log));
        assert_eq!(status.code(), Some(3), "{stderr}");
        let bytes = std::fs::read(&log).expect("it was written");
        for rude in [&b"\x1b]"[..], b"\x07", b"\x9b", b"\xff", b"\tend\r\r"] {
            assert!(!contains(&bytes, rude), "{format}: {rude:?}: {}", String::from_utf8_lossy(&bytes));
        }
        let (own, shown) = match format {
            // What the script itself says is its own.
            "text" => (
                &b"\x1b[1m\\x1b]0;owned\\x07\\x9b31m\\xff\tend\\x0d\r\n\x1b[0m|"[..],
                &b"@[\\x1b]0;owned"[..],
            ),
            _ => (&b"\"printf\""[..], &b"\\u001b]0;owned"[..]),
        };
        for part in [own, shown] {
            assert!(contains(&bytes, part), "{format}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// The memory of maps is shared by all processes of a script: whoever writes there falsifies what
/// is shown, and the others go on.
fn erased() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: hostile", "gcc") };
    let script = "uprobe:a.out:scripted_size { @[arg0] = count(); @h = hist(arg0); @s[str(\"a\")] = arg0;
          for ($entry : @) { if ($entry.0 == 1) { @t = $entry.1; } } @x[ustack] = stats(arg0); }
        interval:ms:20 { print(@); print(@h); clear(@); zero(@s); }";
    let line = "\"$0\" erase 60 & first=$!; \"$0\" threads 2000; second=$?; wait $first; test $? = 3 -a $second = 3 && echo well";
    for engine in ["jump", "trap"] {
        // With traps, a process has no maps that it could write: it finds nothing to erase.
        let rounds = match engine {
            "trap" => line.replace("2000", "200").replace("$? = 3", "$? = 4"),
            _ => line.to_owned(),
        };
        let mut command = dprobes();
        let name = script.replace("a.out", &program.to_string_lossy());
        command.args(["trace", "-q", "--engine", engine, &name, "--", "sh", "-c", &rounds]).arg(&program);
        let (status, stdout, stderr) = run(&mut command);
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert!(stdout.lines().any(|line| line == "well"), "{engine}: {stderr}");
    }
}
