//! Static probes that a program skips unless somebody counts their semaphore up: by the kernel.

use std::path::Path;
use std::process::Command;

use super::kernel::{can_run, script};
use super::support::{Scratch, Server, dprobes, run, target};
use super::tracing::{Tracing, send};
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn(&Path)| {
        trials.add(format!("semaphores: {name}"), move || {
            let skipped = format!("bpf: scripts: {name}");
            match (can_run(), target("usdt")) {
                (false, _) => {
                    testing::skipped(&skipped, "root, and a kernel with uprobes that runs eBPF programs")
                }
                (_, None) => testing::skipped(&skipped, "gcc"),
                (true, Some(program)) => {
                    let scratch = Scratch::new();
                    let copy = scratch.path().join("usdt");
                    std::fs::copy(program, &copy).expect("there is room");
                    test(&copy);
                }
            }
        });
    };
    one("of all processes, those that run and those that come", everywhere);
    one("of a command, beside events of the kernel", mixed);
}

const TEXT: &str = "usdt:{program}:counted { printf(\"seen %d\\n\", arg0); @[pid] = count(); }
    usdt:{program}:text { @text = count(); }";

fn everywhere(program: &Path) {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut server = Server::start(program, ["wait"]);
        let tracing = Tracing::start(&[&script(TEXT, program)]);
        tracing.says("armed");
        let later = Command::new(program).output().expect("it starts");
        let later = String::from_utf8(later.stdout).expect("it is text");
        assert!(later.contains("counted 6\n") && later.ends_with("semaphore 1\n"), "{later}");
        let mut said = server.ask("");
        while !said.contains("semaphore") {
            said = format!("{said}\n{}", server.line());
        }
        assert!(said.contains("counted 6") && said.contains("semaphore 1"), "{said}");
        if signal == libc::SIGTERM {
            let (status, stdout) = tracing.stop(signal);
            assert_eq!(status.code(), Some(0));
            for line in ["seen 0", "seen 3", "seen 6"] {
                assert_eq!(stdout.lines().filter(|it| *it == line).count(), 2, "{line} in\n{stdout}");
            }
            assert!(stdout.contains(&format!("@[{}]: 3\n", server.pid())), "{stdout}");
            assert!(stdout.contains("@text: 6\n"), "{stdout}");
        } else {
            send(tracing.pid(), signal);
            drop(tracing);
        }
        // The kernel takes the probes out when the descriptors close.
        let is_out = || {
            let untraced = Command::new(program).output().expect("it starts");
            String::from_utf8_lossy(&untraced.stdout).ends_with("semaphore 0\n")
        };
        for _ in 0..1000 {
            if is_out() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(is_out(), "a probe is still there");
        assert_eq!(server.ask(""), "semaphore at the end 0");
    }
}

fn mixed(program: &Path) {
    let text = format!("software:page-faults:1 {{ @faults = count(); }} {}", script(TEXT, program));
    let mut command = dprobes();
    command.args(["trace", &text, "--"]).arg(program);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(0), "{stderr}");
    for line in
        ["counted 0", "counted 3", "counted 6", "seen 0", "seen 3", "seen 6", "semaphore 1", "@text: 3"]
    {
        assert!(stdout.lines().any(|it| it == line), "{line} in\n{stdout}{stderr}");
    }
    assert!(stdout.contains("@faults: ") && !stdout.contains("@faults: 0"), "{stdout}");
    // Another process is left alone meanwhile: its semaphore stays.
    let text = format!("software:page-faults:1 {{ @faults = count(); }} {}", script(TEXT, program));
    let mut server = Server::start(program, ["wait"]);
    let pid = server.pid().to_string();
    let tracing = Tracing::start(&["-p", &pid, &text]);
    tracing.says("armed in /");
    let other = Command::new(program).output().expect("it starts");
    assert!(String::from_utf8_lossy(&other.stdout).ends_with("semaphore 0\n"), "{other:?}");
    let mut said = server.ask("");
    while !said.contains("semaphore") {
        said = server.line();
    }
    assert_eq!(said, "semaphore 1");
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert!(status.success() && stdout.contains(&format!("@[{pid}]: 3\n")), "{stdout}");
    assert_eq!(server.ask(""), "semaphore at the end 0");
}
