//! Ignoring, stopping, removing; variables, and records with their bytes.

use crate::support::{Outcome, Run, need, target};

/// Runs `leaf 100` with a probe on leaf_work whose header and handler are given.
fn leaf(file: &str, header: &str, handler: &str, options: &[&str]) -> Option<Outcome> {
    let program = target("leaf")?;
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 9\nvars = 2\ngvars = 1\n{file}\noffset = leaf_work\nminor = 4\n{header}\n{handler}\n",
        program.display()
    );
    let run = options.iter().fold(Run::new(&text), Run::option);
    let outcome = run.on([program.as_os_str(), "100".as_ref()]).ended_with(7);
    assert_eq!(outcome.stdout, "calls 100 sum 15350\n", "{outcome:#?}");
    Some(outcome)
}

#[test]
fn ignore_passes_the_first_hits_over() {
    let outcome = need!("counts", leaf("", "ignore = 30", "inc lv, 0\nexit", &[]), "gcc");
    assert_eq!(
        (outcome.stats.hits(4), outcome.stats.ignored(4), outcome.stats.runs(4)),
        (100, 30, 70),
        "{outcome:#?}"
    );
    assert_eq!(outcome.stats.locals, [70, 0]);
    assert_eq!(outcome.stats.probes[0].major, 9);
}

#[test]
fn maxhits_disables_the_probe() {
    let outcome = need!("counts", leaf("", "maxhits = 5", "push 1\nlog 1\nexit", &[]), "gcc");
    assert_eq!(
        (outcome.stats.runs(4), outcome.stats.logged(4), outcome.headers().len()),
        (5, 5, 5),
        "{outcome:#?}"
    );
}

#[test]
fn first_ignore_then_maxhits() {
    let outcome =
        need!("counts", leaf("", "ignore = 10\nmaxhits = 5", "push r, rdi\nlog 1\nexit", &[]), "gcc");
    assert_eq!((outcome.stats.ignored(4), outcome.stats.runs(4)), (10, 5), "{outcome:#?}");
    let first = outcome.records.lines().nth(1).expect("a record has a row of bytes");
    assert_eq!(
        first, "DProbes(9,4)  0x00000000 : 0a000000 00000000                   : ........",
        "{outcome:#?}"
    );
}

#[test]
fn remove_keeps_the_record_and_takes_the_probe_out() {
    let outcome = need!("counts", leaf("", "", "push 1\nlog 1\nremove", &[]), "gcc");
    assert_eq!(
        (outcome.stats.runs(4), outcome.stats.logged(4), outcome.headers().len()),
        (1, 1, 1),
        "{outcome:#?}"
    );
}

#[test]
fn abort_drops_the_record_and_counts_the_hit() {
    let outcome = need!("counts", leaf("", "", "inc gv, 0\npush 1\nlog 1\nabort", &[]), "gcc");
    assert_eq!(
        (outcome.stats.hits(4), outcome.stats.runs(4), outcome.stats.logged(4)),
        (100, 100, 0),
        "{outcome:#?}"
    );
    assert_eq!(outcome.stats.globals, [100]);
    assert_eq!(outcome.headers().len(), 0, "{outcome:#?}");
}

#[test]
fn a_record_holds_what_was_logged_top_first_in_rows_of_16() {
    let handler = "push 0x1122334455667788\npush 0x41\npush 0x4847464544434241\nlog 3\nremove";
    let outcome = need!("counts", leaf("", "", handler, &[]), "gcc");
    let lines: Vec<&str> = outcome.records.lines().collect();
    assert_eq!(lines.len(), 3, "{outcome:#?}");
    assert!(lines[0].starts_with("DProbes(9,4) cpu=") && lines[0].contains(" pid="), "{outcome:#?}");
    assert_eq!(lines[1], "DProbes(9,4)  0x00000000 : 41424344 45464748 41000000 00000000 : ABCDEFGHA.......");
    let last = "DProbes(9,4)  0x00000010 : 88776655 44332211                   : ";
    assert!(lines[2].starts_with(last), "{}", lines[2]);
}

