//! Limits of a handler's run: its number of instructions, and what Ctrl-C can interrupt; by jumps
//! and by traps.

use crate::support::{Outcome, Run, attach, need, start_server, target};
use std::time::{Duration, Instant};

/// Runs `leaf 20` with a probe on leaf_work by each engine.
fn by_each_engine(file: &str, header: &str, handler: &str, check: impl Fn(&str, &Outcome)) -> Option<()> {
    let program = target("leaf")?;
    let text = format!(
        "name = \"{}\"\nmodtype = user\nvars = 2\n{file}\noffset = leaf_work\nminor = 4\n{header}\n{handler}\n",
        program.display()
    );
    for engine in ["--engine=jump", "--engine=trap"] {
        let run = Run::new(&text).option(engine);
        let outcome = run.on([program.as_os_str(), "20".as_ref()]).ended_with(7);
        assert_eq!(outcome.stdout, "calls 20 sum 670\n", "{outcome:#?}");
        check(engine, &outcome);
    }
    Some(())
}

/// A handler of `length` instructions called `times` times.
fn long(length: usize, times: usize) -> String {
    let calls = "call long\n".repeat(times);
    let nops = "nop\n".repeat(length - 2);
    format!("{calls}exit\nproc long\ninc lv, 1\n{nops}ret\nendproc\n")
}

#[test]
fn a_run_ends_at_insmax() {
    // Executes `inc` and `jmp` up to the limit; what was logged before is kept.
    let handler = "push 7\nlog 1\nagain: inc lv, 0\njmp again";
    let ended = by_each_engine("jmpmax = 65535\ninsmax = 20002", "", handler, |engine, outcome| {
        assert_eq!(outcome.stats.locals, [20 * 10_000, 0], "{engine}: {outcome:#?}");
        assert_eq!((outcome.stats.runs(4), outcome.stats.logged(4)), (20, 20), "{engine}: {outcome:#?}");
    });
    need!("bounds", ended, "gcc");
}

#[test]
fn a_run_of_procedures_ends_at_insmax_too() {
    // Three calls and two returns of 1000 instructions each, and nothing of the fourth call.
    let ended = by_each_engine("insmax = 3003", "", &long(1000, 9), |engine, outcome| {
        assert_eq!(outcome.stats.locals, [0, 20 * 3], "{engine}: {outcome:#?}");
    });
    need!("bounds", ended, "gcc");
}

/// Attaches with a handler that takes minutes per hit, and interrupts it with Ctrl-C.
fn ctrl_c_ends_a_long_run(engine: &str) {
    let program = need!("bounds", target("server"), "gcc");
    let mut server = start_server(&program);
    let pid = server.pid();
    // Each procedure calls the next one twice: 2^15 calls of the last, without a jump.
    let levels: String = (0..15)
        .map(|level| format!("proc p{level}\ncall p{0}\ncall p{0}\nret\nendproc\n", level + 1))
        .collect();
    let nops = "nop\n".repeat(100_000);
    let text = format!(
        "name = \"{}\"\nmodtype = user\ninsmax = 0x40000000\noffset = server_work\ncall p0\nexit\n{levels}proc p15\n{nops}ret\nendproc\n",
        program.display()
    );
    let mut attached = attach(pid, &text, &[engine]);
    attached.wait_for(pid, &program, "server_work");
    server.send("call 100");
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let outcome = attached.stop(libc::SIGINT);
    let took = start.elapsed();
    assert_eq!(outcome.status.code(), Some(0), "{outcome:#?}");
    // 2^30 instructions take several seconds on any machine, and the tracer is twice as slow here;
    // a hundred of them take minutes.
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(server.line(), "done 100");
    let (status, _) = server.end();
    assert!(status.success());
}

#[test]
fn ctrl_c_ends_a_long_run_in_the_process() {
    ctrl_c_ends_a_long_run("--engine=jump");
}

#[test]
fn ctrl_c_ends_a_long_run_of_a_trap() {
    ctrl_c_ends_a_long_run("--engine=trap");
}

#[test]
fn remove_in_the_last_run_that_maxhits_allows_keeps_its_record() {
    let handler = "inc lv, 0\npush lv, 0\nlog 1\npush lv, 0\npush 3\nsub\njz out\nexit\nout: remove";
    let kept = by_each_engine("", "maxhits = 3", handler, |engine, outcome| {
        let stats = &outcome.stats;
        assert_eq!((stats.runs(4), stats.logged(4)), (3, 3), "{engine}: {outcome:#?}");
        assert_eq!(outcome.headers().len(), 3, "{engine}: {outcome:#?}");
        assert_eq!(stats.locals, [3, 0], "{engine}: {outcome:#?}");
    });
    need!("bounds", kept, "gcc");
}

#[test]
fn a_long_handler_whose_operands_look_like_an_exit_to_a_facility_is_a_jump() {
    // 0x0e is the opcode of `exit N`.
    let handler = format!("{}push 0x10e\nlog 1\nexit", "nop\n".repeat(5000));
    let ran = by_each_engine("", "", &handler, |engine, outcome| {
        assert_eq!((outcome.stats.runs(4), outcome.stats.logged(4)), (20, 20), "{engine}: {outcome:#?}");
    });
    need!("bounds", ran, "gcc");
}
