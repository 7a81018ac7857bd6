//! Attach points as they are written.

use super::*;

fn shown(text: &str) -> String {
    match parse(text, Span::default()) {
        Ok(point) => point.to_string(),
        Err(message) => format!("{}: {}", message.message, message.label),
    }
}

#[test]
fn each_form_is_read_and_shown_in_full() {
    let cases = [
        ("BEGIN", "begin"),
        ("self:signal:SIGUSR1", "self:signal:SIGUSR1"),
        ("i:s:1", "interval:s:1"),
        ("interval:1s", "interval:1000000000"),
        ("p:hz:$1", "profile:hz:$1"),
        ("h:cycles:1e6", "hardware:cpu-cycles:1000000"),
        ("software:faults:", "software:page-faults"),
        ("k:kvm:x86_emulate_insn", "kprobe:kvm:x86_emulate_insn"),
        ("kprobe:vfs_read+0x10", "kprobe:vfs_read+0x10"),
        ("kfunc:tcp_reset", "fentry:tcp_reset"),
        ("t:syscalls:sys_enter_*", "tracepoint:syscalls:sys_enter_*"),
        ("rt:sched_switch", "rawtracepoint:sched_switch"),
        ("u:/bin/bash:readline", "uprobe:/bin/bash:readline"),
        ("u:libc:malloc+4", "uprobe:libc:malloc+0x4"),
        ("u:a.out:0x1234", "uprobe:a.out:0x1234"),
        ("u:a.out:cpp:\"ns::f(int)\"", "uprobe:a.out:cpp:\"ns::f(int)\""),
        ("u:a.out:main:return", "uretprobe:a.out:main"),
        ("u:a.out:src/main.c:12", "uprobe:a.out:src/main.c:12"),
        ("pid$target:libc.so:malloc:entry", "pid$target:libc.so:malloc:entry"),
        ("pid12:a.out:main:1a", "pid12:a.out:main:1a"),
        ("pid$target:::return", "pid$target:*:*:return"),
        ("U:*:loop", "usdt:*:loop"),
        ("usdt:/root/tick:ns:loop", "usdt:/root/tick:ns:loop"),
        ("w:0x10000000:8:rw", "watchpoint:0x10000000:8:rw"),
        ("w:counter:8:w", "watchpoint:counter:8:w"),
        ("w:config.limits[1].soft:4:rw", "watchpoint:config.limits[1].soft:4:rw"),
        ("w:\"ns::state\":4:x", "watchpoint:\"ns::state\":4:x"),
        ("aw:increment+arg1:4:w", "asyncwatchpoint:increment+arg1:4:w"),
        ("event=kprobe:f", "event=kprobe:f"),
        ("iter:task:list", "iter:task:list"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
        assert_eq!(shown(expected), expected, "it is read back");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let cases = [
        ("urpobe:a:b", "no provider of probes is called `urpobe`: expected a provider, such as `uprobe`"),
        ("uprobe:a", "this is no attach point of `uprobe`: expected a program or library, and a function"),
        (
            "uretprobe:a:f+3",
            "this is no attach point of `uretprobe`: only a function returns, not an instruction or a line",
        ),
        ("interval:0", "this is no attach point of `interval`: it must be more than 0"),
        ("interval:parsec:1", "this is no attach point of `interval`: expected `us`, `ms`, `s` or `hz`"),
        ("watchpoint:0x10:3:w", "this is no attach point of `watchpoint`: expected 1, 2, 4 or 8"),
        ("hardware:cache-mises", "`hardware` has no event `cache-mises`: expected an event"),
        ("kprobe:", "this is no attach point of `kprobe`: the field is empty"),
        ("u:a:\"b", "the quotes are not closed: opened here"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
    }
}
