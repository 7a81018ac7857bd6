//! What the commands that are run by [`crate::mentioned`] print, and those that no test of the
//! documents runs.

/// A command as a document writes it, and what the outputs of its variants have, all together: a
/// text, `wrote NAME` for a file that is not empty, or `!` and a text that none has.
pub(crate) const CLAIMS: &[(&str, &[&str])] = &[
    // README.md: commands
    (
        "dprobes run [OPTIONS] PROG.rpn -- CMD ARGS...",
        &["svc:serve", "dprobes: summary", "records written, 0 lost"],
    ),
    (
        "dprobes attach [OPTIONS] -p PID PROG.rpn [--for 10s]",
        &["svc:serve", "dprobes: summary", "1 probe armed"],
    ),
    ("dprobes attach [OPTIONS] PROG.rpn", &["svc:serve", "dprobes: summary"]),
    (
        "dprobes count|latency|stacks MODULE:FUNCTION... [-p PID|NAME] [-- CMD ARGS...]",
        &["serve:entry", "@call_ns[serve]: count", "@calls[", "works+"],
    ),
    (
        "dprobes coverage [-o FILE.info] [-m MODULE]... [--branches] (-p PID|NAME | -- CMD ARGS...)",
        &["dprobes: coverage", "svc.c", "wrote out.info", "branches"],
    ),
    (
        "dprobes tools [list | show NAME | run NAME (-p PID|NAME | -- CMD ARGS...)]",
        &["memleak", "uprobe", "/no/such/file"],
    ),
    ("dprobes doctor [-p PID|NAME]", &["ok  new program", "ok  tracing  allowed"]),
    ("dprobes header PROVIDER.d", &["SHOP_SOLD"]),
    ("dprobes watch -p PID VARIABLE", &["serve+"]),
    (
        "dprobes run --at MODULE:FUNCTION[:POINT] [--do STATEMENTS] -- CMD ARGS...",
        &["a.out:serve:entry", "a.out:serve:return", "dprobes: summary"],
    ),
    (
        "dprobes attach|top|insert --at MODULE:FUNCTION[:POINT] [--do STATEMENTS] -p PID",
        &["a.out:serve:entry", "a.out:serve:return"],
    ),
    ("dprobes top PROG.rpn (-p PID | -- CMD ARGS...)", &["svc:serve"]),
    ("dprobes check PROG.rpn [--emit asm] [--arch MACHINE]", &["1 probe in ", "push r, rdi"]),
    ("dprobes trace [-p PID] SCRIPT [-- CMD ARGS...]", &["@: "]),
    ("dprobes check SCRIPT.bt [--emit ast]", &["uprobe"]),
    ("dprobes check -e TEXT", &[]),
    (
        "dprobes list (FILE | -p PID) [PATTERN] [--points POINT] [--tactics [--json]]",
        &["svc:serve", "svc:serve+0x", "plain", "\"plain\""],
    ),
    ("dprobes insert PROG.rpn [-p PID]", &[]),
    ("dprobes query|getvars|remove (--name MODULE | --all)", &["serve"]),
    ("dprobes build-ppdf PROG.rpn -o FILE", &["wrote out"]),
    ("dprobes apply-ppdf FILE -p PID", &[]),
    ("dprobes show FILE.dpt [--info]", &["a.out:serve:entry", "a.out:serve:return"]),
    ("dprobes format FILE.dpt", &["a.out:serve:entry"]),
    (
        "dprobes convert FILE.dpt --to json|csv|ctf|perfetto|otlp|parquet",
        &["\"number\":0,", "number,time,iso,cpu", "wrote "],
    ),
    ("dprobes report FILE.dpt [--html FILE]", &["timeline", "wrote out.html"]),
    ("dprobes report FILE.dpt --functions|--graph|--replay", &["serve"]),
    ("dprobes serve FILE.dpt", &["http://"]),
    ("dprobes templates check|list DIR", &["6 templates in 5 files", "request for memory"]),
    ("dprobes session start|status|stop", &[]),
    ("dprobes session start --max-overhead 5%", &[]),
    ("dprobes help [COMMAND|TOPIC]", &["Usage: dprobes run", "coverage"]),
    ("dprobes man dprobes|lang", &[".TH"]),
    ("dprobes completions SHELL", &["complete"]),
    ("dprobes --insert FILE", &[]),
    ("dprobes -q --all", &["serve"]),
    ("dprobes -g --all --reset", &[]),
    // README.md: options
    ("-D KEY=VALUE", &["dprobes: summary"]),
    ("-I DIR", &["dprobes: summary"]),
    ("-l ITEMS", &["[", "dprobes: summary"]),
    ("--log ITEMS", &["[", "dprobes: summary"]),
    ("--log-format line|klog", &["DProbes(0,0) cpu=", "svc:serve 0x"]),
    ("-o FILE", &["wrote out"]),
    ("--log-target TARGET", &["wrote "]),
    ("--max-overhead 5%|none", &["dprobes: summary"]),
    ("-v", &["codes"]),
    ("--quiet", &["!dprobes: summary"]),
    ("--strict", &["dprobes: summary"]),
    ("--templates DIR", &["dprobes: summary"]),
    ("--lossless", &["0 lost"]),
    ("--buffer SIZE", &["dprobes: summary"]),
    ("--share-variables", &["dprobes: summary"]),
    ("--stats FILE", &["wrote out"]),
    ("--plugin FILE.so", &["wrote events.txt"]),
    ("--engine auto|jump|trap", &["jump", "trap"]),
    ("--group LIST", &["svc:serve"]),
    ("--type LIST", &["svc:serve"]),
    ("--sym FILE", &["svc:serve"]),
    ("-f", &["DProbes(0,0)  "]),
    ("--unformatted-output", &["DProbes(0,0)  "]),
    ("--dont-verify-opcodes", &["svc:serve"]),
    // docs/tutorial.md
    ("dprobes help examples -o DIR", &["slow.c"]),
    ("dprobes doctor -p PID", &["ok  tracing  allowed"]),
    // docs/cookbook.md
    ("dprobes attach -p svc --at libc:malloc", &["libc:malloc:entry"]),
    ("dprobes latency -p svc a.out:serve -f json", &["\"average\""]),
    ("dprobes latency -p svc a.out:serve --by ARGUMENT", &["@call_ns[serve, "]),
    ("dprobes stacks -p svc libc:usleep --flame FILE.svg", &["wrote out.svg"]),
    ("dprobes stacks -p svc libc:usleep -f folded", &[";serve;usleep "]),
    ("dprobes trace -lv -p svc 'uprobe:a.out:serve'", &["struct client* client", "returns int"]),
    ("dprobes tools run opens -p svc", &["/no/such/file"]),
    ("dprobes tools run plockstat -p svc", &["store"]),
    ("dprobes help coverage", &["branches"]),
    ("dprobes list -u /usr/bin/python3", &["gc__start"]),
    ("dprobes tools run pygc -- python3 -c 'import json'", &["@us[2]"]),
    // docs/one-liners.md
    ("dprobes trace -p svc 'profile:hz:99 { @[ustack] = count(); }'", &[]),
];

/// The document, what it shows, and why no test of the documents runs it.
pub(crate) const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "cargo run --release -- run examples/malloc.rpn -- ls -l /",
        "builds dprobes anew; the session below it runs the same",
    ),
    ("README.md", "cargo test --workspace", "this is what runs here"),
    ("README.md", "cargo install", "builds dprobes anew; .ci/run installs it"),
    ("README.md", "cargo run --release -p dprobes-bench --bin trap", "a measurement"),
    (
        "docs/cookbook.md",
        "genhtml svc.info -o html",
        "a program of others (lcov); coverage's own test compares the file",
    ),
    ("docs/tasks.md", "exit 3", "a statement; the session below it has it"),
    ("docs/one-liners.md", "mount -t tracefs tracefs /sys/kernel/tracing", "changes the machine"),
];
