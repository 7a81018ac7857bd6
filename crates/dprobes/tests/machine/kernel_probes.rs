//! Probes in the kernel: the manual's examples run as programs of dprobes, and what they log is what
//! their first lines say.

use crate::trial::Trial;
use testing::machine::{Command, End, Output};

/// What a session of dprobes in the machine has left.
#[derive(Debug)]
struct Session {
    /// What the program that was run has printed.
    said: String,
    records: Vec<Record>,
    stats: serde_json::Value,
}

/// A record as text: its codes, the process's name, the bytes.
#[derive(Clone, Debug)]
struct Record {
    codes: (u32, u32),
    name: String,
    pid: u32,
    data: Vec<u8>,
}

impl Record {
    fn word(&self, place: usize) -> u64 {
        self.data
            .get(place..place + 8)
            .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8])))
    }
}

/// Shell lines that run a session: `before`, dprobes with its options, `run` while the probes are in,
/// `after`. They print the parts that [`Session::of`] reads.
fn session(before: &str, options: &str, run: &str, after: &str) -> String {
    format!(
        "{before}
        rm -f log stats told
        dprobes attach {options} --log-format klog --log PROCNAME,PID -o log --stats stats > told 2>&1 &
        tracer=$!
        until grep -q ' armed in ' told; do kill -0 $tracer || {{ cat told; exit 9; }}; sleep 0.1; done
        {run} > said
        kill -TERM $tracer
        wait $tracer || {{ cat told; exit 8; }}
        {after}
        cat said
        echo == stats
        cat stats
        echo == log
        cat log"
    )
}

impl Session {
    #[track_caller]
    fn of(text: &str) -> Session {
        let (said, rest) = text.split_once("== stats\n").expect("the parts are there");
        let (stats, log) = rest.split_once("== log\n").expect("the parts are there");
        let mut records: Vec<Record> = Vec::new();
        for line in log.lines() {
            let codes = line.strip_prefix("DProbes(").and_then(|rest| rest.split_once(')'));
            let (codes, rest) = codes.unwrap_or_else(|| panic!("a line of another form: {line}"));
            let (major, minor) = codes.split_once(',').expect("two codes");
            let codes = (major.parse().expect("a code"), minor.parse().expect("a code"));
            match rest.split_once(" : ") {
                Some((_, row)) => {
                    let hex =
                        row.split(" : ").next().unwrap_or_default().split_whitespace().collect::<String>();
                    let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16));
                    let record = records.last_mut().expect("a header comes first");
                    record.data.extend(bytes.map(|byte| byte.expect("two digits")));
                }
                None => {
                    let value = |key: &str| {
                        rest.split_whitespace()
                            .find_map(|word| word.strip_prefix(key))
                            .unwrap_or_default()
                            .to_owned()
                    };
                    let pid = value("pid=").parse().unwrap_or(0);
                    records.push(Record { codes, name: value("name="), pid, data: Vec::new() });
                }
            }
        }
        let stats = serde_json::from_str(stats).expect("it is JSON");
        Session { said: said.to_owned(), records, stats }
    }

    /// The records with these codes of a process of this name.
    fn of_process(&self, name: &str, codes: (u32, u32)) -> Vec<&Record> {
        self.records.iter().filter(|record| record.name == name && record.codes == codes).collect()
    }

    /// The process id that the program printed.
    fn pid(&self) -> u32 {
        let rest = self.said.split("pid ").nth(1).expect("it prints its number");
        rest.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    }

    fn local(&self, number: usize) -> u64 {
        self.stats["locals"][number].as_u64().expect("there is such a variable")
    }
}

fn example(
    name: &'static str,
    (file, before, run, after): (&str, &str, &str, &str),
    check: impl FnOnce(&Session) + Send + 'static,
) -> Trial {
    let lines = session(before, &format!("/examples/{file}.rpn"), run, after);
    Trial::shell(name, &lines, move |text| check(&Session::of(text)))
}

/// Whether an address is one of the kernel's half.
fn is_of_the_kernel(address: u64) -> bool {
    address >= 1 << 63
}

fn fork(session: &Session) {
    let records = session.of_process("calls", (2, 1));
    assert_eq!(records.len(), 10, "{session:#?}");
    for record in &records {
        assert_eq!(record.data.len(), 16, "{record:?}");
        assert!(is_of_the_kernel(record.word(0)) && record.word(0) == records[0].word(0), "{records:#?}");
        assert_eq!((record.word(8), record.pid), (u64::from(session.pid()), session.pid()));
    }
}

