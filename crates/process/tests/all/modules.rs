//! Checks the modules of running processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::common::{Scratch, have};
use dprobes_process::{ImageCache, Module, maps, modules, survey};

/// A program that prints a line and waits to be killed.
struct Target(Child);

impl Target {
    fn start(program: &Path, arguments: &[&str]) -> Target {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program was just compiled");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).expect("it prints a line");
        assert_eq!(line, "ready\n");
        Target(child)
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Also prints the address of its function `marked` to standard error.
const WAITING: &str = r#"
#include <stdio.h>
#include <unistd.h>
int marked(int x) { return x + 1; }
int main(void) {
    char c;
    puts("ready");
    fflush(stdout);
    return read(0, &c, 1) == 1 ? marked(c) : 0;
}
"#;

/// The process's memory at a function must equal the file.
fn expect_mapped(pid: i32, module: &Module, function: &str) {
    use std::os::unix::fs::FileExt;
    let lookup = module.image.lookup(function);
    let vaddr =
        lookup.matches.first().unwrap_or_else(|| panic!("{function} in {}", module.path.display())).vaddr;
    let address = module.address(vaddr);
    assert!(module.contains(address));
    assert_eq!(module.vaddr(address), vaddr);
    let mut memory = [0; 16];
    let file = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    file.read_exact_at(&mut memory, address).unwrap();
    assert_eq!(Some(&memory[..]), module.image.text(vaddr, 16).as_deref(), "{function}");
}

fn named<'a>(modules: &'a [Module], name: &str, root: &Path) -> Vec<&'a Module> {
    modules.iter().filter(|module| module.is_named(name, root)).collect()
}

#[test]
fn every_kind_of_program() {
    if !have("every_kind_of_program", &["gcc", "strip"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut cache = ImageCache::new();
    for (name, options, is_static, is_fixed) in [
        ("pie", &["-pie", "-fPIE"][..], false, false),
        ("fixed", &["-no-pie"], false, true),
        ("static", &["-static"], true, true),
        ("static-pie", &["-static-pie"], true, false),
        ("mixed", &["-Wl,-z,noseparate-code"], false, false),
    ] {
        let program = scratch.compile("waiting.c", WAITING, name, options);
        let target = Target::start(&program, &[]);
        let found = survey(target.pid(), &mut cache).unwrap();
        assert!(found.skipped.is_empty(), "{name}: {:?}", found.skipped);
        let root = target.root();
        let main = named(&found.modules, program.to_str().unwrap(), &root);
        assert_eq!(main.len(), 1, "{name}");
        assert_eq!(main[0].bias == 0, is_fixed, "{name}");
        expect_mapped(target.pid(), main[0], "marked");
        assert!(std::ptr::eq(main[0], named(&found.modules, name, &root)[0]));
        let libc = named(&found.modules, "libc.so.6", &root);
        assert_eq!(libc.is_empty(), is_static, "{name}");
        if let Some(libc) = libc.first() {
            expect_mapped(target.pid(), libc, "malloc");
            let linker = named(&found.modules, "ld-linux-x86-64.so.2", &root);
            expect_mapped(target.pid(), linker[0], "_dl_catch_exception");
        }
        let vdso = named(&found.modules, "[vdso]", &root);
        expect_mapped(target.pid(), vdso[0], "__vdso_clock_gettime");
        assert!(vdso[0].image.check_boundary(vdso[0].image.lookup("__vdso_getcpu").matches[0].vaddr).is_ok());
        // Each executable file mapping belongs to exactly one module.
        for mapping in maps(target.pid()).unwrap() {
            if mapping.executable && mapping.path.is_some() {
                let owners = found.modules.iter().filter(|module| module.contains(mapping.start)).count();
                assert_eq!(owners, 1, "{name}: {mapping:?}");
            }
        }
    }
}

#[test]
fn names() {
    if !have("names", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let library = scratch.compile(
        "library.c",
        "int shared(void) { return 3; }\n",
        "libnamed-2.31.so",
        &["-shared", "-fPIC", "-Wl,-soname,libnamed.so.7"],
    );
    let link = |name: &str, target: &Path| {
        std::os::unix::fs::symlink(target, scratch.path().join(name)).unwrap();
        scratch.path().join(name)
    };
    let relative = link("libnamed.so.7", Path::new("libnamed-2.31.so"));
    link("alias.so", Path::new("libnamed.so.7"));
    let elsewhere = scratch.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&library, elsewhere.join("far.so")).unwrap();
    scratch.file("other.so", "not it");
    let path = relative.to_str().unwrap().to_owned();
    let program = scratch.compile("waiting.c", WAITING, "waiting", &["-Wl,--no-as-needed", &path]);
    let preload = format!("LD_LIBRARY_PATH={}", scratch.path().display());
    let target = Target::start(Path::new("/usr/bin/env"), &[&preload, program.to_str().unwrap()]);
    let modules = modules(target.pid(), &mut ImageCache::new()).unwrap();
    let root = target.root();
    let own = |name: &str| {
        let found = named(&modules, name, &root);
        assert!(found.len() < 2, "{name}");
        found.first().is_some_and(|module| module.path == library)
    };
    for name in [
        "libnamed-2.31.so",
        "libnamed.so.7",
        "libnamed",
        "libnamed-2.31",
        "libn?med*",
        "*.so.7",
        "alias.so",
        library.to_str().unwrap(),
        &path,
        scratch.path().join("alias.so").to_str().unwrap(),
        elsewhere.join("far.so").to_str().unwrap(),
        &format!("{}/../alias.so", elsewhere.display()),
    ] {
        assert!(own(name), "{name}");
    }
    for name in [
        "libname",
        "libnamed.so.",
        "a.out",
        "*amed",
        "libnamed[",
        "far.so",
        "other.so",
        "",
        "/",
        "libnamed-2.31.so/",
        "/nowhere/libnamed-2.31.so",
        ".",
        "..",
    ] {
        assert!(!own(name), "{name}");
    }
    let main = named(&modules, "a.out", &root);
    assert_eq!(main.iter().map(|module| &module.path).collect::<Vec<_>>(), [&program]);
    // All files, but not the vDSO.
    let all = named(&modules, "*", &root);
    assert_eq!(all.len(), modules.iter().filter(|module| module.path.is_absolute()).count());
}

#[test]
fn one_file_loaded_twice() {
    if !have("one_file_loaded_twice", &["gcc"]) {
        return;
    }
    const LOADER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char c;
    if (!dlopen(argv[1], RTLD_NOW) || !dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW)) return 1;
    puts("ready");
    fflush(stdout);
    return read(0, &c, 1);
}
"#;
    let scratch = Scratch::new();
    let library =
        scratch.compile("library.c", "int shared(void) { return 3; }\n", "twice.so", &["-shared", "-fPIC"]);
    let program = scratch.compile("loader.c", LOADER, "loader", &[]);
    let target = Target::start(&program, &[library.to_str().unwrap()]);
    let modules = modules(target.pid(), &mut ImageCache::new()).unwrap();
    let found = named(&modules, "twice.so", &target.root());
    assert_eq!(found.len(), 2);
    assert_ne!(found[0].bias, found[1].bias);
    assert!(Arc::ptr_eq(&found[0].image, &found[1].image));
    for module in found {
        expect_mapped(target.pid(), module, "shared");
    }
}

