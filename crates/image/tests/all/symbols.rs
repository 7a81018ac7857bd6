//! Compares symbols, names and headers with binutils.

use std::path::Path;
use std::process::Command;

use crate::common::{PLAIN, Scratch, have, have_m32, libc, libc_32, run};
use image::{Binding, FunctionKind, Image, Machine, NameKind};

/// Address, type letter and name of each code symbol that `nm` lists.
fn nm(path: &Path, options: &[&str]) -> Vec<(u64, char, String)> {
    let text = run(Command::new("nm").args(["--defined-only"]).args(options).arg(path));
    let code = text.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let kind = fields.next()?.chars().next()?;
        Some((address, kind, fields.next()?.to_owned()))
    });
    code.filter(|(_, kind, _)| "TtWwi".contains(*kind)).collect()
}

/// Every code symbol that nm lists must be found, by its name, at its address.
fn expect_all(path: &Path, options: &[&str]) -> usize {
    let image = Image::open(path).unwrap();
    assert!(image.problems().is_empty(), "{:?}", image.problems());
    let symbols = nm(path, options);
    for (address, kind, name) in &symbols {
        let base = name.split('@').next().unwrap();
        let here = |f: &&image::Function| f.vaddr == *address && f.name == base;
        let mut named = image.functions().iter().filter(here);
        // One definition can have two versions.
        let found = named.clone().find(|f| f.full_name() == *name).or_else(|| named.next());
        let Some(found) = found else {
            // A mark after the last byte of a section (`etext`) is not in the code.
            assert!(image.check_boundary(*address).is_err(), "{name} at {address:#x} is missing");
            continue;
        };
        assert_eq!(found.kind == FunctionKind::Indirect, *kind == 'i', "{name}");
        if "TW".contains(*kind) {
            assert_ne!(found.binding, Binding::Local, "{name}");
        }
        if name.contains('@') {
            assert_eq!(found.full_name(), *name);
            let lookup = image.lookup(name);
            assert_eq!(lookup.kind, NameKind::Exact);
            assert!(lookup.matches.iter().any(|f| f.vaddr == *address), "{name}");
        }
    }
    assert!(image.functions().windows(2).all(|pair| pair[0].vaddr <= pair[1].vaddr));
    symbols.len()
}

#[test]
fn the_c_library() {
    if !have("the_c_library", &["nm", "readelf"]) {
        return;
    }
    let path = libc();
    assert!(expect_all(&path, &["-D"]) > 1500);
    let image = Image::open(&path).unwrap();
    assert_eq!(image.soname(), Some("libc.so.6"));
    assert_eq!(image.machine(), Machine::X86_64);
    assert!(image.is_position_independent());
    let malloc = image.lookup("malloc");
    assert_eq!(malloc.matches.len(), 1, "{malloc:?}");
    let vaddr = malloc.matches[0].vaddr;
    let at = image.function_at(vaddr + 1).unwrap();
    assert_eq!(at.vaddr, vaddr);
    assert!(at.contains(vaddr + 1));
    assert_eq!(image.offset_of_address(vaddr).and_then(|o| image.address_of_offset(o)), Some(vaddr));
    let file = std::fs::read(&path).unwrap();
    let offset = image.offset_of_address(vaddr).unwrap() as usize;
    assert_eq!(image.text(vaddr, 64).as_deref(), Some(&file[offset..offset + 64]));

    let notes = run(Command::new("readelf").arg("-n").arg(&path));
    let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
    let ours: String = image.build_id().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(ours, build_id);

    assert!(
        image.nearest_names("mallco").contains(&"malloc".to_owned()),
        "{:?}",
        image.nearest_names("mallco")
    );
    assert!(image.nearest_names("").is_empty());
    assert!(image.lookup("MALLOC").matches.is_empty());
    assert!(image.lookup("").matches.is_empty());
}