fn network(session: &Session) {
    // The nop of five bytes, or the call of the function tracer in its place.
    let is_entry = |code: &[u8]| code.starts_with(&[0x0f, 0x1f, 0x44, 0, 0]) || code[0] == 0xe8;
    let open = session.of_process("calls", (0, 0));
    assert_eq!((open.len(), open[0].data.len()), (1, 24), "{session:#?}");
    assert!(open[0].data.starts_with(&[0x0f, 0x1f, 0, 0]) || open[0].data[0] == 0xe8, "{open:#?}");
    let sent = session.of_process("calls", (0, 1));
    assert_eq!(sent.len(), 7, "{session:#?}");
    for record in &sent {
        assert_eq!((record.data.len(), &record.data[..3]), (19, &[0, 0x10, 0][..]), "{record:?}");
        assert!(is_entry(&record.data[3..]), "{record:?}");
    }
    let closed = session.of_process("calls", (0, 2));
    assert_eq!((closed.len(), closed[0].word(19)), (1, u64::from(session.pid())), "{session:#?}");
    assert!(is_entry(&closed[0].data[3..]), "{closed:#?}");
}

fn count(session: &Session) {
    assert!(session.records.is_empty() && session.local(1) >= 25, "{session:#?}");
    assert_eq!((session.local(0), session.local(2)), (0, 0));
}

fn swap_out(session: &Session) {
    let records = session.of_process("calls", (0, 1));
    assert_eq!(records.len(), 50, "{session:#?}");
    for record in records {
        assert_eq!((record.data.len(), &record.data[16..19]), (35, &[0, 0, 0][..]), "{record:?}");
        assert_eq!(record.word(19) as i64, -38, "the user's rax is -ENOSYS: {record:?}");
    }
    assert_eq!(session.stats["probes"][0]["ignored"], 5);
}

/// Checks that entries and exits of the example with groups log the kernel's stack.
fn entries_and_exits(session: &Session, name: &str, (entry, exit): (u32, u32), least: usize, exactly: bool) {
    let (entries, exits) = (session.of_process(name, (1, entry)), session.of_process(name, (1, exit)));
    assert_eq!(entries.len(), exits.len(), "{entry} {exit}");
    assert!(entries.len() == least || (!exactly && entries.len() > least), "{entry}: {}", entries.len());
    for record in entries.iter().chain(&exits) {
        // An exception from user mode has emptied ss.
        assert!(matches!(record.word(0), 0 | 0x18) && is_of_the_kernel(record.word(8)), "{record:?}");
    }
}

fn fork_and_kill(session: &Session) {
    let own: Vec<&Record> = session.records.iter().filter(|record| record.name == "calls").collect();
    let codes: Vec<(u32, u32)> = own.iter().map(|record| record.codes).collect();
    assert_eq!(codes, [(1, 2), (1, 1)].repeat(12), "{session:#?}");
    for record in own {
        assert_eq!((record.data.len(), &record.data[..3]), (19, &[0, 0x10, 0][..]), "{record:?}");
        assert!(is_of_the_kernel(record.word(3)), "it returns into the kernel: {record:?}");
    }
    assert!(session.local(0) >= 12 && session.local(1) >= 12, "{session:#?}");
}

fn watch_kernel(session: &Session) {
    let values: Vec<u64> = session.records.iter().map(|record| record.word(0)).collect();
    assert!(values.len() >= 10, "{session:#?}");
    // A thread that dprobes itself makes is counted by the kernel, and not probed.
    assert!(values.windows(2).all(|pair| pair[1] > pair[0] && pair[1] <= pair[0] + 3), "{session:#?}");
}

fn watch_user(session: &Session) {
    let own = session.of_process("watched", (0, 0));
    assert_eq!(own.len(), 12, "{session:#?}");
    let (write, read) = (own[0].word(0), own[1].word(0));
    assert!(write != read && write < 1 << 47 && read < 1 << 47);
    assert!(own.chunks(2).all(|pair| (pair[0].word(0), pair[1].word(0)) == (write, read)), "{own:#?}");
}

