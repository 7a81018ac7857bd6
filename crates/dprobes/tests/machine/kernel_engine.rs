//! The kernel engine: all processes, the kernel, and its modules.

use std::time::Duration;

use testing::machine::Command;

use crate::trial::Trial;

/// A session of these options, in which lines are run once its probes are in; then what it has said
/// and its records. A shell's job in the background ignores SIGINT.
fn session(options: &str, lines: &str) -> String {
    format!(
        "rm -f said
        dprobes attach {options} --log-format klog -o records 2> said & session=$!
        until grep -q ' armed in ' said; do kill -0 $session; sleep 0.1; done
        {lines}
        kill -TERM $session
        wait $session
        cat said
        cat records"
    )
}

/// The counts of the summary's line for a probepoint: hits, runs, ignored, missed, logged, dropped.
#[track_caller]
fn counts(text: &str, point: &str) -> Vec<u64> {
    let line = text.lines().find(|line| line.starts_with(&format!("{point} ")));
    let line = line.unwrap_or_else(|| panic!("no line of {point}:\n{text}"));
    line.split_ascii_whitespace().skip(1).map_while(|word| word.parse().ok()).collect()
}

const CALLS: &str = "name = vmlinux\nmodtype = kernel\nmajor = 4\nvars = 2\n\
    offset = __x64_sys_getppid\nminor = 1\ninc lv, 0\npush pid\nlog 1\nexit\n\
    offset = __x64_sys_getppid:return\nminor = 2\nexit\n\
    offset = __x64_sys_getppid:*\nminor = 3\nabort\n";

const ENTRY: &str = "name = vmlinux\nmodtype = kernel\noffset = __x64_sys_getppid\nlog 0\nexit\n";

const TRACED: &str = "name = vmlinux\nmodtype = kernel\nmajor = 5\n\
    tracepoint = syscalls:sys_exit_getppid\nminor = 1\npush field, ret\nlog 1\nexit\n\
    tracepoint = sched:sched_process_exec\nminor = 2\npush 64\npush field, filename\nlog str\nexit\n";

