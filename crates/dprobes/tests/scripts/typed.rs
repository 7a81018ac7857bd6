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
        trials.add(format!("typed: inlined functions in stacks ({engine})"), move || {
            with(&["gcc", "addr2line"], |scratch| inlined(scratch, engine));
        });
    }
    trials.add("typed: separate debug files", || with(&["gcc", "objcopy", "strip"], separate));
    trials.add("typed: what cannot be read is refused with a reason", || with(&["gcc"], refused));
    trials.add("typed: two programs with different structs of one name", || with(&["gcc"], two_programs));
    trials.add("typed: copies that the compiler makes", || with(&["gcc", "nm"], copies));
    trials.add("typed: structs of other files of the program", || with(&["gcc"], several_files));
    trials.add("typed: -lv lists arguments with their types", || with(&["gcc"], listed));
    trials.add("typed: structs are as gdb shows them", || with(&["gcc", "gdb"], as_in_gdb));
}

pub(super) fn with(tools: &[&str], test: impl FnOnce(&Scratch)) {
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
KEEP float third(long before, float f) { return f / 3; }
struct mixed { double d; long l; };
KEEP struct mixed mixed(double first, struct mixed m) { m.d += first; m.l *= 2; return m; }
struct big { long a, b, c; };
KEEP struct big large(int n) { return (struct big){ n, n + 1, n + 2 }; }
KEEP signed char narrow(long l) { return (signed char)l; }
int main(void) {
    struct db db = { 7, "seven" };
    client c = { .fd = 3, .db = &db, .a = 5, .b = 17, .c = -3, .on = 1, .u2 = 9, .color = GREEN, .name = "hello", .ratio = 2.5, .grid = { { 1, 2, 3 }, { 4, 5, 6 } }, .at = { 8, 9 } };
    serve(&c, -4, "text", (struct small){ 1, 2 }, 2.5, 200, 1);
    struct wide w = more((struct wide){ 100, 5 }, 1, 2, 3, 4, 5, (struct small){ 11, 12 }, -6);
    return find(&db, GREEN) == 0 || half(w.a) < 1 || large(40).c != 42 || narrow(-2) != -2 || third(1, -0.3f) > 0 || mixed(0.5, (struct mixed){ 1e20, 21 }).l != 42;
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
    printf("%g %.3f %d\n", args.d, args.c->ratio, (int64)args.d);
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
uprobe:PROGRAM:half { printf("%e %d\n", args.d, (int64)args.d); print((args, reg("xmm0"))); }
uretprobe:PROGRAM:half { $half = retval; print($half); @halves[$half] = sum((int64)$half); }
uprobe:PROGRAM:third { printf("%g %.9g %d\n", args.f, args.f, (int8)args.f); }
uretprobe:PROGRAM:third { print(retval); }
uprobe:PROGRAM:mixed { print(args.m); printf("%g %d\n", args.m.d, args.m.l); }
uretprobe:PROGRAM:mixed { print(retval); }
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
2.5 2.500 2
{ .w = { .a = 100, .b = 5 }, .one = 1, .two = 2, .three = 3, .four = 4, .five = 5, .on_stack = { .a = 11, .b = 12 }, .last = -6 }
(5, 12)
{ .a = 126, .b = -6 }
GREEN
7
1.260000e+02 126
({ .d = 126 }, 126)
63
40
{ .a = 40, .b = 41, .c = 42 }
42
-2
-0.3 -0.300000012 0
-0.1
{ .d = 100000000000000000000, .l = 21 }
1e+20 21
{ .d = 100000000000000000000, .l = 42 }


@colors[GREEN]: 1
@halves[63]: 63
@sums[{ .a = 1, .b = 2 }]: -4
";

/// Compiles a program; the suffix of its source's name decides the language.
pub(super) fn compile(
    scratch: &Scratch,
    source: &str,
    text: &str,
    output: &str,
    options: &[&str],
) -> PathBuf {
    let source = scratch.file(source, text);
    let output = scratch.path().join(output);
    let is_cpp = source.extension().is_some_and(|suffix| suffix == "cc");
    let mut compiler = Command::new(if is_cpp { "g++" } else { "gcc" });
    testing::output(compiler.current_dir(scratch.path()).arg("-o").arg(&output).arg(&source).args(options));
    output
}

/// What a script on a program prints, without what the program prints.
pub(super) fn printed(program: &Path, engine: &str, script: &str) -> String {
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
pub(super) fn said(program: &Path, script: &str) -> String {
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
        ("uprobe:PROGRAM:serve { print(args.d + 1); }", "`+` cannot be applied to a floating-point number"),
        ("uprobe:PROGRAM:serve { print(-args.d); }", "`-` cannot be applied to a floating-point number"),
        ("uprobe:PROGRAM:serve { if (args.d > 2) { print(1); } }", "cannot be applied to a floating-point"),
        ("uprobe:PROGRAM:serve { printf(\"%d\", args.d); }", "`%d` cannot show a value of type `double`"),
        ("uprobe:PROGRAM:serve { printf(\"%g\", args.n); }", "`%g` cannot show a value of type `int32`"),
        ("uprobe:PROGRAM:serve { @ = sum(args.d); }", "an integer"),
        ("uprobe:PROGRAM:serve { print(args.nn); }", "no parameter `nn`"),
        ("uprobe:PROGRAM:serve { print(args.c->fdd); }", "struct `client` has no field `fdd`"),
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

/// The frames of a stack are those that `addr2line` finds at its addresses.
fn inlined(scratch: &Scratch, engine: &str) {
    const TEXT: &str = "#include <stdio.h>
        __attribute__((noipa)) int leaf(int n) { return n + 1; }
        static inline __attribute__((always_inline)) int inner(int n) {
            return leaf(n) * 3;
        }
        static inline __attribute__((always_inline)) int outer(int n) {
            return inner(n + 1) + 5;
        }
        int main(int count, char **words) {
            printf(\"%d\\n\", outer(count));
            return words == 0;
        }";
    let program = compile(scratch, "inlined.c", TEXT, "inlined", &["-g", "-O2", "-no-pie"]);
    let script = "config = { show_debug_info = true }
        uprobe:PROGRAM:leaf { print(ustack(2)); print(ustack(raw, 2)); print(ustack(perf, 2)); }";
    let printed = printed(&program, engine, script);
    let mut stacks = printed
        .split("\n\n")
        .map(|stack| stack.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>());
    let (named, raw, perf) = (stacks.next(), stacks.next(), stacks.next());
    let (named, raw) = (named.unwrap_or_default(), raw.unwrap_or_default());
    let address = u64::from_str_radix(raw[1], 16).expect("a number");
    // The call is before the address to which it returns.
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["-f", "-i", "-s", "-e"]).arg(&program).arg(format!("{:#x}", address - 1));
    let told = testing::output(&mut addr2line);
    let told: Vec<&str> = told.lines().collect();
    let [inner, inner_at, outer, outer_at, main, main_at] = told[..] else { panic!("{told:?}") };
    assert_eq!((inner, outer, main), ("inner", "outer", "main"));
    let expected = [format!("inner (inlined)@{inner_at}"), format!("outer (inlined)@{outer_at}")];
    assert_eq!(named[1..3], expected, "{printed}");
    assert!(named[0].starts_with("leaf+0@inlined.c:2"), "{printed}");
    assert!(named[3].starts_with("main+") && named[3].ends_with(&format!("@{main_at}")), "{printed}");
    assert_eq!(perf.unwrap_or_default()[1], format!("{address:x} inner (inlined)@{inner_at}"), "{printed}");
    // Lines are shown only if they are asked for.
    let plain = self::printed(&program, engine, "uprobe:PROGRAM:leaf { print(ustack(2)); }");
    assert!(plain.contains("        inner (inlined)\n        outer (inlined)\n        main+"), "{plain}");
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
        let script =
            "uprobe:PROGRAM:lines.c:12 { @[func] = count(); } uprobe:PROGRAM:lines.c:18 { print(func); }";
        let found = printed(&program, engine, script);
        assert!(found.contains("main\n") && found.contains("@[second]: 1\n"), "{level}: {found}");
    }
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
        "uprobe:PROGRAM:serve\n    client* c\n    int n\n    const char* s\n    struct small sm\n    double d\n    unsigned char b\n    _Bool yes\n    returns int\n"
    );
    assert_eq!(
        list("uprobe:PROGRAM:f*d"),
        "uprobe:PROGRAM:find\n    struct db* db\n    enum color color\n    returns struct db*\n"
    );
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
