//! Processes of different users share no variables and no counters: none can change another's.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{FORGED, Outcome, Run, Scratch, need, target};

/// Calls of the parent, without one before and one after all others.
const CALLS: u64 = 20_000;

fn program() -> Option<PathBuf> {
    target("strangers")
}

/// Counts in all kinds of variables at one probe, and lets the other run up to `most` times.
fn counting(program: &Path, most: u64, log: &str) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 4\nvars = 2\n\
         offset = strangers_work\nminor = 1\nmaxhits = 0xffffffffffffffff\n\
         inc lv, 0\npush r, rdi\npop lv, 1\ninc gv, 0\n{log}\n\
         offset = strangers_few\nminor = 2\nmaxhits = {most}\nabort\n",
        program.display()
    )
    .replace("vars = 2\n", "vars = 2\ngvars = 1\n")
}

fn run(program: &Path, how: &str, text: &str, options: &[&str]) -> Outcome {
    let run = options.iter().fold(Run::new(text), |run, option| run.option(option));
    let calls = CALLS.to_string();
    let outcome = run.on([program.as_os_str(), how.as_ref(), calls.as_ref()]).ended_with(0);
    assert_eq!(outcome.stdout, "done\n");
    outcome
}

/// Checks the counts of root's processes, which have called each function `calls` times.
#[track_caller]
fn roots_counts_are(outcome: &Outcome, calls: u64) {
    let of: Vec<_> = outcome.stats.users.iter().map(|user| &user.name[..]).collect();
    assert_eq!(of, ["root", "user 4242, group 4242"], "{}", outcome.stderr);
    let root = &outcome.stats.users[0];
    assert_eq!(
        (&root.hits[..], &root.locals[..], &root.globals[..]),
        (&[calls, calls][..], &[calls, 1][..], &[calls][..])
    );
}

#[test]
fn a_program_of_another_user_changes_no_count_and_ends_no_probe_but_its_own() {
    let program = need!("domains", program(), "gcc");
    if !testing::is_root() {
        return testing::skipped("domains", "root");
    }
    FORGED.set(true);
    // One child executes a program, and one drops its rights in place.
    for how in ["exec", "drop"] {
        for (log, options) in [("abort", &[][..]), ("push r, rdi\nlog 1\nexit", &["--lossless"])] {
            let options = [&["--engine=jump"], options].concat();
            let outcome = run(&program, how, &counting(&program, 10_000_000, log), &options);
            roots_counts_are(&outcome, CALLS + 2);
            assert_eq!(outcome.stats.probes[1].state, "armed", "{}", outcome.stderr);
            assert!(outcome.stats.users[1].hits[1] == 10_000_000, "the other has written over its own");
        }
    }
}

#[test]
fn who_calls_a_setuid_program_changes_no_count_of_it() {
    let program = need!("domains", program(), "gcc");
    if !testing::is_root() {
        return testing::skipped("domains", "root");
    }
    FORGED.set(true);
    let scratch = Scratch::new();
    let trusted = scratch.path().join("strangers-of-root");
    std::fs::copy(&program, &trusted).expect("it can be copied");
    std::fs::set_permissions(&trusted, Permissions::from_mode(0o4755)).expect("it is this test's");
    // Both files match; only their functions have names in common.
    let text = counting(&program, 0, "abort").replace(&program.display().to_string(), "*strangers*");
    let text = text.replace("offset = strangers_work", "offset = strangers_work:entry");
    let text =
        text.replace("offset = strangers_few", "offset = strangers_few:entry").replace("maxhits = 0\n", "");
    let calls = CALLS.to_string();
    let run = Run::new(&text).option("--engine=jump");
    let outcome =
        run.on([program.as_os_str(), "setuid".as_ref(), calls.as_ref(), trusted.as_ref()]).ended_with(0);
    if outcome.stdout == "no setuid here\n" {
        return testing::skipped("domains", "a file system with setuid programs");
    }
    assert_eq!(outcome.stdout, "done\n");
    roots_counts_are(&outcome, CALLS + 2);
}

#[test]
fn each_user_has_turns_of_its_own_unless_all_share_them() {
    let program = need!("domains", program(), "gcc");
    if !testing::is_root() {
        return testing::skipped("domains", "root");
    }
    let all = 2 * CALLS + 2;
    for engine in ["--engine=jump", "--engine=trap"] {
        let text = counting(&program, 50, "abort");
        let counts = |outcome: &Outcome| {
            let [work, few] = &outcome.stats.probes[..] else { panic!("{}", outcome.stderr) };
            assert_eq!((&outcome.stats.locals[..1], &outcome.stats.globals[..]), (&[all][..], &[all][..]));
            (work.hits, few.hits, few.state.clone())
        };
        let apart = run(&program, "calls", &text, &[engine]);
        assert_eq!(counts(&apart), (all, 100, "disabled".to_owned()), "{}", apart.stderr);
        assert_eq!(
            apart.stats.users.iter().map(|user| user.locals[0]).collect::<Vec<_>>(),
            [CALLS + 2, CALLS]
        );
        let shared = run(&program, "calls", &text, &[engine, "--share-variables"]);
        assert_eq!(counts(&shared), (all, 50, "disabled".to_owned()), "{}", shared.stderr);
        assert!(shared.stats.users.is_empty());
    }
}

/// There are 128 domains at a time: processes of further users are trapped or, with jumps only, not
/// probed; each is reported.
#[test]
fn more_users_than_can_be_told_apart_are_trapped() {
    const USERS: u64 = 140;
    /// One of them is root's, whose process makes no call.
    const DOMAINS: u64 = 128;
    let program = need!("domains", program(), "gcc");
    if !testing::is_root() {
        return testing::skipped("domains", "root");
    }
    let text = counting(&program, 1 << 40, "abort");
    for (engine, probed) in [("auto", USERS), ("trap", USERS), ("jump", DOMAINS - 1)] {
        let run = Run::new(&text).option(format!("--engine={engine}"));
        let outcome =
            run.on([program.as_os_str(), "many".as_ref(), USERS.to_string().as_ref()]).ended_with(0);
        assert_eq!(outcome.stdout, "done\n", "{engine}");
        let hits = outcome.stats.probes[0].hits;
        assert_eq!((outcome.stats.locals[0], outcome.stats.globals[0]), (hits, hits), "{engine}");
        let told = outcome.stderr.matches("too many trust domains").count() as u64;
        assert_eq!(hits, 10 * probed, "{engine}: {}", outcome.stderr);
        if engine == "jump" {
            assert_eq!(told, USERS - probed, "each is told: {}", outcome.stderr);
        }
    }
}
