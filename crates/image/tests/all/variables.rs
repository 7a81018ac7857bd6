//! Variables and their parts: the program itself prints where they are.

use std::process::Command;

use crate::common::{Scratch, have, run};
use image::{Image, NoVariable, ValueKind, variable};

/// Prints the address and size of each part that is asked for below.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdbool.h>
typedef unsigned long word;
struct limit { int soft; short hard[3]; };
struct base { char tag; union { int number; struct { char low, high; }; }; };
struct state { struct base base; const volatile struct limit limits[4]; unsigned on : 3; double ratio; struct state *next; };
struct state state; static word grid[3][5]; enum color { RED, GREEN } color; bool flag; _Thread_local int own;
const word *pointer; static int unused_at_all = 7;
static int first(void) { static int calls; return ++calls; }
static int second(void) { static int calls; return ++calls + (int)(&calls == 0); }
int first_at(void); int second_at(void);
#define TELL(what) printf("%s %p %zu\n", #what, (void *)&what, sizeof what)
int main(void)
{
    own = first() + second();
    TELL(state); TELL(state.base.tag); TELL(state.base.number); TELL(state.base.high); TELL(state.limits);
    TELL(state.limits[3]); TELL(state.limits[2].soft); TELL(state.limits[1].hard[2]); TELL(state.ratio);
    TELL(state.next); TELL(grid); TELL(grid[2]); TELL(grid[2][4]); TELL(color); TELL(flag); TELL(pointer);
    return (int)grid[0][0];
}
"#;

#[test]
fn variables_and_their_parts_are_where_the_program_says() {
    if !have("variables", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let dwarf = ["-gdwarf-5", "-gdwarf-4", "-gdwarf-3", "-gdwarf-5 -gz"];
    for (number, form) in dwarf.iter().enumerate() {
        let mut options = vec!["-no-pie", "-O0"];
        options.extend(form.split(' '));
        let path = scratch.compile("program.c", PROGRAM, &format!("program{number}"), &options);
        let image = Image::open(&path).expect("it is an ELF file");
        let told = Command::new(&path).output().expect("it runs");
        let told = String::from_utf8(told.stdout).expect("it is text");
        assert_eq!(told.lines().count(), 16, "{told}");
        for line in told.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words");
            let (name, address, size) = (word(), word(), word());
            let found = variable(&image, name).unwrap_or_else(|error| panic!("{form}: {error}"));
            let found = (format!("{:#x}", found.vaddr), found.size.to_string());
            assert_eq!(found, (address.to_owned(), size.to_owned()), "{form}: {name}");
        }
        for (name, kind) in [
            ("state.limits[0].soft", ValueKind::Signed),
            ("grid[0][0]", ValueKind::Unsigned),
            ("grid[1]", ValueKind::Aggregate),
            ("color", ValueKind::Unsigned),
            ("flag", ValueKind::Boolean),
            ("state.ratio", ValueKind::Float),
            ("state.base.low", ValueKind::Character),
            ("pointer", ValueKind::Pointer),
        ] {
            assert_eq!(variable(&image, name).map(|found| found.kind), Ok(kind), "{form}: {name}");
        }
    }
}

