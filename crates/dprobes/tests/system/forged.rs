//! A process that writes forged data into its own rings can falsify its own records, and nothing
//! else.

use crate::support::{FORGED, Server, attach, need, target};

/// The modes of the target, and whether the forged data are valid records.
const MODES: [(&str, bool); 7] = [
    ("big", true),
    ("random", true),
    ("heads", true),
    ("records", true),
    ("tids", false),
    ("times", false),
    ("waiters", true),
];

/// Bytes of a ring.
const RING: u64 = 64 << 20;

/// Private memory of a process, in KiB. The buffer that a record is read into is kept for the next
/// one.
fn memory_of(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let own = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    // Memory shared with the process belongs to the process.
    own("RssAnon:")
}

#[test]
fn it_takes_no_memory_of_the_reader_and_no_record_of_another_process() {
    let program = need!("forged", target("forger"), "gcc");
    FORGED.set(true);
    let log = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 5\nmaxhits = 0xffffffffffffffff\n\
         offset = forger_work\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        program.display()
    );
    for (mode, is_told) in MODES {
        let mut server = Server::start(&program, [mode, &RING.to_string()]);
        assert_eq!(server.line(), "ready");
        let buffer = format!("--buffer={RING}");
        let mut options = vec!["--engine=jump", &buffer, "--log", "PID"];
        // With threads that may wait, it forges the state that says others wait.
        options.extend((mode == "waiters").then_some("--lossless"));
        let mut attached = attach(server.pid(), &log, &options);
        attached.wait_for(server.pid(), &program, "forger_work");
        let child = server.ask("go");
        let child = child.strip_prefix("child ").expect("its number").to_owned();
        assert_eq!(server.line(), "done", "{mode}");
        let memory = memory_of(attached.tracer());
        server.send("end");
        let outcome = attached.end();
        assert!(outcome.status.success(), "{mode}: {}", outcome.stderr);
        assert_eq!(server.end().0.code(), Some(0), "{mode}");
        // A record of 64 MiB and its text would take several times this.
        assert!(memory < 100 << 10, "{mode}: {memory} KiB");
        let told = outcome.stderr.matches("has invalid records in its own ring").count();
        assert_eq!(told, usize::from(is_told), "{mode}: {}", outcome.stderr);
        assert_eq!(outcome.stats.nonsense > 0, is_told, "{mode}");
        // The records of the child: all of them, each argument once.
        let mut lines = outcome.records.lines();
        let mut arguments = Vec::new();
        while let Some(line) = lines.next() {
            if line.starts_with("DProbes(5,1)")
                && line.split("pid=").nth(1).is_some_and(|pid| pid.trim() == child)
            {
                let data = lines.next().expect("its data");
                let hex: String = data.split(" : ").nth(1).expect("in rows").split_whitespace().collect();
                let low: Vec<u8> = (0..4)
                    .filter_map(|byte| u8::from_str_radix(hex.get(2 * byte..2 * byte + 2)?, 16).ok())
                    .collect();
                arguments.push(u32::from_le_bytes(low.try_into().expect("four bytes")));
            }
        }
        arguments.sort_unstable();
        assert!(arguments.iter().copied().eq(0x1000..0x1000 + 2000), "{mode}: {}", arguments.len());
    }
}
