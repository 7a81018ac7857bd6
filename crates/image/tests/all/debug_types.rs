//! Functions' parameters and types, as debug information tells them.

use std::process::Command;

use crate::common::{Scratch, have, run};
use image::{DebugTypes, FunctionType, Image, NoTypes, Passed, Piece, Shape, TypeName};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stddef.h>
#include <stdbool.h>
typedef unsigned long word;
struct db { int id; const char *name; };
enum color { RED, GREEN = 5, BLUE = 4000000000u }; enum tiny { NONE = -1, SOME } __attribute__((packed));
typedef struct client { char tag; struct db *db; unsigned a : 3, b : 5; int c : 17; _Bool on : 1; union { int number; struct { char low, high; }; };
    enum color color; enum tiny tiny; char name[16]; double ratio; int (*call)(int, const char *); unsigned char grid[2][3]; struct { int x, y; } at; short rest[]; } client;
struct __attribute__((packed)) tight { char one; long two; unsigned three : 7, four : 30; };
struct pair { int a, b; }; struct wide { long a, b; }; struct big { long a, b, c; }; struct mixed { double d; long l; }; struct nothing { };
#define KEEP __attribute__((noipa))
KEEP int plain(client *c, int n, const char *s, word w, unsigned char b, bool yes, long seventh, short eighth) { return n + (int)w + b + yes + (int)seventh + eighth + s[0] + c->tag; }
KEEP struct pair structs(struct pair p, struct wide w, struct big g, struct wide on_stack, int last) { p.a += last + (int)w.a + (int)g.b + (int)on_stack.a; return p; }
KEEP struct big large(int n, double d, float f, struct mixed m, long l) { struct big g = { n + (long)d, (long)f, m.l + l }; return g; }
KEEP long double extended(int n, long double e, int m, __int128 i, struct nothing none, int k) { return n + e + m + (long)i + k; }
KEEP int many(int n, ...) { return n; }
KEEP void seven(int a, int b, int c, int d, int e, char f, __int128 i, char g, long double x, int h) { printf("%d", a + b + c + d + e + f + (int)i + g + (int)x + h); }
struct tight keep; enum color kept; struct db *dbs;
#define TELL(type, member) printf("%s %s %zu\n", #type, #member, offsetof(struct type, member))
int main(void)
{
    TELL(client, tag); TELL(client, db); TELL(client, number); TELL(client, low); TELL(client, high); TELL(client, color); TELL(client, tiny);
    TELL(client, name); TELL(client, ratio); TELL(client, call); TELL(client, grid); TELL(client, at); TELL(client, rest);
    TELL(db, id); TELL(db, name); TELL(tight, one); TELL(tight, two); TELL(mixed, l);
    printf("client - %zu\ntight - %zu\ndb - %zu\n", sizeof(client), sizeof(struct tight), sizeof(struct db));
    return many(0);
}
"#;

const FORMS: [&[&str]; 5] = [
    &["-gdwarf-5", "-O0"],
    &["-gdwarf-5", "-O2"],
    &["-gdwarf-4", "-O2"],
    &["-gdwarf-3", "-O1"],
    &["-gdwarf-5", "-O2", "-gz", "-fdebug-types-section"],
];

fn function(image: &Image, types: &DebugTypes, name: &str) -> Result<FunctionType, NoTypes> {
    let found = image.lookup(name).matches;
    types.function(found.first().expect("it is there").vaddr, &[name])
}

fn place(passed: &Passed) -> String {
    match passed {
        Passed::Registers(pieces) => {
            let shown = |Piece { register, offset, bytes }: &Piece| format!("{register}@{offset}+{bytes}");
            pieces.iter().map(shown).collect::<Vec<_>>().join(" ")
        }
        Passed::Stack(offset) => format!("rsp+{offset}"),
        Passed::Pointed(register) => format!("[{register}]"),
        Passed::Nowhere(_) => "-".to_owned(),
    }
}

fn told(types: &DebugTypes, function: &FunctionType) -> String {
    let parameters = function.parameters.iter().map(|each| {
        let name = each.name.as_deref().unwrap_or("?");
        format!("{} {name}: {}", types.text(Some(each.of)), place(&each.passed))
    });
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    let rest = if function.is_variadic { ", ..." } else { "" };
    format!("{}: {} ({parameters}{rest})", types.text(function.result), place(&function.returned))
}