/// A module that is loaded after its probes were inserted, and unloaded under them.
fn later_module() -> Trial {
    let lines = "
        echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
        printf 'name = ifb\\nmodtype = kmod\\nvars = 1\\noffset = ifb_xmit\\ninc lv, 0\\nabort\\n' > later.rpn
        rm -f stats told
        dprobes attach later.rpn --stats stats > told 2>&1 &
        tracer=$!
        until grep -q 'waiting for it' told; do kill -0 $tracer; sleep 0.1; done
        insmod /modules/ifb.ko numifbs=1
        until grep -q ' armed in ' told; do kill -0 $tracer; sleep 0.1; done
        calls packets 9 ifb0 > /dev/null
        rmmod ifb
        sleep 0.3
        insmod /modules/ifb.ko numifbs=1
        mount -t debugfs none /sys/kernel/debug 2> /dev/null || true
        until grep ifb_xmit /sys/kernel/debug/kprobes/list | grep -qv 'GONE\\|DISABLED'; do
            kill -0 $tracer
            sleep 0.1
        done
        sleep 0.5
        calls packets 4 ifb0 > /dev/null
        kill -TERM $tracer
        wait $tracer
        rmmod ifb
        cat stats";
    Trial::shell("kernel probes: a module that comes later, and again", lines, |text| {
        let stats: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
        assert_eq!((&stats["locals"][0], &stats["probes"][0]["hits"]), (&13.into(), &13.into()), "{text}");
    })
}

/// Entry, any instruction, and return of one function are hit alike; what cannot be probed is said.
fn points() -> Trial {
    let program = "name = vmlinux\\nmodtype = kernel\\nmajor = 1\\n\
                   offset = __x64_sys_getppid:entry\\nminor = 1\\npush pid\\nlog 1\\nexit\\n\
                   offset = __x64_sys_getppid:return\\nminor = 2\\npush r, rax\\nlog 1\\nexit\\n\
                   offset = __x64_sys_getppid:*\\nminor = 3\\nabort\\n";
    let before = format!("printf '{program}' > points.rpn");
    Trial::shell(
        "kernel probes: points of a function",
        &session(&before, "points.rpn", "calls getppid 20", ""),
        |text| {
            let session = Session::of(text);
            let (entries, returns) =
                (session.of_process("calls", (1, 1)), session.of_process("calls", (1, 2)));
            assert_eq!((entries.len(), returns.len()), (20, 20), "{session:#?}");
            assert!(entries.iter().all(|record| record.word(0) == u64::from(session.pid())));
            // The process's parent is the shell.
            assert!(returns.iter().all(|record| record.word(0) == returns[0].word(0) && record.word(0) > 1));
            let each = session.stats["probes"][2]["hits"].as_u64().expect("a count");
            let sites = session.stats["probes"][2]["sites"]["kernel"]["kprobe"].as_u64().expect("a count");
            assert!(sites > 3 && each >= 20 * 3, "{sites} {each}");
        },
    )
}

fn refusals() -> Trial {
    let lines = "
        for point in 'offset = no_such_function' 'offset = exc_nmi' 'offset = vfs_read + 1' \\
            'offset = vfs_read\\nopcode = 0x90'
        do
            printf \"name = vmlinux\\nmodtype = kernel\\n$point\\nabort\\n\" > refused.rpn
            dprobes attach refused.rpn 2>&1 && exit 9 || true
            echo ==
        done";
    Trial::shell("kernel probes: what cannot be probed", lines, |text| {
        let said: Vec<&str> = text.split("==\n").collect();
        for (said, reason) in said.iter().zip([
            "has no function `no_such_function`",
            "no probe can be at",
            "is inside the instruction at",
            "opcode 0x90 expected, 0x0f found",
        ]) {
            assert!(said.contains(reason), "{reason}: {said}");
        }
    })
}

/// `exit 2` with `--allow-panic`: the kernel's crash dump.
fn panics() -> Trial {
    let lines = "
        printf 'name = vmlinux\\nmodtype = kernel\\noffset = __x64_sys_getppid\\nexit 2\\n' > crash.rpn
        dprobes attach crash.rpn > told 2>&1 && exit 9
        grep -q 'allow-panic' told
        dprobes attach --allow-panic crash.rpn > told 2>&1 &
        tracer=$!
        until grep -q ' armed in ' told; do kill -0 $tracer; sleep 0.1; done
        calls getppid 1
        sleep 20";
    Trial::new("kernel probes: exit 2 is a crash dump", Command::shell(lines), |output: &Output| {
        assert_eq!(output.end, End::Panicked("sysrq triggered crash".to_owned()), "{output:#?}");
    })
}

