//! Memory as handlers see it: as the program itself does, without what dprobes has put there, and
//! the same by both engines.

use std::path::{Path, PathBuf};

use crate::support::{Outcome, Run, need, target};

fn program() -> Option<PathBuf> {
    target("memory")
}

/// A program with one probe, at `memory_look`.
fn probe(program: &Path, handler: &str) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nvars = 2\nlogmax = 4000\njmpmax = 65535\noffset = memory_look\nexcpt_mask = 0xffff\n{handler}",
        program.display()
    )
}

/// Accesses the address in rdi in all ways, and logs each result: the value, or the exception and
/// its distance from that address.
fn every_access() -> String {
    let caught = "ret b: log 1 push r, rdi xchg sub log 1 ros 1";
    let accesses = [
        "push mem, u8 log 1",
        "push mem, u16 log 1",
        "push mem, u32 log 1",
        "push mem, u64 log 1",
        "push 16 xchg log mrf",
        "push 16 xchg log str",
        "push -1 xchg log str",
        "push r, rdi push mem, u8 pop mem, u8 push 0x77 log 1",
        "push r, rdi push mem, u32 pop mem, u32 push 0x77 log 1",
        "push r, rdi push mem, u64 pop mem, u64 push 0x77 log 1",
    ];
    let calls: String = (0..accesses.len()).map(|number| format!("call a{number}\n")).collect();
    let procedures: String = accesses
        .iter()
        .enumerate()
        .map(|(number, access)| format!("proc a{number} sx b push r, rdi {access} {caught} endproc\n"))
        .collect();
    format!("push r, rdi vfyr log 1\npush r, rdi vfyrw log 1\n{calls}exit\n{procedures}")
}

/// What was logged, record by record, as hexadecimal digits.
fn logs(outcome: &Outcome) -> Vec<String> {
    let mut logs: Vec<String> = Vec::new();
    for line in outcome.records.lines() {
        if line.contains(" cpu=") {
            logs.push(String::new());
        } else if let (Some(log), Some((_, bytes))) = (logs.last_mut(), line.split_once(" : ")) {
            let bytes = bytes.split(" : ").next().unwrap_or_default();
            log.extend(bytes.chars().filter(char::is_ascii_hexdigit));
        }
    }
    logs
}

fn runs(program: &Path, handler: &str, mode: &str) -> [Outcome; 2] {
    ["trap", "jump"].map(|engine| {
        let outcome = Run::new(&probe(program, handler))
            .option(format!("--engine={engine}"))
            .on([program.as_os_str(), mode.as_ref()])
            .ended_with(0);
        assert!(outcome.stdout.ends_with("done\n"), "{outcome:#?}");
        assert_eq!(outcome.stats.probes[0].engine, engine, "{outcome:#?}");
        outcome
    })
}

#[test]
fn both_engines_see_what_the_program_sees() {
    let program = need!("memory", program(), "gcc");
    let [trap, jump] = runs(&program, &every_access(), "kinds");
    assert_eq!(trap.stdout, jump.stdout);
    assert!(trap.stdout.contains("stack kept"), "{trap:#?}");
    let (by_trap, by_jump) = (logs(&trap), logs(&jump));
    let places: Vec<&str> =
        trap.stdout.lines().take_while(|line| !line.starts_with("stack") && *line != "done").collect();
    assert!(places.len() > 60 && by_trap.len() == places.len() + 6, "{} {}", places.len(), by_trap.len());
    assert_eq!(by_trap.len(), by_jump.len());
    for (number, (one, other)) in by_trap.iter().zip(&by_jump).enumerate() {
        let place = places.get(number).copied().unwrap_or("what differs from run to run");
        // For the three on the stack, the log has addresses.
        let is_stack = (places.len()..places.len() + 3).contains(&number);
        let [one, other] = [one, other].map(|log| if is_stack { &log[..32] } else { &**log });
        assert_eq!(one, other, "{number}: {place}");
    }
    // The words logged by vfyr and vfyrw agree with what the program has found out, unless reading
    // raised no signal because a page behind a file's end was dropped.
    for (place, log) in places.iter().zip(&by_trap) {
        let can = |verified: &str| if verified.starts_with("00") { "1" } else { "0" };
        let said = format!("{} {}", can(&log[..16]), can(&log[16..32]));
        assert!(place.ends_with(&said), "{place}: {said}");
    }
    // The stack, just below it, and far below it; then the code.
    let [here, below, far, code, middle, writable] = &by_trap[places.len()..] else { unreachable!() };
    assert!(here.starts_with("00") && below.starts_with("01") && far.starts_with("01"), "{by_trap:?}");
    const NOPS: &str = "0f1f4400000f1f440000c3";
    assert!(code.contains(NOPS) && writable.contains(NOPS), "a probe is seen: {code} {writable}");
    assert!(middle.contains(&NOPS[10..]), "a probe is seen: {middle}");
    let verified = [code, writable].map(|log| &log[..32]);
    assert!(
        verified.iter().all(|it| it.starts_with("00") && it[16..].starts_with("01")),
        "code with probes in it is not written: {verified:?}"
    );
}

