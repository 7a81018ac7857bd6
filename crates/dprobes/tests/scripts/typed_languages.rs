//! Types and lines of programs in Go, C++ and Rust.

use super::support::Scratch;
use super::typed::{compile, printed, said, with};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for engine in ["auto", "trap"] {
        trials.add(format!("typed: Go ({engine})"), move || with(&["go"], |scratch| go(scratch, engine)));
        trials.add(format!("typed: Rust ({engine})"), move || with(&["rustc"], |it| rust(it, engine)));
        trials.add(format!("typed: C++ ({engine})"), move || with(&["g++"], |scratch| cpp(scratch, engine)));
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