#[test]
fn every_header_item_in_the_manuals_order() {
    let outcome = need!("counts", leaf("", "", "push 1\nlog 1\nremove", &["-l", "ALL"]), "gcc");
    let header = outcome.headers()[0];
    let items: Vec<&str> = header
        .split_whitespace()
        .skip(1)
        .map(|item| item.split('=').next().expect("an item has a name"))
        .collect();
    assert_eq!(items, ["cpu", "name", "pid", "uid", "cs", "eip", "ss", "esp", "tsc"], "{header}");
    let item = |name: &str| header.split(&format!(" {name}=")).nth(1).and_then(|rest| rest.split(' ').next());
    let hex = |name| item(name).and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    assert_eq!(item("name"), Some("leaf"), "{header}");
    assert_eq!((hex("cs"), hex("ss")), (Some(0x33), Some(0x2b)), "{header}");
    assert!(hex("eip") > Some(0x1000) && hex("esp") > Some(0x1000), "{header}");
}

#[test]
fn setmin_and_setmaj_rename_one_record_only() {
    let handler = "push lv, 0\njnz plain\ninc lv, 0\nsetmin 77\nsetmaj 66\nplain: push 1\nlog 1\nexit";
    let outcome = need!("counts", leaf("", "maxhits = 3", handler, &[]), "gcc");
    let names: Vec<&str> =
        outcome.headers().iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(names, ["DProbes(66,77)", "DProbes(9,4)", "DProbes(9,4)"], "{outcome:#?}");
}

#[test]
fn a_handler_changes_a_register_and_memory() {
    let program = need!("counts", target("leaf"), "gcc");
    let text = format!(
        "name = \"{}\"\nmodtype = user\noffset = leaf_work\nminor = 1\npush 1000\npop r, rdi\nexit\n",
        program.display()
    );
    let outcome = Run::new(&text).on([program.as_os_str(), "10".as_ref()]).ended_with(7);
    assert_eq!(outcome.stdout, "calls 10 sum 30050\n", "{outcome:#?}");
}

#[test]
fn a_handler_that_would_never_end_is_ended_and_the_program_goes_on() {
    let outcome =
        need!("counts", leaf("jmpmax = 100", "", "push 1\nagain: inc lv, 0\njmp again", &[]), "gcc");
    assert_eq!(outcome.stats.runs(4), 100, "{outcome:#?}");
    assert_eq!(outcome.stats.locals, [100 * 101, 0], "{outcome:#?}");
}

#[test]
fn a_handler_that_reads_what_is_not_mapped_is_ended_and_the_program_goes_on() {
    let outcome =
        need!("counts", leaf("", "", "inc lv, 0\npush 8\npush mem, u64\ninc lv, 1\nexit", &[]), "gcc");
    assert_eq!(outcome.stats.locals, [100, 0], "{outcome:#?}");
}

#[test]
fn defines_from_the_command_line_and_included_files() {
    let program = need!("counts", target("leaf"), "gcc");
    let scratch = crate::support::Scratch::new();
    scratch.file("counting.rpn", "#ifdef TWICE\ninc lv, 0\n#endif\ninc lv, 0\n");
    let text = "name = MODULE\nmodtype = user\nvars = 1\noffset = POINT\nminor = 1\n#include \"counting.rpn\"\nexit\n";
    let module = format!("MODULE=\"{}\"", program.display());
    let outcome = Run::new(text)
        .option("-D")
        .option(module)
        .option("-D")
        .option("POINT=leaf_work")
        .option("-D")
        .option("TWICE=1")
        .option("-I")
        .option(scratch.path())
        .on([program.as_os_str(), "10".as_ref()])
        .ended_with(7);
    assert_eq!(outcome.stats.locals, [20], "{outcome:#?}");
}

#[test]
fn log_str_and_log_mrf_carry_their_prefixes() {
    let program = need!("counts", target("signals"), "gcc");
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 2\noffset = signals_string\nminor = 1\n\
         push 9\npush r, rsi\nlog mrf\npush 200\npush r, rsi\nlog str\nremove\n",
        program.display()
    );
    let outcome = Run::new(&text).on([program.as_os_str(), "3".as_ref(), "quiet".as_ref()]).ended_with(0);
    let rows: Vec<&str> =
        outcome.records.lines().skip(1).filter_map(|line| line.split(" : ").nth(1)).collect();
    let bytes: String = rows.concat().split_whitespace().collect();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let string = "the quick brown fox jumps over the lazy dog, and again";
    let length = string.len();
    let expected = format!("000900{}01{length:02x}00{}", hex("the quick"), hex(string));
    assert_eq!(bytes, expected, "{outcome:#?}");
}