#[test]
fn parameters_are_where_the_calling_convention_passes_them() {
    if !have("debug_types", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for (number, options) in FORMS.iter().enumerate() {
        let image = scratch.image("program.c", PROGRAM, &format!("program{number}"), options);
        let types = match DebugTypes::read(&image) {
            Ok(types) => types,
            Err(error) => panic!("{options:?}: {error}"),
        };
        let expected = [
            (
                "plain",
                "int: rax@0+4 (client* c: rdi@0+8, int n: rsi@0+4, const char* s: rdx@0+8, word w: rcx@0+8, unsigned char b: r8@0+1, _Bool yes: r9@0+1, long int seventh: rsp+8, short int eighth: rsp+16)",
            ),
            (
                "structs",
                "struct pair: rax@0+8 (struct pair p: rdi@0+8, struct wide w: rsi@0+8 rdx@8+8, struct big g: rsp+8, struct wide on_stack: rcx@0+8 r8@8+8, int last: r9@0+4)",
            ),
            (
                "large",
                "struct big: [rax] (int n: rsi@0+4, double d: xmm0@0+8, float f: xmm1@0+4, struct mixed m: xmm2@0+8 rdx@8+8, long int l: rcx@0+8)",
            ),
            (
                "extended",
                "long double: - (int n: rdi@0+4, long double e: rsp+8, int m: rsi@0+4, __int128 i: rdx@0+8 rcx@8+8, struct nothing none: -, int k: r8@0+4)",
            ),
            ("many", "int: rax@0+4 (int n: rdi@0+4, ...)"),
            (
                "seven",
                "void: - (int a: rdi@0+4, int b: rsi@0+4, int c: rdx@0+4, int d: rcx@0+4, int e: r8@0+4, char f: r9@0+1, __int128 i: rsp+8, char g: rsp+24, long double x: rsp+40, int h: rsp+56)",
            ),
        ];
        for (name, expected) in expected {
            let found = function(&image, &types, name);
            let found = found.unwrap_or_else(|error| panic!("{options:?}: {name}: {error}"));
            assert_eq!(told(&types, &found), expected, "{options:?}: {name}");
        }
    }
}

#[test]
fn members_are_where_the_program_says() {
    if !have("debug_types", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for (number, options) in FORMS.iter().enumerate() {
        let path = scratch.compile("program.c", PROGRAM, &format!("program{number}"), options);
        let image = Image::open(&path).expect("it is an ELF file");
        let types = DebugTypes::read(&image).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let output = Command::new(&path).output().expect("it runs").stdout;
        let output = String::from_utf8(output).expect("it is text");
        assert_eq!(output.lines().count(), 21);
        for line in output.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [record, member, number] = words[..] else { panic!("{line}") };
            let number: u64 = number.parse().expect("a number");
            let found = types.named(TypeName::Struct, record, &[]).expect("it is read");
            let [id] = found[..] else { panic!("{options:?}: {record}: {found:?}") };
            let found = types.record(id).expect("it is defined");
            let member = found.members.iter().find(|each| each.name == member);
            assert_eq!(member.map_or(found.size, |member| member.offset), number, "{options:?}: {line}");
        }
    }
}

#[test]
fn bits_enums_and_names_are_told() {
    if !have("debug_types", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for (number, options) in FORMS.iter().enumerate() {
        let image = scratch.image("program.c", PROGRAM, &format!("program{number}"), options);
        let types = DebugTypes::read(&image).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let one = |kind, name: &str| match types.named(kind, name, &[]).expect("it is read")[..] {
            [id] => id,
            ref other => panic!("{options:?}: {name}: {other:?}"),
        };
        let bits = |record: &str, member: &str| {
            let record = types.record(one(TypeName::Struct, record)).expect("it is defined");
            let found = record.members.iter().find(|each| each.name == member).and_then(|each| each.bits);
            found.map(|bits| (bits.first, bits.count))
        };
        let fields = ["a", "b", "c", "on"].map(|name| bits("client", name).expect("a bit field"));
        assert_eq!(fields, [(128, 3), (131, 5), (136, 17), (153, 1)], "{options:?}");
        assert_eq!([bits("tight", "three"), bits("tight", "four")], [Some((72, 7)), Some((79, 30))]);
        assert_eq!(bits("client", "tag"), None);
        let client = one(TypeName::Plain, "client");
        let Shape::Record { name, .. } = types.shape(client).expect("it is read") else { panic!() };
        assert_eq!((name.as_deref(), types.text(Some(client))), (Some("client"), "client".to_owned()));
        let word = types.shape(one(TypeName::Plain, "word"));
        assert_eq!(word, Ok(Shape::Integer { bytes: 8, signed: false }));
        let record = types.record(one(TypeName::Struct, "client")).expect("it is defined");
        let text = |member: &str| {
            let found = record.members.iter().find(|each| each.name == member).expect("a member");
            types.text(Some(found.of))
        };
        assert_eq!(text("call"), "int (*)(int, const char*)");
        assert_eq!(text("grid"), "unsigned char[2][3]");
        assert_eq!(text("rest"), "short int[]");
        let color = one(TypeName::Enum, "color");
        let blue = ("BLUE".to_owned(), 4_000_000_000);
        assert_eq!(types.enumerators(color).expect("it is read").last(), Some(&blue), "{options:?}");
        let green = types.constant("GREEN", &[]).expect("it is read");
        assert_eq!(green, [(color, 5)], "{options:?}");
        assert_eq!(types.constant("NONE", &[]).expect("it is read").first().map(|one| one.1), Some(-1));
        let tiny = types.shape(one(TypeName::Enum, "tiny"));
        assert!(matches!(tiny, Ok(Shape::Enumeration { bytes: 1, .. })), "{tiny:?}");
        assert_eq!(types.named(TypeName::Struct, "nobody", &[]), Ok(Vec::new()));
        assert_eq!(types.constant("NOBODY", &[]), Ok(Vec::new()));
    }
}

/// Asks everything of a module that a script could ask.
fn ask_everything(image: &Image) -> usize {
    let Ok(types) = DebugTypes::read(image) else { return 0 };
    let mut answers = 0;
    let mut ids = std::collections::BTreeSet::new();
    for function in image.functions().iter().take(40) {
        let Ok(found) = types.function(function.vaddr, &[&function.name]) else { continue };
        ids.extend(found.parameters.iter().map(|parameter| parameter.of).chain(found.result));
        answers += 1;
    }
    for (kind, name) in [
        (TypeName::Struct, "client"),
        (TypeName::Struct, "tight"),
        (TypeName::Plain, "word"),
        (TypeName::Enum, "color"),
        (TypeName::Union, "nobody"),
    ] {
        ids.extend(types.named(kind, name, &[]).unwrap_or_default());
    }
    for id in ids {
        let _ = (
            types.shape(id),
            types.size(id),
            types.text(Some(id)),
            types.fingerprint(id),
            types.enumerators(id),
        );
        for member in types.record(id).map(|record| record.members).unwrap_or_default() {
            let _ = (types.shape(member.of), types.size(member.of), types.record(member.of));
            answers += 1;
        }
    }
    let _ = types.constant("GREEN", &[]);
    for line in [1, 12, 20, 1 << 40] {
        let _ = types.line("program.c", line);
    }
    answers
}

/// The places of the sections with debug information in a file.
fn debug_sections(path: &std::path::Path) -> Vec<std::ops::Range<usize>> {
    let listed = run(Command::new("readelf").arg("-SW").arg(path));
    let sections = listed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_once(']')?.1.split_whitespace().collect();
        let number = |index: usize| usize::from_str_radix(words.get(index)?, 16).ok();
        words.first()?.starts_with(".debug_").then(|| Some(number(3)?..number(3)? + number(4)?))?
    });
    sections.collect()
}