#[test]
fn programs_and_the_c_library_of_32_bits() {
    if !have_m32("programs_and_the_c_library_of_32_bits") {
        return;
    }
    let scratch = Scratch::new();
    for (name, options, independent, interpreter) in [
        ("pie", &["-m32", "-fPIE", "-pie"][..], true, true),
        ("fixed", &["-m32", "-fno-PIE", "-no-pie"], false, true),
        ("static", &["-m32", "-static", "-no-pie"], false, false),
    ] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        assert!(expect_all(&program, &[]) > 10, "{name}");
        let image = Image::open(&program).unwrap();
        assert_eq!(image.machine(), Machine::I386);
        assert_eq!(image.is_position_independent(), independent, "{name}");
        assert_eq!(image.interpreter().is_some(), interpreter, "{name}");
        let twice = image.lookup("twice").matches[0];
        let stripped = Image::open(&scratch.strip(&program, &format!("{name}-stripped"), &[])).unwrap();
        assert_eq!(stripped.check_boundary(twice.vaddr), Ok(()));
        assert!(stripped.check_boundary(twice.vaddr + 2).is_err());
    }
    assert!(expect_all(&libc_32(), &["-D"]) > 1500);
    assert_eq!(Image::open(&libc_32()).unwrap().soname(), Some("libc.so.6"));
}

#[test]
fn programs() {
    if !have("programs", &["gcc", "nm", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, options, independent, interpreter) in [
        ("pie", &["-fPIE", "-pie"][..], true, true),
        ("fixed", &["-fno-PIE", "-no-pie", "-g0"], false, true),
        ("static", &["-static", "-no-pie"], false, false),
        ("static-pie", &["-static-pie"], true, false),
    ] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        assert!(expect_all(&program, &[]) > 10, "{name}");
        let image = Image::open(&program).unwrap();
        assert_eq!(image.is_position_independent(), independent, "{name}");
        assert_eq!(image.interpreter().is_some(), interpreter, "{name}");
        let twice = image.lookup("twice").matches[0];
        assert_eq!((twice.binding, twice.kind), (Binding::Local, FunctionKind::Function));
        assert_eq!(image.lookup("main").matches.len(), 1);

        let stripped = scratch.strip(&program, &format!("{name}-stripped"), &[]);
        let stripped = Image::open(&stripped).unwrap();
        assert!(stripped.lookup("twice").matches.is_empty());
        // The unwinding entries still have the functions' starts.
        assert_eq!(stripped.check_boundary(twice.vaddr), Ok(()));
        assert!(stripped.check_boundary(twice.vaddr + 2).is_err());
    }
}

