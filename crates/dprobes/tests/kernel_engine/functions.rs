//! Points of functions: entries, returns, patterns, every instruction.

use crate::support::{Scratch, build, copy, need, needs_kernel, repository, start_file, target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program `points` says of its functions: how often each was entered and left.
fn expected(program: &Path) -> BTreeMap<String, (u64, u64)> {
    let output = Command::new(program).output().expect("it starts");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), (words[1].parse().expect("a number"), words[2].parse().expect("a number")))
    };
    text.lines().map(row).collect()
}

/// Runs a session with one point of functions, and the program in it.
fn counted(program: &Path, point: &str) -> (BTreeMap<String, (u64, u64)>, crate::support::Outcome) {
    let at = format!("{}:{point}", program.display());
    let mut session = start_file(Path::new(""), &["--at", &at]);
    session.armed();
    let counts = expected(program);
    (counts, session.stop().ended_with(0))
}

#[test]
fn functions_are_counted_as_they_count_themselves() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: functions", target("points"), "gcc"), "points");
    let (counts, outcome) = counted(&program, "t_*:entry");
    let places = outcome.stats.probes[0].places.as_ref().expect("there are some");
    for (function, (entered, _)) in &counts {
        let place = places.iter().find(|place| place.function == *function).expect("it was probed");
        assert_eq!(place.hits, *entered, "{function}: {outcome:#?}");
    }
    let (counts, outcome) = counted(&program, "t_*:return");
    let places = outcome.stats.probes[0].places.as_ref().expect("there are some");
    for (function, (_, left)) in &counts {
        // `t_exit` never returns.
        let hits = places.iter().find(|place| place.function == *function).map_or(0, |place| place.hits);
        assert_eq!(hits, *left, "{function}: {outcome:#?}");
    }
}

#[test]
fn a_conditional_jump_out_of_a_function_counts_if_it_jumps() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: functions", target("points"), "gcc"), "points");
    // Half of its calls leave by `jz t_padded`, the others by `ret`.
    let (counts, outcome) = counted(&program, "t_branch:return");
    assert_eq!(outcome.stats.probes[0].hits, counts["t_branch"].1, "{outcome:#?}");
    assert_eq!(outcome.stats.probes[0].sites.kernel.values().sum::<usize>(), 2, "{outcome:#?}");
}

/// Functions that each leave by one conditional jump, or by `ret`; called with all flags there are.
const CONDITIONS: &str = r#"
__asm__(".text\n"
    ".type target,@function\ntarget: ret\n.size target,.-target\n"
    ".altmacro\n.macro leaves cc\n"
    ".type c_\\cc,@function\nc_\\cc: push %rdi\n popf\n j\\cc target\n ret\n.size c_\\cc,.-c_\\cc\n"
    ".endm\n"
    ".irp cc,o,no,b,ae,e,ne,be,a,s,ns,p,np,l,ge,le,g\n leaves \\cc\n.endr\n"
    ".type all,@function\nall: sub $8,%rsp\n"
    ".irp cc,o,no,b,ae,e,ne,be,a,s,ns,p,np,l,ge,le,g\n call c_\\cc\n.endr\n"
    " add $8,%rsp\n ret\n.size all,.-all\n");
void all(unsigned long flags);
int main(void) {
    /* carry, parity, zero, sign, overflow */
    const unsigned long bits[] = {1, 4, 64, 128, 2048};
    for (int set = 0; set < 32; set++) {
        unsigned long flags = 2;
        for (int bit = 0; bit < 5; bit++) if (set >> bit & 1) flags |= bits[bit];
        all(flags);
    }
    return 0;
}
"#;

/// Each call leaves once: by the jump if its condition holds, else by `ret`.
#[test]
fn a_condition_holds_as_the_processor_takes_it() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = need!("bpf: functions", build(&scratch, CONDITIONS, "conditions", &["-O1"]), "gcc");
    let at = format!("{}:c_*:return", program.display());
    let mut session = start_file(Path::new(""), &["--at", &at]);
    session.armed();
    assert!(Command::new(&program).status().expect("it starts").success());
    let outcome = session.stop().ended_with(0);
    let places = outcome.stats.probes[0].places.as_ref().expect("there are some");
    assert_eq!(places.len(), 16, "{outcome:#?}");
    for place in places {
        assert_eq!((place.sites, place.hits), (2, 32), "{place:?}");
    }
}

#[test]
fn each_instruction_of_a_function_is_probed_and_what_cannot_be_is_said() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: functions", target("points"), "gcc"), "points");
    let (counts, outcome) = counted(&program, "t_leaf:*");
    let places = outcome.stats.probes[0].places.as_ref().expect("there are some");
    assert!(places.len() > 1, "{outcome:#?}");
    assert!(places.iter().all(|place| place.hits == counts["t_leaf"].0), "{outcome:#?}");
    // All functions of the program, the C library's start-up code among them.
    let (_, outcome) = counted(&program, "*:entry");
    assert!(outcome.stats.probes[0].hits > 0, "{outcome:#?}");
}

/// The program `every` with the code that is to be probed as functions.
fn every(scratch: &Scratch) -> Option<PathBuf> {
    let gcc = testing::find_program("gcc")?;
    let source = std::fs::read_to_string(repository().join("tests/targets/every.S")).expect("it is there");
    let function = |(section, from, to): (&str, &str, &str)| {
        format!(".section {section}\nend_of_{from}:\n.type {from}, @function\n.size {from}, {to} - {from}\n")
    };
    let functions = [
        (".probed", "probed_start", "probed_main"),
        (".probed", "probed_main", "probed_end"),
        (".probed_bmi", "probed_bmi", "end_of_probed_bmi"),
        (".probed_avx", "probed_avx", "end_of_probed_avx"),
        (".probed_avx512", "probed_avx512", "end_of_probed_avx512"),
    ];
    let functions: String = functions.into_iter().map(function).collect();
    let source = scratch.file("every.S", &(source + &functions));
    let program = scratch.path().join("every");
    let mut command = Command::new(gcc);
    command.args(["-nostdlib", "-static", "-no-pie", "-o"]).arg(&program).arg(source);
    command.output().is_ok_and(|output| output.status.success()).then_some(program)
}

/// The kernel's uprobes execute some instructions wrongly; these are left out.
#[test]
fn a_program_of_all_instructions_does_what_it_does_without_probes() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = need!("bpf: functions", every(&scratch), "gcc");
    let expected = Command::new(&program).output().expect("it starts");
    assert_eq!(expected.status.code(), Some(42));
    let at = format!("{}:probed_*:*", program.display());
    let mut session = start_file(Path::new(""), &["--dont-verify-opcodes", "--at", &at]);
    session.armed();
    let found = Command::new(&program).output().expect("it starts");
    let outcome = session.stop().ended_with(0);
    assert_eq!(found.status, expected.status);
    assert!(found.stdout == expected.stdout, "it has computed something else");
    for reason in [
        "it calls the kernel, and the kernel's uprobes would lose its thread there",
        "it stores the flags",
        "the kernel's uprobes take this vector instruction for a jump",
        "the kernel's uprobes do not take this instruction",
    ] {
        assert!(outcome.stderr.contains(reason), "{reason}: {}", outcome.stderr);
    }
    let places = outcome.stats.probes[0].places.as_ref().expect("there are some");
    let sites: usize = places.iter().map(|place| place.sites).sum();
    assert!(sites > 900 && outcome.stats.probes[0].hits > 900, "{sites} in {places:#?}");
}