#[test]
fn damaged_types_are_errors_and_no_panic() {
    if !have("debug_types", &["gcc", "readelf"]) {
        return;
    }
    let scratch = Scratch::new();
    for (number, options) in FORMS[..4].iter().enumerate() {
        let mut options = options.to_vec();
        options.push("-Wl,--build-id=none");
        let path = scratch.compile("program.c", PROGRAM, &format!("program{number}"), &options);
        let whole = Image::open(&path).expect("it is an ELF file");
        assert!(ask_everything(&whole) > 20, "{options:?}");
        let bytes = std::fs::read(&path).expect("it was built");
        let sections = debug_sections(&path);
        assert!(sections.len() > 3, "{sections:?}");
        let damaged = scratch.path().join("damaged");
        let mut state = 0x9e37_79b9_7f4a_7c15u64 + number as u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        };
        for _ in 0..testing::rounds(150, 20_000) {
            let mut copy = bytes.clone();
            for _ in 0..1 + random(12) {
                let section = &sections[random(sections.len())];
                let place = section.start + random(section.len());
                // Small numbers are codes of abbreviations, forms and lengths.
                copy[place] = if random(2) == 0 { random(64) as u8 } else { random(256) as u8 };
            }
            std::fs::write(&damaged, &copy).expect("it can be written");
            let started = std::time::Instant::now();
            if let Ok(image) = Image::open(&damaged) {
                ask_everything(&image);
            }
            assert!(started.elapsed().as_secs() < 60, "it takes too long");
        }
    }
}