#[test]
fn without_section_headers() {
    if !have("without_section_headers", &["gcc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    const SOURCE: &str =
        "int shared(int x) { return x * 7; }\nint another(int x) { return shared(x) + 1; }\n";
    for (name, style) in [("gnu", "-Wl,--hash-style=gnu"), ("old", "-Wl,--hash-style=sysv")] {
        let library = scratch.compile(
            "library.c",
            SOURCE,
            name,
            &["-O1", "-shared", "-fPIC", style, "-Wl,-soname,mine.so.1"],
        );
        let whole = Image::open(&library).unwrap();
        let mut bytes = std::fs::read(&library).unwrap();
        // e_shoff, and e_shnum and e_shstrndx: no section headers.
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        let bare = Image::parse(bytes, &library).unwrap();
        assert!(bare.problems().is_empty(), "{:?}", bare.problems());
        assert_eq!(bare.soname(), Some("mine.so.1"));
        assert_eq!(bare.build_id(), whole.build_id());
        for function in ["shared", "another"] {
            let vaddr = whole.lookup(function).matches[0].vaddr;
            assert_eq!(bare.lookup(function).matches[0].vaddr, vaddr, "{name}");
            assert_eq!(bare.check_boundary(vaddr), Ok(()), "{name}");
        }
        // lea 0x0(,%rdi,8),%eax is seven bytes long.
        assert!(bare.check_boundary(whole.lookup("shared").matches[0].vaddr + 1).is_err());
    }
}

const NAMESPACES: &str = r#"
#include <string>
namespace ns {
    __attribute__((noinline)) int f(int x) { return x + 1; }
    __attribute__((noinline)) int f(const char *s) { return s[0]; }
    struct Thing { int value; Thing(int v); ~Thing(); int operator+(int x) const; static int unique(); };
    Thing::Thing(int v) : value(v) {}
    Thing::~Thing() { value = 0; }
    int Thing::operator+(int x) const { return value + x; }
    int Thing::unique() { return 5; }
    namespace { __attribute__((noinline, used)) int hidden(long x) { return (int)x; } }
    template <typename T> __attribute__((noinline)) T largest(T a, T b) { return a < b ? b : a; }
    template int largest<int>(int, int);
    __attribute__((noinline)) std::string text() { return "x"; }
}
int main() { ns::Thing t(3); return ns::f(1) + ns::f("a") + (t + 2) + ns::hidden(3) + (int)ns::text().size(); }
"#;

#[test]
fn cpp_names() {
    if !have("cpp_names", &["g++", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("names.cc", NAMESPACES, "names", &["-O1"]);
    expect_all(&program, &[]);
    let image = Image::open(&program).unwrap();
    let one = |name: &str| {
        let lookup = image.lookup(name);
        let found: Vec<_> = lookup.matches.iter().map(|f| f.full_name()).collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        (lookup.kind, lookup.matches[0].name.clone())
    };
    assert_eq!(one("_ZN2ns1fEi"), (NameKind::Exact, "_ZN2ns1fEi".to_owned()));
    assert_eq!(one("ns::f(int)"), (NameKind::Demangled, "_ZN2ns1fEi".to_owned()));
    assert_eq!(one("ns::f(char const*)"), (NameKind::Demangled, "_ZN2ns1fEPKc".to_owned()));
    assert_eq!(one("ns::Thing::unique").0, NameKind::WithoutParameters);
    assert_eq!(one("ns::Thing::operator+").0, NameKind::WithoutParameters);
    assert_eq!(one("ns::Thing::operator+(int) const").0, NameKind::Demangled);
    assert_eq!(one("ns::(anonymous namespace)::hidden(long)").0, NameKind::Demangled);
    assert_eq!(one("ns::largest<int>(int, int)").0, NameKind::Demangled);
    assert_eq!(one("int ns::largest<int>(int, int)").0, NameKind::Demangled);
    assert_eq!(one("ns::largest<int>").0, NameKind::WithoutParameters);
    assert_eq!(one("ns::Thing::~Thing()").0, NameKind::Demangled);
    assert_eq!(one("ns::Thing::Thing(int)").0, NameKind::Demangled);
    assert_eq!(one("ns::text[abi:cxx11]()").0, NameKind::Demangled);

    // Two overloads: the caller can refuse the name and list both.
    let both = image.lookup("ns::f");
    let names: Vec<_> = both.matches.iter().filter_map(|f| f.demangled()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"ns::f(int)".to_owned()) && names.contains(&"ns::f(char const*)".to_owned()));
    assert!(image.lookup("f").matches.is_empty());
    assert!(image.nearest_names("ns::unqiue").contains(&"ns::Thing::unique()".to_owned()));
}

/// A function of the test program itself.
#[inline(never)]
fn a_rust_function_to_find(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

#[test]
fn rust_names() {
    assert_eq!(a_rust_function_to_find(1), 2);
    let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
    let lookup = image.lookup("all::symbols::a_rust_function_to_find");
    assert_eq!(lookup.kind, NameKind::Demangled);
    assert_eq!(lookup.matches.len(), 1, "{:?}", lookup.matches);
    let found = lookup.matches[0];
    assert!(found.name.starts_with("_ZN") || found.name.starts_with("_R"), "{}", found.name);
    assert_eq!(image.lookup(&found.name).matches[0].vaddr, found.vaddr);
    assert_eq!(found.demangled().as_deref(), Some("all::symbols::a_rust_function_to_find"));
    let near = image.nearest_names("all::symbols::a_rust_funtion_to_find");
    assert_eq!(near.first().map(String::as_str), Some("all::symbols::a_rust_function_to_find"), "{near:?}");
}

const VERSIONED: &str = r#"
int old_value(void) { return 1; }
int new_value(void) { return 2; }
int only_old(void) { return 3; }
__asm__(".symver old_value, value@V_1");
__asm__(".symver new_value, value@@V_2");
__asm__(".symver only_old, gone@V_1");
static int chosen(void) { return 4; }
static int (*choose(void))(void) { return chosen; }
int picked(void) __attribute__((ifunc("choose")));
"#;

#[test]
fn versions_and_indirect_functions() {
    if !have("versions_and_indirect_functions", &["gcc", "nm", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = scratch.file("versions.map", "V_1 { global: value; gone; local: old_value; new_value; only_old; };\nV_2 { global: value; picked; } V_1;\n");
    let script = format!("-Wl,--version-script={}", script.display());
    let options = ["-shared", "-fPIC", "-Wl,-soname,libversioned.so.2", &script];
    let library = scratch.compile("versioned.c", VERSIONED, "libversioned.so", &options);
    let stripped = scratch.strip(&library, "stripped.so", &[]);
    for path in [&library, &stripped] {
        expect_all(path, &["-D"]);
        let image = Image::open(path).unwrap();
        let names = |name: &str| -> Vec<String> {
            image.lookup(name).matches.iter().map(|f| f.full_name()).collect()
        };
        // A bare name means the version that a linker would pick.
        assert_eq!(names("value"), ["value@@V_2"]);
        assert_eq!(names("value@V_1"), ["value@V_1"]);
        assert_eq!(names("value@@V_2"), ["value@@V_2"]);
        assert_eq!(names("value@V_2"), ["value@@V_2"]);
        assert!(names("value@@V_1").is_empty());
        assert!(names("value@V_3").is_empty());
        // Without a default version, the hidden one is the only one.
        assert_eq!(names("gone"), ["gone@V_1"]);
        assert_eq!(image.lookup("picked").matches[0].kind, FunctionKind::Indirect);
        assert_eq!(image.soname(), Some("libversioned.so.2"));
    }
}

#[test]
fn compressed_symbols() {
    if !have("compressed_symbols", &["gcc", "objcopy", "xz", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("plain.c", PLAIN, "whole", &[]);
    // As Fedora's find-debuginfo does: a file of debug information, packed into the stripped
    // program.
    let small = scratch.path().join("small");
    run(Command::new("objcopy")
        .args(["--only-keep-debug", "--remove-section", ".comment"])
        .arg(&program)
        .arg(&small));
    run(Command::new("xz").arg("-k").arg(&small));
    let stripped = scratch.strip(&program, "stripped", &[]);
    let packed = scratch.path().join("packed");
    let section = format!(".gnu_debugdata={}", scratch.path().join("small.xz").display());
    run(Command::new("objcopy").args(["--add-section", &section]).arg(&stripped).arg(&packed));
    let (whole, packed) = (Image::open(&program).unwrap(), Image::open(&packed).unwrap());
    assert!(packed.problems().is_empty(), "{:?}", packed.problems());
    let vaddr = whole.lookup("twice").matches[0].vaddr;
    assert_eq!(packed.lookup("twice").matches[0].vaddr, vaddr);

    // If the section does not unpack, the program lacks those names, and the image reports it.
    let broken = scratch.file("broken", "no xz");
    let section = format!(".gnu_debugdata={}", broken.display());
    let output = scratch.path().join("with-broken");
    run(Command::new("objcopy").args(["--add-section", &section]).arg(&stripped).arg(&output));
    let image = Image::open(&output).unwrap();
    assert!(image.lookup("twice").matches.is_empty());
    let problems: Vec<String> = image.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("with-broken") && problems[0].contains(".gnu_debugdata"), "{problems:?}");
}

const RESTARTABLE: &str = r#"
        .section __rseq_cs, "aw"
        .balign 32
        .long 0, 0
        .quad 1f, 2f - 1f, 3f
        .text
        .globl main
        .type main, @function
main:   xor %eax, %eax
1:      inc %eax
2:      ret
        .long 0x53053053
3:      jmp 1b
        .size main, . - main
        .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn restartable_sequences() {
    if !have("restartable_sequences", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("restartable.S", RESTARTABLE, "restartable", &["-no-pie"]);
    let image = Image::open(&program).unwrap();
    let main = image.lookup("main").matches[0].vaddr;
    // `xor %eax, %eax` is followed by `inc %eax`, two bytes each.
    let expected = main + 2..main + 4;
    assert_eq!(image.restartable_sequences(), std::slice::from_ref(&expected));
    let library = scratch.compile("restartable.S", RESTARTABLE, "restartable.so", &["-shared"]);
    let library = Image::open(&library).unwrap();
    let main = library.lookup("main").matches[0].vaddr;
    let expected_there = main + 2..main + 4;
    // The dynamic linker writes the start into the descriptor.
    assert_eq!(library.restartable_sequences(), std::slice::from_ref(&expected_there));

    // The section begins before its segment: the descriptors there cannot be read, the one in the
    // segment can.
    let mut bytes = std::fs::read(&program).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (headers, count) = (word(&bytes, 0x28) as usize, usize::from(bytes[0x3c]));
    let is_descriptors =
        |header: &usize| image.section_name(word(&bytes, header + 0x10)) == Some("__rseq_cs");
    let header = (0..count).map(|number| headers + number * 64).find(is_descriptors).unwrap();
    let (start, size) = (word(&bytes, header + 0x10), word(&bytes, header + 0x20));
    let segment = image.segments().iter().rfind(|segment| segment.vaddr <= start).unwrap();
    let more = (start - segment.vaddr).next_multiple_of(32) + 32;
    assert_eq!((size, image.offset_of_address(start - more)), (32, None));
    bytes[header + 0x10..][..8].copy_from_slice(&(start - more).to_le_bytes());
    bytes[header + 0x20..][..8].copy_from_slice(&(size + more).to_le_bytes());
    let image = Image::parse(bytes, &program).unwrap();
    assert!(image.restartable_sequences().contains(&expected), "{:x?}", image.restartable_sequences());

    // An unreadable page of a process does not hide other descriptors either.
    let descriptor = |start: u64| {
        let mut bytes = [0; 32];
        bytes[8..16].copy_from_slice(&start.to_le_bytes());
        bytes[16] = 5;
        bytes
    };
    let read = image.restartable_sequences_by(|place| (place == start).then(|| descriptor(0x7000)));
    assert_eq!(read.len(), 1);
    assert_eq!((read[0].start, read[0].end), (0x7000, 0x7005));
    let none: Vec<std::ops::Range<u64>> = image.restartable_sequences_by(|_| None);
    assert_eq!(none, []);
}

#[test]
fn what_is_no_elf_file() {
    let scratch = Scratch::new();
    let script = scratch.file("script", "#!/bin/sh\n");
    let error = Image::open(&script).unwrap_err().to_string();
    assert!(error.contains("script") && error.contains("not an ELF file"), "{error}");
    let empty = Image::open(&scratch.file("empty", "")).unwrap_err().to_string();
    assert!(empty.contains("the file is empty"), "{empty}");
    let missing = Image::open(&scratch.path().join("missing")).unwrap_err().to_string();
    assert!(missing.contains("missing") && missing.contains("open"), "{missing}");
    let directory = Image::open(scratch.path()).unwrap_err().to_string();
    assert!(directory.contains("not a regular file"), "{directory}");
}
