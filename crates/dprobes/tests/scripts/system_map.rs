//! `--sym System.map`: the kernel's names are those of the file, wherever scripts use them. The
//! files here have the running kernel's own list, with other names, and linked lower than it runs.

use super::events::entries;
use super::kernel::can_run;
use super::support::{Scratch, dprobes, run};
use std::path::{Path, PathBuf};
use testing::Trials;

/// How much lower the files have the kernel: it was moved by as much.
const SLIDE: u64 = 16 << 20;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn(&Kernel)| {
        trials.add(format!("System.map: {name}"), move || match Kernel::shown() {
            Some(kernel) if can_run() => test(&kernel),
            _ => testing::skipped(
                &format!("bpf: scripts: {name}"),
                "root, a kernel that shows its addresses, and runs eBPF programs",
            ),
        });
    };
    one("patterns and lists", patterns);
    one("symbols by name and by address, and stacks", shown);
    one("another kernel's is refused by all", refused);
    one("one that nothing uses is refused", unused);
}

/// The kernel's own symbols: addresses, letters, names.
struct Kernel(Vec<(u64, String, String)>);

impl Kernel {
    /// `None` if they are hidden.
    fn shown() -> Option<Kernel> {
        let text = std::fs::read_to_string("/proc/kallsyms").ok()?;
        let symbols = text.lines().filter(|line| !line.contains('['));
        let symbols = symbols.filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.next()?.to_owned(), words.next()?.to_owned()))
        });
        let symbols: Vec<_> = symbols.filter(|(address, ..)| *address >= 0xffff_ffff_8000_0000).collect();
        (!symbols.is_empty()).then_some(Kernel(symbols))
    }

    /// A System.map, in which each name is that for which `name` stands.
    fn write(&self, scratch: &Scratch, name: impl Fn(&str) -> String) -> PathBuf {
        let line = |(address, letter, own): &(u64, String, String)| {
            format!("{:016x} {letter} {}\n", address.wrapping_sub(SLIDE), name(own))
        };
        let text: String = self.0.iter().map(line).collect();
        scratch.file("System.map", &text)
    }
}

/// Names of ours; those that mean something to dprobes itself are the kernel's.
fn renamed(name: &str) -> String {
    if name.starts_with('_') { name.to_owned() } else { format!("map_{name}") }
}

/// Runs `dprobes trace --sym FILE`: its status, what it printed and what it said.
fn trace(map: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let (status, printed, said) = run(dprobes().args(["trace", "--sym"]).arg(map).args(words));
    (status.code(), printed, said)
}

fn patterns(kernel: &Kernel) {
    let scratch = Scratch::new();
    let map = kernel.write(&scratch, renamed);
    let (status, listed, said) = trace(&map, &["-l", "kprobe:map_vfs_*"]);
    assert_eq!(status, Some(0), "{said}");
    let (own, all, _) = run(dprobes().args(["trace", "-l", "kprobe:vfs_*"]));
    assert!(own.success() && all.contains("kprobe:vfs_read\n"), "{all}");
    assert_eq!(listed, all.replace(":vfs_", ":map_vfs_"));
    // The list of the running kernel is no second source.
    let (status, _, said) = trace(&map, &["-l", "kprobe:vfs_*"]);
    assert!(status == Some(1) && said.contains("no function of the kernel matches `vfs_*`"), "{said}");
}

fn shown(kernel: &Kernel) {
    let scratch = Scratch::new();
    let map = kernel.write(&scratch, renamed);
    let text =
        "begin { printf(\"%s %p\\n\", ksym(kaddr(\"map_vfs_read\")), kaddr(\"map_vfs_read\")); exit(); }";
    let (status, printed, said) = trace(&map, &[text]);
    assert_eq!(status, Some(0), "{said}");
    let (address, ..) = kernel.0.iter().find(|(_, _, name)| name == "vfs_read").expect("each kernel has it");
    assert_eq!(printed.trim(), format!("map_vfs_read {address:#x}"));
    // What reads /dev/zero is in the kernel nearly always.
    let text = "profile:hz:999 { @[kstack] = count(); }";
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=4000", "status=none"];
    let (status, printed, said) = trace(&map, &[&["-f", "folded", text, "--"], &words[..]].concat());
    assert_eq!(status, Some(0), "{said}");
    assert!(printed.contains("map_do_syscall_64;") && printed.contains(";map_vfs_read;"), "{printed}");
    assert!(!printed.contains(";vfs_read"), "{printed}");
    // In the text of maps, too.
    let text = "profile:hz:999 { @[ksym(reg(\"ip\"))] = count(); }";
    let (_, printed, said) = trace(&map, &[&[text, "--"], &words[..]].concat());
    let named = entries(&printed, "@");
    assert!(named.iter().any(|(name, _)| name.starts_with("map_")), "{printed}{said}");
}

fn refused(kernel: &Kernel) {
    let scratch = Scratch::new();
    let swapped = |name: &str| match name {
        "vfs_read" => "vfs_write".to_owned(),
        "vfs_write" => "vfs_read".to_owned(),
        other => other.to_owned(),
    };
    let map = kernel.write(&scratch, swapped);
    let uses = [
        &["-l", "kprobe:vfs_*"][..],
        &["begin { print(kaddr(\"vfs_open\")); exit(); }"],
        &["begin { print(ksym(1)); exit(); }"],
        &["profile:hz:9 { @[kstack] = count(); }", "--", "true"],
    ];
    for words in uses {
        let (status, printed, said) = trace(&map, words);
        assert!(status.is_some_and(|status| status != 0) && printed.is_empty(), "{words:?}: {printed}");
        let why = "is of another kernel than the running one: `vfs_";
        assert!(said.contains(why), "{words:?}: {said}");
    }
    // Lines behind the first are read, too.
    let text = std::fs::read_to_string(&map).expect("it was written") + "no address\n";
    std::fs::write(&map, text).expect("it can be written");
    let (status, _, said) = trace(&map, uses[0]);
    assert!(status == Some(1) && said.contains("`no address`: an address, a letter and a name"), "{said}");
}

fn unused(kernel: &Kernel) {
    let scratch = Scratch::new();
    let map = kernel.write(&scratch, renamed);
    let (status, _, said) = trace(&map, &["begin { exit(); }"]);
    assert!(status == Some(1) && said.contains("asks for no symbol of the kernel"), "{said}");
}