#[test]
fn one_image_for_many_processes() {
    if !have("one_image_for_many_processes", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("waiting.c", WAITING, "waiting", &[]);
    let (first, second) = (Target::start(&program, &[]), Target::start(&program, &[]));
    let mut cache = ImageCache::new();
    let one = modules(first.pid(), &mut cache).unwrap();
    let two = modules(second.pid(), &mut cache).unwrap();
    let libc = |modules: &[Module], root: &Path| Arc::clone(&named(modules, "libc.so.6", root)[0].image);
    assert!(Arc::ptr_eq(&libc(&one, &first.root()), &libc(&two, &second.root())));
}

/// A library that was replaced while it runs: the image has its old contents, never the new file's.
#[test]
fn a_replaced_file() {
    if !have("a_replaced_file", &["gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.compile("waiting.c", WAITING, "waiting", &[]);
    let target = Target::start(&program, &[]);
    std::fs::rename(&program, scratch.path().join("aside")).unwrap();
    std::fs::remove_file(scratch.path().join("aside")).unwrap();
    scratch.compile("waiting2.c", &WAITING.replace("marked", "different"), "waiting", &[]);
    let found = survey(target.pid(), &mut ImageCache::new()).unwrap();
    let main = found.modules.iter().find(|module| module.path.starts_with(scratch.path()));
    // /proc/PID/exe still leads to the old file, so this needs no privilege.
    let main = main.unwrap_or_else(|| panic!("{:?}", found.skipped));
    assert!(main.mappings[0].deleted);
    expect_mapped(target.pid(), main, "marked");
    // The file now at that path is another one.
    assert_ne!(main.image.file_id().unwrap().inode, {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&program).unwrap().ino()
    });
}

/// Text split by mprotect, text moved to anonymous memory, code from a file that is not an ELF
/// file.
#[test]
fn text_that_is_not_as_loaded() {
    if !have("text_that_is_not_as_loaded", &["gcc"]) {
        return;
    }
    const MOVING: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
extern char __executable_start;
__attribute__((aligned(4096))) int first(int x) { return x + 1; }
__attribute__((aligned(4096))) int moved(int x) { return x + 2; }
__attribute__((aligned(4096))) int after(int x) { return x + 3; }
__attribute__((aligned(4096))) int main(int argc, char **argv) {
    char c;
    char *page = (char *)moved;
    char *copy = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, page, 4096);
    if (mprotect(copy, 4096, PROT_READ | PROT_EXEC)) return 1;
    if (mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == MAP_FAILED) return 2;
    int fd = open(argv[1], O_RDONLY);
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 3;
    puts("ready");
    fflush(stdout);
    return read(0, &c, 1);
}
"#;
    let scratch = Scratch::new();
    let program = scratch.compile("moving.c", MOVING, "moving", &["-O1"]);
    let data = scratch.file("data.bin", &"x".repeat(8192));
    let target = Target::start(&program, &[data.to_str().unwrap()]);
    let found = survey(target.pid(), &mut ImageCache::new()).unwrap();
    let main = named(&found.modules, "moving", &target.root());
    assert_eq!(main.len(), 1, "one module, in spite of the cut: {main:?}");
    expect_mapped(target.pid(), main[0], "first");
    expect_mapped(target.pid(), main[0], "after");
    let moved = main[0].address(main[0].image.lookup("moved").matches[0].vaddr);
    assert!(!main[0].contains(moved));
    let skipped = |path: &Path| found.skipped.iter().find(|skipped| skipped.path == path).unwrap();
    let text = skipped(&program);
    assert_eq!((text.range.start, text.range.end), (moved, moved + 4096));
    assert!(text.why.contains("huge pages"), "{}", text.why);
    assert!(skipped(&data).why.contains("not an ELF file"));
}

#[test]
fn no_such_process() {
    let error = modules(i32::MAX, &mut ImageCache::new()).unwrap_err().to_string();
    assert!(error.contains("process 2147483647: cannot open the list of mappings"), "{error}");
}
