//! The manual's kernel examples, carried to Linux 6.1 (`examples/README.md`): here, that they compile,
//! that the kernel has what they name, and that the programs which make their probes fire do so as
//! often as their first lines say. The counts are the kernel's own (kprobe events, perf): nothing of
//! dprobes takes part in them.

use std::path::Path;

use crate::oracle::Times::{self, AtLeast, Exactly};
use crate::{oracle, trial::Trial};

/// The name in `examples`, what is to be there before, the program that makes the probes fire, what
/// is to go afterwards.
type Example = (&'static str, &'static str, &'static str, &'static str);

const FORK: Example = ("manual-example-2-fork", "", "calls fork 10", "");
const NETWORK: Example = (
    "manual-example-2-network",
    "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; insmod /modules/ifb.ko numifbs=1",
    "calls packets 7 ifb0",
    "rmmod ifb",
);
const COUNT: Example = ("manual-example-3-count", "", "calls fork 25", "");
const SWAP_OUT: Example = (
    "manual-example-4-swap-out",
    "insmod /modules/brd.ko rd_nr=1 rd_size=16384; mkswap /dev/ram0 > /dev/null; swapon /dev/ram0",
    "calls page-out 100",
    "swapoff /dev/ram0; rmmod brd",
);
/// Three programs in turn.
const GROUPS: [Example; 3] = [
    (
        "manual-example-6-groups",
        "insmod /modules/brd.ko rd_nr=1 rd_size=4096; mke2fs /dev/ram0 > /dev/null; mkdir -p /mnt; \
         mount -t ext2 /dev/ram0 /mnt",
        "calls write 9 /mnt/file",
        "umount /mnt; rmmod brd",
    ),
    ("manual-example-6-groups", "", "calls fork 8", ""),
    ("manual-example-6-groups", "", "calls fault 50", ""),
];
const FORK_AND_KILL: Example = ("als-example-1-fork-and-kill", "", "calls fork-and-kill 12", "");
const WATCH_KERNEL: Example = ("manual-example-7a-watch-kernel", "", "calls fork 10", "");
const WATCH_USER: Example = ("manual-example-7b-watch-user", "", "watched 6", "");

/// Every file of the examples, with its name.
pub(crate) fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machine/examples");
    let entries = std::fs::read_dir(folder).expect("the examples are there");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "rpn"))
        .map(|path| {
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("an example can be read"))
        })
        .collect()
}

/// Counts with kprobe events.
fn kernel_counts(
    name: &'static str,
    (file, prepare, run, clean): Example,
    expected: &'static [(&'static str, Times)],
) -> Trial {
    assert_right(
        file,
        run,
        expected.iter().map(|(event, _)| event.split_once(' ').expect("kind, function").1),
    );
    let prepare = format!("dprobes check /examples/{file}.rpn > /dev/null\n{prepare}");
    oracle::calls(name, [&prepare, run, clean], expected)
}

/// Counts accesses to memory. `address` is of the shell's words.
fn accesses(
    name: &'static str,
    (file, _, run, _): Example,
    address: &str,
    kind: &str,
    expected: Times,
) -> Trial {
    assert_right(file, run, []);
    let lines = format!(
        "dprobes check /examples/{file}.rpn > /dev/null
        breakpoints {address} 4 {kind} {run}"
    );
    Trial::shell(name, &lines, move |text| {
        let last = text.lines().last().expect("the count comes last");
        let count = last.strip_prefix("accesses ").expect("it is a count").parse().expect("a number");
        expected.check("accesses", count);
    })
}

/// The first byte of each function that an example names an opcode for.
fn opcodes() -> Trial {
    let functions = [
        "kernel_clone",
        "kill_pid_info",
        "swap_writepage",
        "__kmalloc",
        "ext4_file_write_iter",
        "handle_mm_fault",
        "ifb_open",
        "ifb_xmit",
        "ifb_close",
    ];
    // A probe elsewhere reads them: one in the function itself changes its first instruction.
    let bytes: String = functions.iter().map(|function| format!(" {function}=@{function}:x8")).collect();
    let lines = format!(
        "insmod /modules/ifb.ko
        events=/sys/kernel/tracing
        echo > $events/trace
        echo 'p:opcodes __x64_sys_getppid{bytes}' > $events/kprobe_events
        echo 1 > $events/events/kprobes/enable
        calls getppid 1
        echo 0 > $events/events/kprobes/enable
        grep 'calls-.* opcodes: ' $events/trace
        echo > $events/kprobe_events
        rmmod ifb"
    );
    Trial::shell("examples: opcodes", &lines, move |text| {
        for function in functions {
            assert!(text.contains(&format!(" {function}=0xf")), "{function} begins otherwise: {text}");
        }
    })
}

/// Checks that an example says which program is run for it, and has probes in these functions.
fn assert_right<'a>(file: &str, run: &str, functions: impl IntoIterator<Item = &'a str>) {
    let files = files();
    let (_, text) =
        files.iter().find(|(name, _)| name.strip_suffix(".rpn") == Some(file)).expect("it is there");
    let said = text.lines().any(|line| line.starts_with("// Run: ") && line.contains(run));
    assert!(said, "{file} does not say that {run} is run");
    for function in functions {
        let function = function.rsplit(':').next().expect("it has a part");
        assert!(text.contains(function), "{file} has no probe in {function}");
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        opcodes(),
        kernel_counts("examples: fork", FORK, &[("p kernel_clone", Exactly(10))]),
        kernel_counts(
            "examples: network",
            NETWORK,
            &[
                ("p ifb:ifb_open", Exactly(1)),
                ("p ifb:ifb_xmit", Exactly(7)),
                ("p ifb:ifb_close", Exactly(1)),
            ],
        ),
        kernel_counts("examples: count", COUNT, &[("p kernel_clone", Exactly(25))]),
        kernel_counts("examples: swap out", SWAP_OUT, &[("p swap_writepage", Exactly(100))]),
        kernel_counts(
            "examples: groups: files",
            GROUPS[0],
            &[("p ext4_file_write_iter", Exactly(9)), ("r ext4_file_write_iter", Exactly(9))],
        ),
        kernel_counts(
            "examples: groups: processes and memory",
            GROUPS[1],
            &[("p kernel_clone", Exactly(8)), ("r kernel_clone", Exactly(8)), ("p __kmalloc", AtLeast(1))],
        ),
        kernel_counts(
            "examples: groups: faults",
            GROUPS[2],
            &[("p handle_mm_fault", AtLeast(50)), ("r handle_mm_fault", AtLeast(50))],
        ),
        kernel_counts(
            "examples: fork and kill",
            FORK_AND_KILL,
            &[("p kernel_clone", Exactly(12)), ("p kill_pid_info", Exactly(12))],
        ),
        accesses(
            "examples: watch the kernel",
            WATCH_KERNEL,
            "0x$(awk '$3 == \"total_forks\" { print $1 }' /proc/kallsyms)",
            "w",
            AtLeast(11),
        ),
        accesses("examples: watch a user program", WATCH_USER, "0x0804040c", "rw", Exactly(12)),
    ]
}
