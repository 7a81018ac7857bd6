//! Threads that come and go while the tracer does.

use std::path::Path;

use crate::support::{Run, Server, attach, counting, is_traced, need, target, text_differences};

#[test]
fn threads_born_while_attached_are_counted_and_those_dying_do_no_harm() {
    come_and_go(&need!("threads", target("threads"), "gcc"), 15);
}

/// Attaches `rounds` times to the program `threads`, whose threads begin and end meanwhile.
pub(crate) fn come_and_go(program: &Path, rounds: u32) {
    let mut server = Server::start(program, [] as [&str; 0]);
    let pid = server.pid();
    assert_eq!(server.ask("pid"), format!("pid {pid}"));
    for round in 0..rounds {
        let mut attached = attach(pid, &counting(program, ["threads_work"]), &[]);
        attached.wait_for(pid, program, "threads_work");
        assert_eq!(server.ask("run 100"), "done 1000");
        let outcome = attached.stop(libc::SIGINT);
        assert_eq!(outcome.stats.hits(1), 1000, "round {round}: {outcome:#?}");
        assert!(!is_traced(pid), "round {round}");
        assert_eq!(text_differences(pid), [""; 0], "round {round}");
        assert_eq!(server.ask("run 10"), "done 100");
    }
    server.send("quit");
    let (status, _) = server.end();
    assert!(status.success());
}

/// A thread that moves to another processor after each hit logs into the rings of both in turn. The
/// tracer reads one ring after the other while it does.
#[test]
fn the_records_of_a_thread_that_changes_processors_stay_in_order() {
    let program = need!("threads: processors", target("migrates"), "gcc");
    let calls = testing::rounds(60_000, 600_000).to_string();
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmaxhits = 0xffffffffffffffff\noffset = numbered\n\
         push r, rdi\nlog 1\nexit\n",
        program.display()
    );
    let run = Run::new(&text).option("--engine=jump").option("--lossless");
    let outcome = run.on([program.as_os_str(), calls.as_ref()]).ended_with(0);
    // On a machine with one processor it stays where it is.
    let said = outcome.stdout.trim();
    assert!([1, 2].iter().any(|count| said == format!("calls {calls} processors {count}")), "{said}");
    let rows = outcome.records.lines().filter_map(|line| line.split(" : ").nth(1));
    // The bytes of a word in their order in memory, the lowest first.
    let number = |bytes: &str| {
        let word = u64::from_str_radix(&bytes.replace(' ', ""), 16).expect("eight bytes");
        word.swap_bytes()
    };
    let numbers: Vec<u64> = rows.map(number).collect();
    assert_eq!(numbers.len().to_string(), calls);
    let wrong: Vec<_> = numbers.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
    assert!(
        wrong.is_empty(),
        "{} of {calls} records are out of order: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
}