/// Types that are small, and have very many parts.
#[test]
fn types_in_types_take_no_time_without_bound() {
    if !have("debug_types", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut text = String::from("struct s0 { };\n");
    for level in 1..9 {
        let inner = level - 1;
        text.push_str(&format!("struct s{level} {{ struct s{inner} m{level}[16]; struct s{inner}; }};\n"));
    }
    text.push_str("__attribute__((noipa)) int f(struct s8 s, int n) { return n; }\n");
    text.push_str("int main(void) { struct s8 s; return f(s, 0); }\n");
    let image = scratch.image("deep.c", &text, "deep", &["-g", "-fms-extensions", "-w"]);
    let types = DebugTypes::read(&image).expect("it has debug information");
    let started = std::time::Instant::now();
    let found = types.named(TypeName::Struct, "s8", &[]).expect("it is read");
    let _ = (function(&image, &types, "f"), types.record(found[0]), types.fingerprint(found[0]));
    assert!(started.elapsed().as_secs() < 60, "it takes {:?}", started.elapsed());
}

const LINES: &str = "static volatile int sink; static inline __attribute__((always_inline)) int twice(int x)
{
    return sink = x * 2 + 1;
}

__attribute__((noipa)) int first(int x) { return twice(x); }
__attribute__((noipa)) int second(int x) { return twice(x) + twice(x * x); }
int main(void) { return first(1) + second(3) == 0; }
";

#[test]
fn a_line_has_an_address_in_each_place_where_it_is() {
    if !have("debug_types", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for options in [["-g", "-O0"], ["-gdwarf-4", "-O2"], ["-gdwarf-5", "-O2"]] {
        let image = scratch.image("lines.c", LINES, "lines", &options);
        let types = DebugTypes::read(&image).expect("it has debug information");
        let code = types.line("lines.c", 3).expect("it is read");
        assert_eq!(code.addresses.len(), 3, "{options:?}: {code:?}");
        let named = |vaddr: &u64| image.function_at(*vaddr).map(|function| function.name.clone());
        let mut names: Vec<String> = code.addresses.iter().filter_map(named).collect();
        names.sort();
        assert_eq!(names, ["first", "second", "second"], "{options:?}");
        let empty = types.line("lines.c", 5).expect("it is read");
        assert_eq!((empty.addresses.len(), empty.nearest[1]), (0, Some(6)), "{options:?}: {empty:?}");
        assert!(empty.nearest[0].is_some_and(|line| line < 5), "{options:?}: {empty:?}");
        let path = scratch.path().join("lines.c").display().to_string();
        assert_eq!(types.line(&path, 3), Ok(code));
        let other = types.line("line.c", 3).expect("it is read");
        assert!(!other.has_file && other.similar.iter().any(|path| path.ends_with("lines.c")), "{other:?}");
    }
}

/// What questions of a large module take: `DPROBES_LARGE=FILE cargo test -- --ignored measure`.
#[test]
#[ignore = "a measurement"]
fn measure() {
    let path = std::env::var_os("DPROBES_LARGE").expect("DPROBES_LARGE names a module");
    let image = Image::open(path.as_ref()).expect("it is an ELF file");
    let time = |what: &str, ask: &mut dyn FnMut() -> String| {
        let started = std::time::Instant::now();
        let answer = ask();
        println!("{what}: {:?}: {answer}", started.elapsed());
    };
    let mut read = None;
    time("read", &mut || {
        read = Some(DebugTypes::read(&image).expect("it has debug information"));
        String::new()
    });
    let types = read.expect("it was read");
    let name = std::env::var("DPROBES_FUNCTION").unwrap_or_else(|_| "main".to_owned());
    let functions = image.select_named(&name);
    let vaddr = functions.first().expect("it is there").vaddr;
    time("function", &mut || format!("{:?}", types.function(vaddr, &[]).map(|it| told(&types, &it))));
    time("again", &mut || format!("{}", types.function(vaddr, &[]).is_ok()));
    time("a name near", &mut || format!("{:?}", types.named(TypeName::Struct, "client", &[vaddr])));
    time("a name anywhere", &mut || format!("{:?}", types.named(TypeName::Struct, "client", &[])));
    time("no such name", &mut || format!("{:?}", types.named(TypeName::Struct, "nobody_", &[])));
    time("no such constant", &mut || format!("{:?}", types.constant("NOBODY_", &[])));
    time("a line", &mut || format!("{:?}", types.line("nobody.c", 10).map(|it| it.has_file)));
}
