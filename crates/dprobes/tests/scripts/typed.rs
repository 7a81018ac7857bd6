//! Types and lines from debug information: in the program, in separate files, of several languages.

use super::support::{Scratch, dprobes, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for engine in ["auto", "trap"] {
        for options in [&["-O0", "-gdwarf-5"][..], &["-O2", "-gdwarf-4"], &["-O2", "-gdwarf-5", "-gz"]] {
            let name = format!("typed: arguments and structs, {} ({engine})", options.join(" "));
            trials.add(name, move || with(&["gcc"], |scratch| arguments(scratch, options, engine)));
        }
        trials.add(format!("typed: source lines ({engine})"), move || {
            with(&["gcc"], |scratch| lines(scratch, engine));
        });
        trials.add(format!("typed: Go ({engine})"), move || with(&["go"], |scratch| go(scratch, engine)));
        trials.add(format!("typed: Rust ({engine})"), move || with(&["rustc"], |it| rust(it, engine)));
        trials.add(format!("typed: C++ ({engine})"), move || with(&["g++"], |scratch| cpp(scratch, engine)));
    }
    trials.add("typed: separate debug files", || with(&["gcc", "objcopy", "strip"], separate));
    trials.add("typed: what cannot be read is refused with a reason", || with(&["gcc"], refused));
    trials.add("typed: two programs with different structs of one name", || with(&["gcc"], two_programs));
    trials.add("typed: copies that the compiler makes", || with(&["gcc", "nm"], copies));
    trials.add("typed: structs of other files of the program", || with(&["gcc"], several_files));
    trials.add("typed: -lv lists arguments with their types", || with(&["gcc"], listed));
    trials.add("typed: structs are as gdb shows them", || with(&["gcc", "gdb"], as_in_gdb));
}