#[test]
fn what_has_no_place_is_told_why() {
    if !have("variables", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.image("program.c", PROGRAM, "program", &["-g", "-O0"]);
    let told = |name: &str| variable(&image, name).expect_err("it has no place").to_string();
    assert_eq!(told("stat"), "no variable is called `stat`; did you mean `state`?");
    assert_eq!(told("state.limts"), "`state` has no member `limts`; did you mean `limits`?");
    assert_eq!(told("state.limits[4].soft"), "`state.limits` has 4 elements: the last one is 3");
    assert_eq!(told("color.soft"), "`color` is no structure: it has no member `soft`");
    assert_eq!(told("color[0]"), "`color` is no array");
    assert!(told("state.next.ratio").starts_with("`state.next` is a pointer: "));
    assert!(told("state.on").starts_with("`state.on` is a bit field: "));
    assert_eq!(told("own"), "`own` is a variable of each thread: it has no fixed address");
    let ambiguous = variable(&image, "calls").expect_err("there are two");
    let NoVariable::Ambiguous { candidates, .. } = ambiguous else { panic!("{ambiguous}") };
    assert_eq!(candidates.len(), 2);
    for candidate in &candidates {
        assert!(variable(&image, candidate).is_ok(), "{candidate}");
    }
    let [one, other] =
        ["first::calls", "second::calls"].map(|name| variable(&image, name).map(|it| it.vaddr));
    assert!(one.is_ok() && other.is_ok() && one != other);
    assert_eq!(variable(&image, "program.c:first::calls").map(|it| it.vaddr), one);
    assert!(matches!(variable(&image, "other.c:state"), Err(NoVariable::Unknown { .. })));
}

#[test]
fn without_debug_information_symbols_tell_whole_variables() {
    if !have("variables", &["gcc", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    let described = scratch.compile("program.c", PROGRAM, "described", &["-g", "-O0"]);
    let plain = scratch.strip(&described, "plain", &["--strip-debug"]);
    let stripped = scratch.strip(&described, "stripped", &[]);
    let [described, plain, stripped] =
        [described, plain, stripped].map(|path| Image::open(&path).expect("ELF"));
    let known = variable(&described, "state").expect("it is there");
    let found = variable(&plain, "state").expect("it has a symbol");
    assert_eq!((found.vaddr, found.size, found.kind), (known.vaddr, known.size, ValueKind::Unknown));
    let part = variable(&plain, "state.ratio");
    assert!(matches!(part, Err(NoVariable::NoDebugInformation { .. })), "{part:?}");
    assert!(matches!(variable(&plain, "own"), Err(NoVariable::ThreadLocal { .. })));
    assert!(matches!(variable(&stripped, "state"), Err(NoVariable::Unknown { .. })));
}

#[test]
fn variables_of_cpp_have_their_qualified_names() {
    if !have("variables", &["g++"]) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.path().join("program.cc");
    let text = "namespace outer { namespace inner { int depth = 3; } struct base { long tag; };\n\
                struct derived : base { static int made; int own; }; int derived::made = 2; derived one; }\n\
                namespace { int hidden = 4; }\n\
                int main() { return outer::inner::depth + outer::derived::made + hidden + outer::one.own; }\n";
    std::fs::write(&source, text).expect("it can be written");
    let path = scratch.path().join("program");
    run(Command::new("g++").args(["-g", "-O0", "-o"]).arg(&path).arg(&source));
    let image = Image::open(&path).expect("ELF");
    let symbols = Command::new("nm").arg("-C").arg(&path).output().expect("binutils");
    let symbols = String::from_utf8(symbols.stdout).expect("it is text");
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("it has a symbol");
        u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).expect("an address")
    };
    for (name, symbol) in [
        ("outer::inner::depth", "outer::inner::depth"),
        ("inner::depth", "outer::inner::depth"),
        ("depth", "outer::inner::depth"),
        ("outer::derived::made", "outer::derived::made"),
        ("hidden", "(anonymous namespace)::hidden"),
        ("outer::one.tag", "outer::one"),
    ] {
        assert_eq!(variable(&image, name).map(|found| found.vaddr), Ok(address(symbol)), "{name}");
    }
    let own = variable(&image, "outer::one.own").expect("it is a member");
    assert_eq!((own.vaddr, own.size), (address("outer::one") + 8, 4));
}

#[test]
fn damaged_debug_information_is_an_error_and_no_panic() {
    if !have("variables", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.compile("program.c", PROGRAM, "program", &["-g", "-O0", "-Wl,--build-id=none"]);
    let bytes = std::fs::read(&path).expect("it was built");
    let damaged = scratch.path().join("damaged");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..300 {
        let mut copy = bytes.clone();
        for _ in 0..20 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Behind the program itself: debug information, symbols, section headers.
            let place = bytes.len() / 3 + (state >> 33) as usize % (bytes.len() - bytes.len() / 3);
            copy[place] = (state >> 20) as u8;
        }
        std::fs::write(&damaged, &copy).expect("it can be written");
        let Ok(image) = Image::open(&damaged) else { continue };
        for name in ["state.limits[1].hard[2]", "grid[1][1]", "calls", "nothing"] {
            let _ = variable(&image, name);
        }
    }
}