/// The same of a program in the background session.
fn panics_in_a_session() -> Trial {
    let lines = "
        printf 'name = vmlinux\\nmodtype = kernel\\noffset = __x64_sys_getppid\\npush 7 log 1 exit 2\\n' > crash.rpn
        export DPROBES_SESSION_DIR=$PWD/session
        dprobes insert crash.rpn > told 2>&1 && exit 9
        grep -q 'allow-panic' told
        dprobes insert --allow-panic --log-target klog crash.rpn
        calls getppid 1
        sleep 20";
    Trial::new("kernel probes: exit 2 in a session", Command::shell(lines), |output: &Output| {
        assert_eq!(output.end, End::Panicked("sysrq triggered crash".to_owned()), "{output:#?}");
    })
}

/// The background session runs a program for the kernel: it is inserted, shown, and removed.
fn inserted() -> Trial {
    const PROGRAM: &str = "name = vmlinux\nmodtype = kernel\nmajor = 4\nvars = 1\n\
        offset = __x64_sys_getppid\nminor = 1\npush 7 log 1 inc lv, 0\nexit\n";
    let lines = format!(
        "cat > inserted.rpn <<'END'\n{PROGRAM}END\n
        rm -f log
        export DPROBES_SESSION_DIR=$PWD/session
        dprobes insert --log-format klog -o log inserted.rpn
        calls getppid 20 > said
        dprobes query --all
        dprobes getvars --all
        dprobes remove --name vmlinux
        calls getppid 20 > said
        echo == left
        dprobes query --all
        dprobes session stop
        echo == log
        cat log"
    );
    Trial::shell("kernel probes: inserted in a session", &lines, |text| {
        let (shown, rest) = text.split_once("== left\n").expect("the parts are there");
        let (left, log) = rest.split_once("== log\n").expect("the parts are there");
        assert!(shown.starts_with("1 probe inserted in `vmlinux`, by the kernel engine\n"), "{text}");
        assert!(
            shown.contains(" armed    hits ") && shown.contains("  run by the kernel: kprobe 1\n"),
            "{text}"
        );
        let value = shown.split("lv[0] = ").nth(1).and_then(|rest| rest.split(' ').next());
        let value: u64 = value.and_then(|value| value.parse().ok()).expect("the variable is shown");
        let records = log.lines().filter(|line| line.starts_with("DProbes(4,1) cpu=")).count() as u64;
        // The shell may ask for its parent, too, and others meanwhile.
        assert!(value >= 20 && records >= value && records < value + 20, "{text}");
        assert_eq!(left, "", "{text}");
    })
}

pub(crate) fn trials() -> Vec<Trial> {
    let groups = (
        "manual-example-6-groups",
        "insmod /modules/brd.ko rd_nr=1 rd_size=4096; mke2fs /dev/ram0 > /dev/null; mkdir -p /mnt; \
         mount -t ext2 /dev/ram0 /mnt",
        "{ calls write 9 /mnt/file; calls fork 8; calls fault 50; }",
        "umount /mnt; rmmod brd",
    );
    vec![
        panics(),
        panics_in_a_session(),
        example("kernel probes: fork", ("manual-example-2-fork", "", "calls fork 10", ""), fork),
        example(
            "kernel probes: network",
            (
                "manual-example-2-network",
                "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; insmod /modules/ifb.ko numifbs=1",
                "calls packets 7 ifb0",
                "rmmod ifb",
            ),
            network,
        ),
        example("kernel probes: count", ("manual-example-3-count", "", "calls fork 25", ""), count),
        example(
            "kernel probes: swap out",
            (
                "manual-example-4-swap-out",
                "insmod /modules/brd.ko rd_nr=1 rd_size=16384; mkswap /dev/ram0 > /dev/null; swapon /dev/ram0",
                "calls page-out 100",
                "swapoff /dev/ram0; rmmod brd",
            ),
            swap_out,
        ),
        example("kernel probes: groups", groups, |session| {
            entries_and_exits(session, "calls", (5, 6), 9, true);
            entries_and_exits(session, "calls", (7, 8), 50, false);
            let forks = session.of_process("calls", (1, 0)).len();
            assert_eq!((forks, session.of_process("calls", (1, 1)).len()), (8, 8));
            assert!(session.records.iter().any(|record| record.codes == (1, 2)), "{session:#?}");
        }),
        example(
            "kernel probes: fork and kill",
            ("als-example-1-fork-and-kill", "", "calls fork-and-kill 12", ""),
            fork_and_kill,
        ),
        example(
            "kernel probes: watch the kernel",
            ("manual-example-7a-watch-kernel", "", "calls fork 10", ""),
            watch_kernel,
        ),
        example(
            "kernel probes: watch a user program",
            ("manual-example-7b-watch-user", "", "watched 6", ""),
            watch_user,
        ),
        later_module(),
        points(),
        refusals(),
        inserted(),
    ]
}