#[test]
fn nothing_of_ours_is_there_for_handlers() {
    let program = need!("memory", program(), "gcc");
    // Tries to overwrite everything; nothing can be overwritten.
    let handler = "call w push r, rdi vfyr push r, rdi vfyrw log 2\nexit\n\
        proc w sx b push r, rdi push 0x7f7f7f7f7f7f7f7f pop mem, u64 push 0x99 log 1 ret b: ros 3 endproc\n";
    for outcome in runs(&program, handler, "ours") {
        let mappings: usize = outcome
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("mappings ")?.parse().ok())
            .unwrap_or_else(|| panic!("{outcome:#?}"));
        assert!(mappings > 0, "{outcome:#?}");
        let logs = logs(&outcome);
        assert_eq!(logs.len(), 6 * mappings + 1000, "{outcome:#?}");
        for (number, log) in logs.iter().enumerate() {
            // The first access of each mapping is just before it, and may be the program's.
            let is_ours = number >= 6 * mappings || number % 6 != 0;
            let nothing = format!("01{0:014}01{0:014}", 0);
            assert!(!is_ours || *log == nothing, "{number} of {mappings} mappings: {log}");
        }
    }
}

#[test]
fn handlers_find_nothing_below_2_gib_that_the_program_has_not() {
    let program = need!("memory", program(), "gcc");
    // Looks at a page of each MiB. (Each page that is not mapped costs a stop.)
    let handler = "push r, rdi pop lv, 0\npush 64\n\
        l: push lv, 0 vfyr jz found ros 1\npush 0x100000 push lv, 0 add pop lv, 0\nloop l\nabort\n\
        found: log 1\n";
    let outcome = Run::new(&probe(&program, handler))
        .option("--engine=jump")
        .on([program.as_os_str(), "low".as_ref()])
        .ended_with(0);
    assert_eq!(outcome.headers(), Vec::<&str>::new(), "{outcome:#?}");
    assert_eq!(outcome.stats.probes[0].runs, 32, "{outcome:#?}");
}

#[test]
fn a_segment_register_reads_back_what_it_took() {
    let program = need!("memory", program(), "gcc");
    let selectors: [(u64, bool); 14] = [
        (0, true),
        (0x2b, true),
        (0x33, true),
        (0x23, true),
        (1, false),
        (3, false),
        (0x28, false),
        (0x2a, false),
        (0x10, false),
        (0x7b, false),
        (0x63, false),
        (0x0f, false),
        (0xfff3, false),
        (0x1_002b, false),
    ];
    for register in ["ds", "es", "fs", "gs"] {
        let tries: String = (0..selectors.len()).map(|number| format!("call s{number}\n")).collect();
        let procedures: String = selectors
            .iter()
            .enumerate()
            .map(|(number, (selector, _))| {
                format!("proc s{number} sx b push {selector} pop r, {register} push r, {register} log 1 ret b: log 3 endproc\n")
            })
            .collect();
        let handler = format!("{tries}push 0 pop r, {register}\nexit\n{procedures}");
        let expected: String = selectors
            .iter()
            .flat_map(|&(selector, taken)| if taken { vec![selector] } else { vec![0x40, 5, selector] })
            .flat_map(u64::to_le_bytes)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        for outcome in runs(&program, &handler, "low") {
            let logs = logs(&outcome);
            assert_eq!(logs.len(), 32, "{outcome:#?}");
            assert!(logs.iter().all(|log| *log == expected), "{register}: {}\n{expected}", logs[0]);
        }
    }
}
