//! Scripts at functions of the kernel by their types, raw tracepoints, and watchpoints.

use crate::trial::Trial;

/// A script that runs while a command does.
fn script(text: &str, command: &str) -> String {
    format!("cat > script.bt <<'END'\n{text}\nEND\ndprobes trace script.bt -- {command}")
}

/// What `dd` reads, by name, from its own file.
const READS: &str = "fentry:vfs_read /comm == \"dd\" && args.count == 4096/ {
        @[str(args.file->f_path.dentry->d_name.name), args.count, probe, func] = count();
    }
    kretfunc:vfs_read /comm == \"dd\" && args.count == 4096/ { @back[retval] = count(); }";

const RAW: &str = "rawtracepoint:sched_process_exec { @exec[str(args.bprm->filename)] = count(); }
    rawtracepoint:sys_enter /comm == \"calls\" && arg1 == 110/ { @ppid = count(); @same = sum(args.id == arg1); }";

/// The thread's `task_struct` read in two ways, and where the thread was when it was interrupted.
const TASKS: &str = "kprobe:__x64_sys_getppid /comm == \"calls\"/ {
        $task = (struct task_struct *)curtask;
        @tgid[$task->tgid == pid] = count();
        @pid[*kptr((int32 *)&$task->pid) == tid] = count();
        @mode[usermode] = count();
    }";

pub(crate) fn trials() -> Vec<Trial> {
    let reads = script(READS, "dd if=/dev/zero of=/dev/null bs=4096 count=3");
    let raw = script(RAW, "sh -c 'calls getppid 20; exit 0'");
    let tasks = script(TASKS, "sh -c 'calls getppid 20; exit 0'");
    let matched = "
        dprobes trace 'fentry:vfs_rea* { @in[func, probe, comm] = count(); }' -- \\
            dd if=/dev/zero of=/dev/null bs=4096 count=3
        dprobes trace 'fexit:vfs_rea* { @out[func, retval] = count(); }' -- \\
            dd if=/dev/zero of=/dev/null bs=4096 count=3
        dprobes trace 'fentry:vfs_rea* /comm == \"dd\"/ { @named[func] = count(); }' -- \\
            dd if=/dev/zero of=/dev/null bs=4096 count=3";
    let of_module = "insmod /modules/brd.ko rd_nr=1 rd_size=4096
        for point in fentry:brd:brd_submit_bio fexit:brd:brd_submit_bio fentry:brd_submit_bio; do
            dprobes trace --for 1s \"$point { @ = count(); }\" 2>&1 && exit 9 || true
        done
        dprobes trace 'kprobe:brd:brd_submit_bio { @ = count(); }' -- \
            dd if=/dev/zero of=/dev/ram0 bs=4096 count=3 oflag=direct
        rmmod brd";
    let listed = "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing
        dprobes trace -lv fentry:vfs_read
        dprobes trace -lv rawtracepoint:sched_process_exec
        dprobes trace -lv tracepoint:sched:sched_switch
        dprobes trace -l 'kprobe:vfs_re*'";
    let watched = "dprobes trace --for 2s 'watchpoint:jiffies_64:8:w { @ticks = count(); }'";
    vec![
        Trial::shell("typed: arguments of functions have names and types", &reads, |text| {
            for line in ["@[zero, 4096, fentry:vfs_read, vfs_read]: 3", "@back[4096]: 3"] {
                assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
            }
        }),
        Trial::shell("typed: raw tracepoints have arguments", &raw, |text| {
            assert!(text.contains("/calls]: 1\n"), "{text}");
            assert!(text.contains("@ppid: 20\n") && text.contains("@same: 20\n"), "{text}");
        }),
        Trial::shell("typed: the current task, and where it was interrupted", &tasks, |text| {
            for line in ["@tgid[true]: 20", "@pid[true]: 20", "@mode[0]: 20"] {
                assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
            }
            assert!(!text.contains("@mode[1]"), "{text}");
        }),
        Trial::shell("typed: functions that match a pattern", matched, |text| {
            for line in [
                "@in[vfs_read, fentry:vmlinux:vfs_read, dd]: 3",
                "@out[vfs_read, 4096]: 3",
                "@named[vfs_read]: 3",
            ] {
                assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
            }
        }),
        Trial::shell("typed: functions of modules", of_module, |text| {
            let (first, last) =
                (text.matches("only functions of the kernel itself have types here").count(), "@: 3");
            assert!(first == 2 && text.lines().any(|line| line == last), "{text}");
            for help in ["`kprobe` probes functions of modules", "`kretprobe` probes functions of modules"] {
                assert!(text.contains(help), "{help} in\n{text}");
            }
            let untold = "the kernel has no function `brd_submit_bio` whose type it tells";
            assert!(text.contains(untold), "{text}");
        }),
        Trial::shell("typed: a variable of the kernel is watched", watched, |text| {
            assert!(text.contains("@ticks: ") && !text.contains("@ticks: 0\n"), "{text}");
        }),
        Trial::shell("typed: what is listed of the kernel", listed, |text| {
            for line in [
                "    struct file * file",
                "    size_t count",
                "    struct linux_binprm * bprm",
                "    char prev_comm[16]",
                "    pid_t prev_pid",
                "kprobe:vfs_read",
            ] {
                assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
            }
        }),
    ]
}
