//! Points of functions: entries, returns, patterns, every instruction.

use crate::support::{Scratch, build, copy, need, needs_kernel, run, start, start_file, target};
use std::collections::BTreeMap;
use std::path::Path;
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

/// The addresses of the instructions in some sections of a program, as objdump finds them, and
/// their texts.
fn instructions(objdump: &Path, program: &Path, sections: &[&str]) -> BTreeMap<u64, String> {
    let mut command = Command::new(objdump);
    command
        .args(["-d", "--no-show-raw-insn"])
        .args(sections.iter().flat_map(|name| ["-j", name]))
        .arg(program);
    let (status, listing, error) = run(&mut command);
    assert!(status.success(), "{error}");
    let line = |line: &str| {
        let (address, text) = line.trim_start().split_once(":\t")?;
        Some((u64::from_str_radix(address, 16).ok()?, text.to_owned()))
    };
    listing.lines().filter_map(line).collect()
}

/// Where the program `every` is in memory, less the offset in its file.
const BASE: u64 = 0x40_0000;

/// A program with a probe on each of some instructions of the program `every`.
fn on_each<'a>(program: &Path, addresses: impl Iterator<Item = &'a u64>) -> String {
    let handler = |(number, address): (usize, &u64)| {
        format!("offset = {:#x}\nminor = {}\nabort\n", address - BASE, number + 1)
    };
    let handlers: String = addresses.enumerate().map(handler).collect();
    format!("name = \"{}\"\nmodtype = user\nlogmax = 0\n{handlers}", program.display())
}

/// The kernel's uprobes execute some instructions wrongly; these are refused.
#[test]
fn a_program_of_all_instructions_does_what_it_does_without_probes() {
    needs_kernel!("functions");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: functions", target("every"), "gcc"), "every");
    let objdump = need!("bpf: functions", testing::find_program("objdump"), "objdump");
    let sections = [".probed", ".probed_bmi", ".probed_avx", ".probed_avx512"];
    let mut all = instructions(&objdump, &program, &sections);
    let mut refused: BTreeMap<u64, (String, String)> = BTreeMap::new();
    loop {
        let (status, said) = start(&on_each(&program, all.keys()), &[]).refused();
        assert_eq!(status, Some(1), "{said}");
        let armed = said.split_once(" probes armed in ").and_then(|(before, _)| before.rsplit(' ').next());
        let armed: usize = armed.and_then(|number| number.parse().ok()).expect("it says how many");
        let before = refused.len();
        for line in said.lines().filter(|line| line.contains(":0x")) {
            let (_, rest) = line.split_once(":0x").expect("it has it");
            let (offsets, reason) = rest.split_once(": ").expect("it says why");
            for offset in offsets.split(" and ").next().unwrap_or_default().split(", ") {
                let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).expect("a number");
                if let Some(text) = all.remove(&(BASE + offset)) {
                    refused.insert(BASE + offset, (text, reason.to_owned()));
                }
            }
        }
        assert!(refused.len() > before, "{said}");
        if all.len() == armed {
            break;
        }
    }
    let cases = [
        ("syscall", "it calls the kernel, and the kernel's uprobes would lose its thread there"),
        ("pushf", "it stores the flags"),
        ("kmovw", "the kernel's uprobes take this vector instruction for a jump"),
        ("vmovdqu64", "the kernel's uprobes take this vector instruction for a jump"),
    ];
    for (name, why) in cases {
        let is_it = |(text, reason): &(String, String)| text.starts_with(name) && reason.starts_with(why);
        assert!(refused.values().any(is_it), "{name}: {refused:#?}");
    }
    assert!(refused.len() < 40 && all.len() > 900, "{} and {refused:#?}", all.len());
    let expected = Command::new(&program).output().expect("it starts");
    let mut session = start(&on_each(&program, all.keys()), &[]);
    session.armed();
    let found = Command::new(&program).output().expect("it starts");
    let outcome = session.stop().ended_with(0);
    assert_eq!(found.status, expected.status);
    assert!(found.stdout == expected.stdout, "it has computed something else");
    let hit = outcome.stats.probes.iter().filter(|probe| probe.hits > 0).count();
    assert!(hit > 800, "{hit} of {}", all.len());
}
