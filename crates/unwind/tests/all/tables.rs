//! Tables of files: what has an equal meaning gives equal rows.

use std::path::Path;
use std::process::Command;

use crate::common::{compile, source};
use testing::{Scratch, have, output};
use unwind::{Cfa, Index, Lookup, Module, Rule, Saved, Table, build};

fn table(path: &Path) -> Table {
    Table::read(&std::fs::read(path).expect("it was just made")).expect("it is sound")
}

/// The rule of an address of a file.
fn rule(table: &Table, vaddr: u64) -> Rule {
    let module = Module { start: table.base, end: u64::MAX, bias: table.base, table: &table.rows };
    let found = [module].as_slice().rule(vaddr, false).expect("in the module");
    assert_eq!(Index::new(&build(&[module]), 0).rule(vaddr, false), Some(found));
    found
}

/// Without section headers, what the program headers lead to is the same.
#[test]
fn section_headers_are_not_needed() {
    if !have("unwind: section headers", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "gcc", &[source("plain.c")], "program", &["-O2", "-s"]);
    let mut bytes = std::fs::read(program).expect("it was just linked");
    let whole = Table::read(&bytes).expect("it is sound");
    // Where they are, and how many.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    assert!(whole.rows.len() > 30);
    assert_eq!(Table::read(&bytes).expect("it is sound"), whole);
}

/// Some linkers do not describe the procedure linkage table. Its rows are as those of one that is
/// described.
#[test]
fn a_linkage_table_that_is_not_described() {
    if !have("unwind: linkage tables", &["gcc", "objdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let kinds: [&[&str]; 3] = [&[], &["-fcf-protection=full", "-Wl,-z,ibtplt"], &["-no-pie", "-Wl,-z,now"]];
    for (kind, options) in kinds.iter().enumerate() {
        let link = |name: &str, more: &[&str]| {
            let options = [&["-O2"], *options, more].concat();
            compile(&scratch, "gcc", &[source("plain.c")], name, &options)
        };
        let (described, bare) =
            (link("described", &[]), link("bare", &["-Wl,--no-ld-generated-unwind-info"]));
        let (with, without) = (table(&described), table(&bare));
        assert!(
            size_of_information(&bare) < size_of_information(&described),
            "the linker has left something out"
        );
        // Both have the same code, at the same addresses.
        let places = instructions(&described);
        assert_eq!(places, instructions(&bare));
        assert!(places.len() > 100);
        for at in places {
            assert_eq!(rule(&without, at), rule(&with, at), "kind {kind}: {at:x}");
        }
    }
}

/// The bytes of a file's `.eh_frame`.
fn size_of_information(path: &Path) -> u64 {
    let text = output(Command::new("objdump").arg("-hw").arg(path));
    let line = text.lines().find(|line| line.contains(" .eh_frame ")).expect("the section");
    u64::from_str_radix(line.split_whitespace().nth(2).expect("a size"), 16).expect("a number")
}

/// The addresses of a file's instructions.
fn instructions(path: &Path) -> Vec<u64> {
    let text = output(Command::new("objdump").arg("-d").arg(path));
    let address = |line: &str| u64::from_str_radix(line.trim_start().split_once(":\t")?.0, 16).ok();
    text.lines().filter_map(address).collect()
}

/// The functions of gcc's startup files have no information, and lie between some that have.
#[test]
fn functions_without_information_have_no_rule() {
    if !have("unwind: no rule", &["gcc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "gcc", &[source("plain.c")], "program", &["-O2"]);
    let table = table(&program);
    let symbols = output(Command::new("nm").arg(&program));
    for name in ["deregister_tm_clones", "register_tm_clones"] {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("it is linked in");
        let vaddr = u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("a number");
        for at in [0, 7, 20] {
            assert_eq!(rule(&table, vaddr + at), Rule::Unsupported, "{name} + {at}");
        }
    }
}

/// The C library has each kind of rule.
#[test]
fn the_c_library_is_known_whole() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own mappings");
    let line = maps.lines().find(|line| line.contains("/libc.so")).expect("tests are linked dynamically");
    let table = table(Path::new(&line[line.find('/').expect("a path")..]));
    let rules: Vec<Rule> = table.rows.iter().map(|row| Rule::unpack(row.rule)).collect();
    let has = |wanted: fn(&Rule) -> bool| rules.iter().any(wanted);
    assert!(has(|rule| *rule == Rule::Signal));
    assert!(has(|rule| *rule == Rule::End));
    assert!(has(|rule| matches!(rule, Rule::Return { .. })));
    assert!(has(|rule| matches!(rule, Rule::Frame { cfa: Cfa::Rbp(_), .. })));
    assert!(has(|rule| matches!(rule, Rule::Frame { rbp: Saved::Below(_), rbx: Saved::Below(_), .. })));
    assert!(rules.len() > 10_000, "{} rows", rules.len());
}

#[test]
fn a_file_for_another_machine_is_refused() {
    assert!(Table::read(b"").is_err());
    let mut header = [0; 64];
    header[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    // Machine 183 is AArch64; 64 bytes of header.
    (header[0x12], header[0x34], header[0x14]) = (183, 64, 1);
    let error = Table::read(&header).expect_err("the machine is another").to_string();
    assert!(error.contains("183"), "{error}");
}
