//! `list --tactics`: its prediction is what happens, and it changes nothing.

use std::path::Path;
use std::process::Command;

use crate::support::{Run, dprobes, find_program, need, run, target};

/// The report of one module as JSON.
fn report(arguments: &[&str]) -> serde_json::Value {
    let (status, stdout, stderr) = run(dprobes().args(["list", "--tactics", "--json"]).args(arguments));
    assert!(status.success(), "{stderr}");
    let mut value: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    let modules = value["modules"].as_array_mut().expect("a list of modules");
    assert_eq!(modules.len(), 1, "{stdout}");
    modules.swap_remove(0)
}

fn sum(counts: &serde_json::Value) -> u64 {
    counts.as_object().expect("counts by name").values().map(|count| count.as_u64().expect("a number")).sum()
}

#[test]
fn a_terminal_is_told_what_takes_long() {
    let script = need!("tactics: terminal", find_program("script"), "script");
    let line = format!("'{}' list --tactics libc --points '*' | wc -l", env!("CARGO_BIN_EXE_dprobes"),);
    let begun = std::time::Instant::now();
    let (status, out, err) = run(Command::new(&script).args(["-qec", &line, "/dev/null"]));
    assert!(status.success(), "{out}{err}");
    // 300,000 instructions are planned in some seconds; a line comes after half a second.
    let is_told = out.contains("\r\x1b[Kdprobes: planning jumps, 0 s");
    assert!(is_told || begun.elapsed() < std::time::Duration::from_secs(1), "{out}");
    // Nothing of it is left.
    let left = out.rsplit("\r\x1b[K").next().unwrap_or_default().trim();
    assert!(left.parse::<u32>().is_ok_and(|lines| lines > 5), "{out:?}");
}

#[test]
fn the_sites_of_a_file_are_all_counted() {
    let program = need!("tactics", target("points"), "gcc");
    let path = program.to_str().expect("it is plain");
    for point in ["entry", "*"] {
        let found = report(&[path, "t_*", "--points", point]);
        let sites = found["sites"].as_u64().expect("a number");
        let all = sum(&found["jump"]) + sum(&found["trap"]) + sum(&found["refused"]);
        assert!(sites >= 16 && all == sites, "{found:#}");
        assert!(sum(&found["jump"]) * 100 >= sites * 95, "{found:#}");
        assert!(found["control_flow"]["proven"].as_u64() > Some(50), "{found:#}");
    }
    // As a table it says the same number.
    let (status, stdout, stderr) = run(dprobes().args(["list", "--tactics", path, "t_*"]));
    let sites = report(&[path, "t_*"])["sites"].to_string();
    assert!(status.success(), "{stderr}");
    assert!(
        stdout.lines().any(|line| line.trim_start().starts_with(&sites) && line.ends_with("sites")),
        "{stdout}"
    );
}

#[test]
fn what_is_foreseen_in_a_process_happens_there() {
    let sleep = need!("tactics", find_program("sleep"), "sleep");
    let mut child = Command::new(&sleep).arg("60").spawn().expect("sleep runs");
    let pid = child.id().to_string();
    // Until it sleeps.
    let sleeps = || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.starts_with(&format!("{} ", libc::SYS_clock_nanosleep))
    };
    for _ in 0..500 {
        if sleeps() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let before = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is there");
    let foreseen = report(&["-p", &pid, "libc.so*:str*"]);
    let after = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is there");
    assert_eq!(before, after, "nothing is mapped for it");
    child.kill().and_then(|()| child.wait()).expect("it is ours");
    let text = "name = libc\nmodtype = user\noffset = \"str*\":entry\nabort\n";
    let outcome = Run::new(text).option("--engine=auto").on([Path::new(&sleep).as_os_str(), "0".as_ref()]);
    let outcome = outcome.ended_with(0);
    let probe = &outcome.stats.probes[0];
    let (jumps, traps): (usize, usize) = (probe.sites.jump.values().sum(), probe.sites.trap.values().sum());
    let places: usize = probe.places.iter().flatten().map(|place| place.sites).sum();
    assert_eq!(jumps + traps, places, "{probe:?}");
    assert_eq!(foreseen["sites"].as_u64(), Some(places as u64), "{foreseen:#}");
    assert!(sum(&foreseen["jump"]).abs_diff(jumps as u64) <= 1, "{foreseen:#} {probe:?}");
}