fn with(tools: &[&str], test: impl FnOnce(&Scratch)) {
    if let Some(tool) = tools.iter().find(|tool| testing::find_program(tool).is_none()) {
        return testing::skipped(&format!("trace: types: {tool}"), tool);
    }
    test(&Scratch::new());
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdbool.h>
struct db { int id; const char *name; };
enum color { RED, GREEN = 5 };
typedef struct client { int fd; struct db *db; unsigned a : 3, b : 5; int c : 9; bool on : 1; union { int u1; long u2; };
    enum color color; char name[16]; double ratio; unsigned char grid[2][3]; struct { int x, y; } at; } client;
struct small { int a, b; }; struct wide { long a; int b; };
typedef unsigned long word;
#define KEEP __attribute__((noipa))
KEEP int serve(client *c, int n, const char *s, struct small sm, double d, unsigned char b, bool yes) {
    return printf("%d %s\n", c->fd + n + (int)d + sm.a + b + yes, s); }
KEEP struct wide more(struct wide w, word one, word two, word three, word four, word five, struct small on_stack, short last) {
    w.a += (long)(one + two + three + four + five) + on_stack.a; w.b = last; return w; }
KEEP struct db *find(struct db *db, enum color color) { return color == GREEN ? db : 0; }
KEEP double half(double d) { return d / 2; }
struct big { long a, b, c; };
KEEP struct big large(int n) { return (struct big){ n, n + 1, n + 2 }; }
KEEP signed char narrow(long l) { return (signed char)l; }
int main(void) {
    struct db db = { 7, "seven" };
    client c = { .fd = 3, .db = &db, .a = 5, .b = 17, .c = -3, .on = 1, .u2 = 9, .color = GREEN, .name = "hello", .ratio = 2.5, .grid = { { 1, 2, 3 }, { 4, 5, 6 } }, .at = { 8, 9 } };
    serve(&c, -4, "text", (struct small){ 1, 2 }, 2.5, 200, 1);
    struct wide w = more((struct wide){ 100, 5 }, 1, 2, 3, 4, 5, (struct small){ 11, 12 }, -6);
    return find(&db, GREEN) == 0 || half(w.a) < 1 || large(40).c != 42 || narrow(-2) != -2;
}
"#;

const SCRIPT: &str = r#"
uprobe:PROGRAM:serve {
    printf("%d %s %d %d\n", args.n, str(args.s), args.b, args.yes);
    printf("%d %d %s\n", args.c->fd, args.c->db->id, str(args.c->db->name));
    printf("%d %d %d %d\n", args.c->a, args.c->b, args.c->c, args.c->on);
    printf("%d %s %s %d %d\n", args.c->u1, args.c->color, args.c->name, args.c->grid[1][2], args.c->at.y);
    print(args.sm);
    print(*args.c->db);
    print((((struct client *)arg0)->fd, ((client *)arg0)->at.x, (word)args.n));
    print((sizeof(struct client), sizeof(client), offsetof(client, name), sizeof(client *), args.c->color == GREEN));
    print(args.c->at);
    let $c: client * = args.c;
    @colors[$c->color] = count();
    @sums[args.sm] = sum(args.n);
}
uprobe:PROGRAM:more { print(args); print((args.w.b, args.on_stack.b)); }
uretprobe:PROGRAM:more { print(retval); }
uprobe:PROGRAM:find { print(args.color); }
uretprobe:PROGRAM:find { print(retval->id); }
uretprobe:PROGRAM:large { print(retval); print(retval.c); }
uprobe:PROGRAM:large { print(args.n); }
uretprobe:PROGRAM:narrow { print(retval); }
"#;

const PRINTED: &str = "-4 text 200 1
3 7 seven
5 17 -3 1
9 GREEN hello 6 9
{ .a = 1, .b = 2 }
(3, 8, 18446744073709551612)
(80, 80, 36, 8, true)
{ .x = 8, .y = 9 }
{ .w = { .a = 100, .b = 5 }, .one = 1, .two = 2, .three = 3, .four = 4, .five = 5, .on_stack = { .a = 11, .b = 12 }, .last = -6 }
(5, 12)
{ .a = 126, .b = -6 }
GREEN
7
40
{ .a = 40, .b = 41, .c = 42 }
42
-2


@colors[GREEN]: 1
@sums[{ .a = 1, .b = 2 }]: -4
";

/// Compiles a program; the suffix of its source's name decides the language.
fn compile(scratch: &Scratch, source: &str, text: &str, output: &str, options: &[&str]) -> PathBuf {
    let source = scratch.file(source, text);
    let output = scratch.path().join(output);
    let is_cpp = source.extension().is_some_and(|suffix| suffix == "cc");
    let mut compiler = Command::new(if is_cpp { "g++" } else { "gcc" });
    testing::output(compiler.current_dir(scratch.path()).arg("-o").arg(&output).arg(&source).args(options));
    output
}

/// What a script on a program prints, without what the program prints.
fn printed(program: &Path, engine: &str, script: &str) -> String {
    let script = script.replace("PROGRAM", &program.to_string_lossy());
    let output = program.with_extension("printed");
    let mut command = dprobes();
    command
        .args(["trace", "--engine", engine, "-q", "-e", &script, "-o"])
        .arg(&output)
        .arg("--")
        .arg(program);
    let (status, _, stderr) = run(&mut command);
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{script}");
    let printed = std::fs::read_to_string(output).expect("it was written");
    format!("{}\n", printed.trim())
}

/// What is said of a script that is refused.
fn said(program: &Path, script: &str) -> String {
    let script = script.replace("PROGRAM", &program.to_string_lossy());
    let (status, _, stderr) = run(dprobes().args(["trace", "-d", "-e", &script]));
    assert_eq!(status.code(), Some(1), "{script}");
    stderr
}

/// The address of `args.c->db` differs from run to run: the line with it is left out.
fn without_addresses(text: &str) -> String {
    text.lines().filter(|line| !line.contains("0x")).map(|line| format!("{line}\n")).collect()
}

fn arguments(scratch: &Scratch, options: &[&str], engine: &str) {
    let program = compile(scratch, "typed.c", PROGRAM, "typed", options);
    assert_eq!(without_addresses(&printed(&program, engine, SCRIPT)), PRINTED);
}

fn separate(scratch: &Scratch) {
    for (name, options) in [("by-id", &["-g"][..]), ("without-id", &["-g", "-Wl,--build-id=none"])] {
        let program = compile(scratch, "typed.c", PROGRAM, name, options);
        let directory = scratch.path().join(".debug");
        std::fs::create_dir_all(&directory).expect("made");
        let debug = directory.join(format!("{name}.debug"));
        testing::output(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
        testing::output(Command::new("strip").arg("--strip-debug").arg(&program));
        let why = said(&program, "uprobe:PROGRAM:serve { print(args.n); }");
        assert!(why.contains("no debug information"), "{why}");
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&debug);
        testing::output(Command::new("objcopy").arg(link).arg(&program));
        assert_eq!(without_addresses(&printed(&program, "auto", SCRIPT)), PRINTED, "{name}");
        // A file of another build is not taken for it.
        let other = compile(scratch, "other.c", "int main(void) { return 0; }", "other", options);
        testing::output(Command::new("objcopy").arg("--only-keep-debug").arg(&other).arg(&debug));
        let why = said(&program, "uprobe:PROGRAM:serve { print(args.n); }");
        assert!(why.contains("no debug information"), "{why}");
    }
}

fn refused(scratch: &Scratch) {
    let program = compile(scratch, "typed.c", PROGRAM, "typed", &["-g", "-O2"]);
    let plain = compile(scratch, "typed.c", PROGRAM, "plain", &["-O2"]);
    for (script, expected) in [
        ("uprobe:PROGRAM:serve { print(args.d); }", "a register for floats"),
        ("uprobe:PROGRAM:serve { print(args); }", "a register for floats"),
        ("uprobe:PROGRAM:serve { print(args.nn); }", "no parameter `nn`"),
        ("uprobe:PROGRAM:serve { print(args.c->fdd); }", "struct `client` has no field `fdd`"),
        ("uprobe:PROGRAM:serve { print(args.c->ratio); }", "values of type `double`"),
        ("uretprobe:PROGRAM:half { print(retval); }", "a register for floats"),
        ("uprobe:PROGRAM:serve+4 { print(args.n); }", "not at the entry"),
        ("uprobe:PROGRAM:serve { print((klient *)arg0); }", "no type is called `klient`"),
        ("uprobe:PROGRAM:serve { print(GREENISH); }", "nothing is called `GREENISH`"),
        ("uprobe:PROGRAM:serve { print(((struct nobody *)arg0)->x); }", "struct `nobody` are not known"),
        (
            "uprobe:PROGRAM:typed.c:3 { print(1); }",
            "line 3 of typed.c has no code; the nearest line that has",
        ),
        ("uprobe:PROGRAM:typde.c:3 { print(1); }", "did you mean"),
    ] {
        let why = said(&program, script);
        assert!(why.contains(expected), "{script}: {why}");
    }
    for script in ["uprobe:PROGRAM:serve { print(args.n); }", "uprobe:PROGRAM:typed.c:20 { print(1); }"] {
        let why = said(&plain, script);
        assert!(why.contains("no debug information (compile with -g"), "{script}: {why}");
    }
}

fn two_programs(scratch: &Scratch) {
    let library = r#"struct thing { long before; int id; }; __attribute__((noipa)) int far(struct thing *thing) { return thing->id; }"#;
    let program = r#"#include <stdio.h>
        struct thing { int id; }; int far(void *); long other[2] = { 1, 22 };
        __attribute__((noipa)) int near(struct thing *thing) { return thing->id; }
        int main(void) { struct thing thing = { 11 }; return near(&thing) + far(other) == 0; }"#;
    let library = compile(scratch, "far.c", library, "libfar.so", &["-g", "-shared", "-fPIC"]);
    let directory = scratch.path().display().to_string();
    let rpath = format!("-Wl,-rpath,{directory}");
    let program = compile(scratch, "near.c", program, "near", &["-g", "-L", &directory, &rpath, "-lfar"]);
    let library = library.display();
    let script = format!(
        "uprobe:PROGRAM:near, uprobe:{library}:far {{ print((args.thing->id, ((struct thing *)arg0)->id, sizeof(struct thing))); }}"
    );
    assert_eq!(printed(&program, "auto", &script), "(11, 11, 4)\n(22, 22, 16)\n");
    let script =
        format!("uprobe:PROGRAM:near {{ @x = args.thing; }} uprobe:{library}:far {{ @x = args.thing; }}");
    let why = said(&program, &script);
    assert!(why.contains("does not fit map `@x`"), "{why}");
}

/// The compiler makes a copy of `work` in which `k` is always 7, and passes `n` in another register.
fn copies(scratch: &Scratch) {
    let text = r#"#include <stdio.h>
        struct s { int a, b; };
        static __attribute__((noinline)) int work(struct s *p, int unused, int k, int n) {
            int r = 0; for (int i = 0; i < n; i++) { r += p->b * k; printf("%d\n", r); } return r; }
        int main(int argc, char **argv) { struct s x = { 1, 2 }; return work(&x, argc, 7, argc + 2) + work(&x, 3, 7, 1) == 3; }"#;
    let program = compile(scratch, "copies.c", text, "copies", &["-g", "-O2"]);
    let symbols = testing::output(Command::new("nm").arg(&program));
    let copy = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .find(|name| name.starts_with("work.constprop"));
    let Some(copy) = copy else { return testing::skipped("trace: copies", "a gcc that makes copies") };
    let script = format!(
        "uprobe:PROGRAM:{copy} {{ print((args.n, args.p->b)); }} uretprobe:PROGRAM:{copy} {{ print(retval); }}"
    );
    assert_eq!(printed(&program, "auto", &script), "(3, 2)\n42\n(1, 2)\n14\n");
    for name in ["k", "unused"] {
        let why = said(&program, &format!("uprobe:PROGRAM:{copy} {{ print(args.{name}); }}"));
        assert!(why.contains("copy of the function"), "{why}");
    }
}

/// `struct hidden` is only declared where it is used; two files have a `struct node` of their own.
fn several_files(scratch: &Scratch) {
    let one = r#"struct node { char tag; int id; }; struct hidden { long before; int id; };
        struct hidden *make(void) { static struct hidden one = { 1, 33 }; return &one; }
        __attribute__((noipa)) int first(struct node *node) { return node->id; }
        int call_first(void) { struct node node = { 'a', 11 }; return first(&node); }"#;
    let other = r#"struct node { long before[2]; int id; }; struct hidden; struct hidden *make(void); int call_first(void); int third(void *);
        __attribute__((noipa)) int second(struct node *node, struct hidden *hidden) { return node->id + (hidden == 0); }
        int main(void) { struct node node = { { 1, 2 }, 22 }; return second(&node, make()) + call_first() + third(&node) == 0; }"#;
    let third = "__attribute__((noipa)) int third(void *p) { return p == 0; }";
    let one = scratch.file("one.c", one).display().to_string();
    let third = scratch.file("third.c", third).display().to_string();
    let program = compile(scratch, "other.c", other, "several", &["-g", "-O1", &one, &third]);
    let script =
        "uprobe:PROGRAM:second { print((((struct node *)arg0)->id, args.node->id, args.hidden->id)); }
        uprobe:PROGRAM:first { print((((struct node *)arg0)->id, args.node->id)); }
        uprobe:PROGRAM:third { print(sizeof(struct hidden)); }";
    assert_eq!(printed(&program, "auto", script), "(22, 22, 33)\n(11, 11)\n16\n");
    let why = said(&program, "uprobe:PROGRAM:third { print(((struct node *)arg0)->id); }");
    assert!(why.contains("the fields of struct `node` are not known"), "{why}");
    assert!(why.contains("several different ones"), "{why}");
}

const LINES: &str = "#include <stdio.h>
static inline __attribute__((always_inline)) int twice(int x)
{
    int doubled = x * 2;
    return doubled + printf(\"%d\\n\", x);
}

__attribute__((noipa)) int first(int x) { return twice(x); }
__attribute__((noipa)) int second(int x)
{
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += twice(i);
    return sum;
}
int main(void)
{
    return first(1) + second(3) == 0;
}
";

fn lines(scratch: &Scratch, engine: &str) {
    for level in ["-O0", "-O2"] {
        let program = compile(scratch, "lines.c", LINES, "lines", &["-g", level]);
        let script =
            "uprobe:PROGRAM:lines.c:5 { @inlined = count(); } uprobe:PROGRAM:lines.c:12 { @loop = count(); }
            uprobe:PROGRAM:lines.c:18 { @main = count(); }";
        let found = printed(&program, engine, script);
        assert!(found.contains("@inlined: 4\n") && found.contains("@main: 1\n"), "{level}: {found}");
        assert!(found.contains("@loop: 1\n"), "{level}: {found}");
        let path = scratch.path().join("lines.c");
        let script = format!("uprobe:PROGRAM:{}:18 {{ @ = count(); }}", path.display());
        assert!(printed(&program, engine, &script).contains("@: 1\n"));
    }
}

const GO: &str = r#"package main
import "fmt"
type Point struct { X int; Name string }
//go:noinline
func add(a int, b int32, s string, p *Point) int { return a + int(b) + len(s) + p.X }
//go:noinline
func (p *Point) Get(k []int, f float64, v Point, small int8) (int, error) { return k[0] + int(f) + v.X + int(small), nil }
func main() { p := &Point{3, "nm"}; fmt.Println(add(-1, 2, "hey", p)); fmt.Println(p.Get([]int{4, 5}, 2.5, Point{9, "q"}, -7)) }
"#;

fn go(scratch: &Scratch, engine: &str) {
    let source = scratch.file("typed.go", GO);
    let program = scratch.path().join("typed-go");
    let mut build = Command::new("go");
    build.current_dir(scratch.path()).env("GOCACHE", scratch.path().join("cache")).env("GO111MODULE", "off");
    testing::output(build.arg("build").arg("-o").arg(&program).arg(source));
    let script = r#"
        uprobe:PROGRAM:main.add { printf("%d %d %s %d %d\n", args.a, args.b, str(args.s.str, args.s.len), args.p->X, (int64)arg0); }
        uretprobe:PROGRAM:main.add { print(retval); }
        uprobe:PROGRAM:"main.(*Point).Get" { printf("%d %d %d %s %d\n", args.p->X, *(int64 *)args.k.array, args.v.X, str(args.v.Name.str, args.v.Name.len), args.small); }"#;
    assert_eq!(printed(&program, engine, script), "-1 2 hey 3 -1\n7\n3 4 9 q -7\n");
}

const CPP: &str = r#"
#include <cstdio>
#include <string>
namespace shop {
struct base { int kind = 4; };
class item : public base { public: int id; std::string label; item(int id) : id(id), label("apple") {}
    __attribute__((noipa)) int price(int count, const item &other) const { return count * id + other.id; } };
__attribute__((noipa)) int sell(item one, long count) { return one.id * (int)count; }
__attribute__((noipa)) int sell(int only) { return only; }
}
int main() { shop::item a(3), b(5); return a.price(2, b) + shop::sell(a, 7) + shop::sell(1) == 0; }
"#;

fn cpp(scratch: &Scratch, engine: &str) {
    for level in ["-O0", "-O2"] {
        let program = compile(scratch, "typed.cc", CPP, "typed-cc", &["-g", level]);
        let script = r#"
            uprobe:PROGRAM:cpp:"shop::item::price" { print((args.this->id, args.this->kind, args.count, args.other->id)); }
            uprobe:PROGRAM:cpp:"shop::sell(shop::item, long)" { print((args.one.id, args.count)); }
            uprobe:PROGRAM:cpp:"shop::sell(int)" { print(args.only); }
            uretprobe:PROGRAM:cpp:"shop::item::price" { print(retval); }"#;
        assert_eq!(printed(&program, engine, script), "(3, 4, 2, 5)\n11\n(3, 7)\n1\n", "{level}");
    }
}

const RUST: &str = r#"
mod shop {
    pub struct Item { pub id: u32, pub label: String }
    impl Item {
        #[inline(never)] pub fn price(&self, count: i64, name: &str) -> i64 {
            self.id as i64 * count + name.len() as i64 + self.label.len() as i64
        }
    }
    #[inline(never)] pub fn sell(item: &Item, flag: bool, list: &[u16], k: u8) -> u64 {
        item.id as u64 + flag as u64 + list.len() as u64 + k as u64
    }
    #[inline(never)] pub fn take(item: Item, k: u8) -> u64 { item.id as u64 + k as u64 + item.label.len() as u64 }
}
fn main() {
    let item = shop::Item { id: 7, label: std::env::args().next().unwrap_or_default() };
    let sum = item.price(-3, "hey") + shop::sell(&item, item.id > 3, &[1, 2, 3], 9) as i64;
    std::process::exit((sum as u64 + shop::take(item, 200) == 0) as i32);
}
"#;