pub(crate) fn trials() -> Vec<Trial> {
    let processes = session("--at /bin/leaf:leaf_work:entry", "leaf 500 || true; leaf 20 || true");
    let in_kernel =
        format!("cat > calls.rpn <<'END'\n{CALLS}END\n{}", session("calls.rpn", "calls getppid 20"));
    let by_process = format!(
        "cat > calls.rpn <<'END'\n{CALLS}END\n{}",
        session("--by-process calls.rpn", "calls getppid 20 > pids; calls getppid 7 >> pids; cat pids")
    );
    let traced = format!(
        "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing\n\
         cat > traced.rpn <<'END'\n{TRACED}END\n{}",
        session("traced.rpn", "calls getppid 20")
    );
    let scripts = "rm -f said
        dprobes trace 'kprobe:__x64_sys_getppid { @k[comm, func] = count(); @n++; }
            kretprobe:__x64_sys_getppid { @r[comm] = stats(retval > 0); @took = hist(nsecs - @since); @since = nsecs; }
            uprobe:/bin/leaf:leaf_work { @u = count(); @c[comm, str(reg(\"sp\"))] = count(); @by[pid] = sum(1);
                @s[ustack(3)] = count(); @l = lhist(arg0, 0, 100, 10); @last = comm; delete(@by[0]); }
            interval:ms:100 { @ticks = count(); }' > printed 2> said & session=$!
        until grep -q ' armed in /bin/leaf' said && grep -q ' armed in the kernel' said; do
            kill -0 $session || { cat said; exit 1; }; sleep 0.1; done
        calls getppid 20
        leaf 500 || true
        leaf 20 || true
        kill -TERM $session
        wait $session
        cat said printed";
    let module = "printf 'name = brd\\nmodtype = kmod\\noffset = brd_init\\nminor = 1\\nexit\\n\
        offset = \"brd_*\":entry\\nminor = 2\\nabort\\n' > m.rpn
        dprobes attach m.rpn 2> said & session=$!
        until grep -q 'waiting for it' said; do kill -0 $session; sleep 0.1; done
        insmod /modules/brd.ko
        until grep -q ' armed in brd' said; do kill -0 $session; sleep 0.1; done
        dd if=/dev/zero of=/dev/ram0 bs=4096 count=3
        sync
        kill -TERM $session
        wait $session || true
        rmmod brd
        cat said";
    // Some of the kernel's own list, as if it had been linked 16 MiB lower.
    let linked_only = "grep -A 4 -E ' (_text|_stext|vfs_read|vfs_write|__x64_sys_getppid)$' /proc/kallsyms |
        grep -v -e '^--' -e '\\[' | sort -u | awk '{
        top = substr($1, 9, 1); low = (\"0x\" substr($1, 10)) - 16777216
        if (low < 0) { low += 268435456; top = substr(\"0123456789abcdef\", index(\"0123456789abcdef\", top) - 1, 1) }
        printf \"%s%s%07x %s %s\\n\", substr($1, 1, 8), top, low, $2, $3 }' > linked";
    let linked = format!(
        "{linked_only}
        grep -v ' vfs_read$' linked > other; sed -n 's/ vfs_write$/ vfs_read/p' linked >> other
        ! dprobes attach --sym other calls.rpn 2>&1"
    );
    let by_map = format!(
        "cat > calls.rpn <<'END'\n{ENTRY}END\n{linked}
        {}
        echo 2 > /proc/sys/kernel/kptr_restrict
        ! dprobes attach calls.rpn 2>&1
        {}
        echo 1 > /proc/sys/kernel/kptr_restrict",
        session("--sym linked calls.rpn", "calls getppid 20"),
        session("--sym linked calls.rpn", "calls getppid 7"),
    );
    // The same in scripts: patterns, and names of addresses.
    let names = format!(
        "{linked_only}
        echo 2 > /proc/sys/kernel/kptr_restrict
        dprobes trace --sym linked -l 'kprobe:__x64_sys_getpp*'
        ! dprobes trace 'kprobe:__x64_sys_getpp* {{ @[kstack(1)] = count(); }}' 2>&1
        dprobes trace --sym linked 'kprobe:__x64_sys_getpp* {{ @[comm, func] = count(); @s[comm, kstack(1)] = count(); }}' > printed 2> said & session=$!
        until grep -q ' armed in ' said; do kill -0 $session; sleep 0.1; done
        calls getppid 20
        kill -TERM $session
        wait $session
        cat said printed
        {}
        echo 1 > /proc/sys/kernel/kptr_restrict",
        session("--sym linked --at 'kernel:__x64_sys_getpp?d'", "calls getppid 7"),
    );
    let names = Command::shell(&names).limit(Duration::from_secs(170));
    // The kernel's symbols are read four times.
    let by_map = Command::shell(&by_map).limit(Duration::from_secs(170));
    let dumps = session(
        "--at /bin/leaf:leaf_work --do 'exit 3' --max-dumps 20",
        "leaf 500 || true; sleep 1; head -q -c 4 core.* | grep -q ELF && echo a core file",
    );
    let refused = "printf 'name = vmlinux\\nmodtype = kernel\\noffset = no_such_function\\nexit\\n\
        offset = vfs_read+1\\nexit\\noffset = vfs_read\\nopcode = 0x91\\nexit\\n\
        offset = get_stack_info_noinstr\\nexit\\n' > bad.rpn
        ! dprobes attach bad.rpn 2>&1
        dprobes list kernel 'get_stack_info*' 2>&1
        dprobes list kernel vfs_read 2>&1";
    vec![
        Trial::shell("kernel engine: all processes are probed", &processes, |text| {
            assert_eq!(counts(text, "/bin/leaf:leaf_work:entry"), [520, 520, 0, 0, 520, 0], "{text}");
        }),
        Trial::shell("kernel engine: system calls are counted", &in_kernel, |text| {
            assert_eq!(counts(text, "vmlinux:__x64_sys_getppid"), [20, 20, 0, 0, 20, 0], "{text}");
            assert_eq!(counts(text, "vmlinux:__x64_sys_getppid:return"), [20, 20, 0, 0, 20, 0], "{text}");
            assert!(counts(text, "vmlinux:__x64_sys_getppid:*")[0] >= 40, "{text}");
            assert!(text.contains("lv[0] = 20 "), "{text}");
            assert_eq!(
                text.lines().filter(|line| line.starts_with("DProbes(4,1) cpu=")).count(),
                20,
                "{text}"
            );
        }),
        Trial::shell("kernel engine: system calls are counted by process", &by_process, |text| {
            let own = text.lines().filter_map(|line| line.strip_prefix("pid ")?.split_once(' '));
            let own: Vec<(&str, &str)> = own.collect();
            assert!(own.len() == 2 && own[1].1 == "getppid 7", "{text}");
            for ((pid, _), calls) in own.into_iter().zip([20, 7]) {
                let line = |line: &str| {
                    let words: Vec<&str> = line.split_ascii_whitespace().collect();
                    matches!(words[..], [hits, _, of, "calls"] if of == pid && hits == calls.to_string())
                };
                // At its entry and at its return.
                assert_eq!(text.lines().filter(|it| line(it)).count(), 2, "{pid} {calls} in\n{text}");
            }
        }),
        Trial::shell("kernel engine: tracepoints are probed", &traced, |text| {
            let calls = counts(text, "vmlinux:syscalls:sys_exit_getppid");
            assert!(calls[0] >= 20 && calls[0] == calls[4], "{text}");
            assert!(counts(text, "vmlinux:sched:sched_process_exec")[0] > 0, "{text}");
            // A string with its length, and a path.
            assert!(text.contains("0x00000000 : 01") && text.contains("/calls"), "{text}");
        }),
        Trial::shell("kernel engine: scripts run", scripts, |text| {
            for line in ["@k[calls, __x64_sys_getppid]: 20", "@u: 520", "@last: leaf"] {
                assert!(text.contains(line), "{line} in\n{text}");
            }
            assert!(text.contains("@r[calls]: count 20, average 1, total 20"), "{text}");
            assert!(text.contains("]: 500") && text.contains("]: 20"), "{text}");
            assert!(!text.contains("@ticks: 0"), "{text}");
        }),
        Trial::shell("kernel engine: a core is dumped", &dumps, |text| {
            assert_eq!(counts(text, "/bin/leaf:leaf_work:entry")[0], 500, "{text}");
            assert!(text.contains(" written to core.") && text.contains("a core file\n"), "{text}");
        }),
        Trial::shell("kernel engine: a module that is loaded later is probed", module, |text| {
            assert!(counts(text, "brd:brd_*:entry")[0] > 0, "{text}");
        }),
        Trial::new("kernel engine: symbols are those of a System.map", by_map, |output| {
            let text = output.success();
            let (first, hidden) = text.split_once("the kernel hides its addresses").expect("they are hidden");
            for (text, calls) in [(first, 20), (hidden, 7)] {
                assert_eq!(
                    counts(text, "vmlinux:__x64_sys_getppid"),
                    [calls, calls, 0, 0, calls, 0],
                    "{text}"
                );
            }
            let reason = "--sym: other is of another kernel than the running one: `vfs_read` would be at 0x";
            assert!(first.contains(reason), "{text}");
        }),
        Trial::new(
            "kernel engine: names of patterns and stacks are those of a System.map",
            names,
            |output| {
                let text = output.success();
                let (listed, rest) =
                    text.split_once("the kernel hides its addresses").expect("they are hidden");
                assert!(listed.contains("kprobe:__x64_sys_getppid\n"), "{text}");
                for line in ["@[calls, __x64_sys_getppid]: 20", "@s[calls, \n        __x64_sys_getppid+"] {
                    assert!(rest.contains(line), "{line:?} in\n{text}");
                }
                assert_eq!(counts(rest, "vmlinux:__x64_sys_getpp?d:entry"), [7, 7, 0, 0, 7, 0], "{text}");
            },
        ),
        Trial::shell("kernel engine: what cannot be probed in the kernel is refused", refused, |text| {
            for reason in [
                "  kernel:get_stack_info_noinstr  (not probed: ",
                " functions cannot be probed\n",
                "  kernel:vfs_read\n",
                "no_such_function: /proc/kallsyms has no function `no_such_function`",
                "vfs_read+1: address 0x",
                "is inside the instruction at 0x",
                "vfs_read: opcode 0x91 expected, 0x",
                "get_stack_info_noinstr: no probe can be at 0x",
            ] {
                assert!(text.contains(reason), "{reason}: {text}");
            }
        }),
    ]
}