fn rust(scratch: &Scratch, engine: &str) {
    let source = scratch.file("typed.rs", RUST);
    let program = scratch.path().join("typed-rust");
    let mut compiler = Command::new("rustc");
    compiler.args(["-g", "--edition", "2021", "-o"]).arg(&program).arg(source);
    testing::output(compiler.current_dir(scratch.path()));
    let script = r#"
        uprobe:PROGRAM:typed::shop::Item::price { printf("%d %d %s\n", args.self->id, args.count, str(args.name.data_ptr, args.name.length)); }
        uprobe:PROGRAM:typed::shop::sell { printf("%d %d %d %d\n", args.item->id, args.flag, args.list.length, args.k); }
        uretprobe:PROGRAM:typed::shop::sell { print(retval); }"#;
    assert_eq!(printed(&program, engine, script), "7 -3 hey\n7 1 3 9\n20\n");
    let why = said(&program, "uprobe:PROGRAM:typed::shop::take { print(args.k); }");
    assert!(why.contains("how Rust passes a parameter"), "{why}");
}

fn listed(scratch: &Scratch) {
    let program = compile(scratch, "typed.c", PROGRAM, "typed", &["-g", "-O2"]);
    let program = program.display().to_string();
    let list = |point: &str| {
        let point = point.replace("PROGRAM", &program);
        let (status, stdout, stderr) = run(dprobes().args(["trace", "-lv", &point]));
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{point}");
        stdout.replace(&program, "PROGRAM")
    };
    assert_eq!(
        list("uprobe:PROGRAM:serve"),
        "uprobe:PROGRAM:serve\n    client* c\n    int n\n    const char* s\n    struct small sm\n    double d\n    unsigned char b\n    _Bool yes\n"
    );
    assert_eq!(list("uprobe:PROGRAM:f*d"), "uprobe:PROGRAM:find\n    struct db* db\n    enum color color\n");
    assert_eq!(list("uretprobe:PROGRAM:find"), "uretprobe:PROGRAM:find\n    struct db* retval\n");
}

/// gdb tells where members are and how long they are; the script's `offsetof` and `sizeof` agree.
fn as_in_gdb(scratch: &Scratch) {
    let program = compile(scratch, "typed.c", PROGRAM, "typed", &["-g", "-O2"]);
    let members = ["fd", "db", "u1", "u2", "color", "name", "ratio", "grid", "at"];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for member in members {
        gdb.arg("-ex").arg(format!("printf \"%d\\n\", (long)&((struct client *)0)->{member}"));
    }
    gdb.arg("-ex").arg("printf \"%d\\n\", sizeof(struct client)").arg(&program);
    let expected = testing::output(&mut gdb);
    let offsets = members.map(|member| format!("print(offsetof(struct client, {member}));")).concat();
    let script = format!("uprobe:PROGRAM:serve {{ {offsets} print(sizeof(struct client)); }}");
    let found = printed(&program, "trap", &script);
    assert_eq!(found.lines().count(), 10, "{found}");
    assert_eq!(found, expected);
}
