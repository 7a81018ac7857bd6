//! What is the same in two outputs of one command at different times.
//!
//! Lines are compared by their shapes: numbers, directories of files, bars of histograms, what a
//! processor adds to the names of functions, and the source lines of frames, which a machine without
//! debug information lacks, are left out, and so is the width of columns. The
//! outputs agree if each shape of one is in the other, at whatever place and however often: maps
//! are sorted by values that change, and histograms have as many rows as there were values. A line
//! `...` in a document stands for any lines.

use std::collections::BTreeSet;

/// What stands in place of a number.
const NUMBER: char = 'N';

/// What differs between the lines that a document shows and those that were printed.
pub(crate) fn differences(shown: &[String], printed: &str) -> Vec<String> {
    let is_shortened = shown.iter().any(|line| line.trim() == "...");
    let wanted: BTreeSet<String> =
        shown.iter().filter(|line| line.trim() != "...").map(|line| shape(line)).collect();
    let found: BTreeSet<String> = printed.lines().map(shape).collect();
    let mut complaints: Vec<String> =
        wanted.difference(&found).map(|shape| format!("not printed: {shape}")).collect();
    if !is_shortened {
        complaints.extend(found.difference(&wanted).map(|shape| format!("not shown: {shape}")));
    }
    complaints.retain(|complaint| !complaint.ends_with(": "));
    complaints
}

/// A line without what changes from run to run.
fn shape(line: &str) -> String {
    // What hits cost is a part of what the processes used, or a multiple of it.
    let cost = "hits took about ";
    if line.starts_with(cost) {
        return cost.trim_end().to_owned();
    }
    let line = without_source_line(without_bar(line));
    let words = line.split_whitespace().map(|word| without_numbers(&without_directory(word)));
    let mut shape: Vec<String> = Vec::new();
    for word in words {
        match shape.last_mut().filter(|before| before.ends_with(NUMBER)).zip(after_unit(&word)) {
            Some((number, rest)) => number.push_str(rest),
            None => shape.push(word),
        }
    }
    shape.join(" ")
}

/// What follows a unit of time: how long something takes may be in another unit each time.
fn after_unit(word: &str) -> Option<&str> {
    let end = word.find([',', ')']).unwrap_or(word.len());
    ["ns", "µs", "ms", "s"].contains(&&word[..end]).then_some(&word[end..])
}

/// `[2, 4)  6 |@@@   |` without its bar.
fn without_bar(line: &str) -> &str {
    let line = line.trim_end();
    match line.strip_suffix('|').and_then(|rest| rest.rsplit_once('|')) {
        Some((rest, bar)) if bar.chars().all(|each| each == '@' || each == ' ') => rest,
        _ => line,
    }
}

/// `        serve+97@svc.c:33` without its source line.
fn without_source_line(line: &str) -> &str {
    match line.rsplit_once('@') {
        Some((frame, place)) if frame.starts_with("  ") && frame.contains('+') && place.contains(':') => {
            frame
        }
        _ => line,
    }
}

/// `/usr/lib/libc.so.6` without its directories, wherever it begins in the word.
fn without_directory(word: &str) -> String {
    let is_path = |each: char| each.is_alphanumeric() || "._-+/".contains(each);
    let Some(begin) = word.find('/') else { return word.to_string() };
    // A slash behind a name is a division, or two alternatives.
    if word[..begin].ends_with(|each: char| each.is_alphanumeric() || each == '.') {
        return word.to_string();
    }
    let length = word[begin..].find(|each| !is_path(each)).unwrap_or(word.len() - begin);
    let path = &word[begin..begin + length];
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{}{name}{}", &word[..begin], without_directory(&word[begin + length..]))
}

/// A word with each number, and each suffix that a processor's variant of a function has, made one.
fn without_numbers(word: &str) -> String {
    let mut made = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        // 2026-11-28T20:33:41: the hour is a number, too.
        let is_hour = made.ends_with("-NT");
        let is_inside = !is_hour && made.ends_with(|each: char| each.is_ascii_alphabetic() && each != NUMBER);
        let digits = rest.find(|each: char| !each.is_ascii_digit() && each != '.').unwrap_or(rest.len());
        let hex = rest.find(|each: char| !each.is_ascii_hexdigit()).unwrap_or(rest.len());
        if let Some(number) = rest.strip_prefix("0x") {
            rest = number.trim_start_matches(|each: char| each.is_ascii_hexdigit());
            made.push(NUMBER);
        } else if !is_inside && hex >= 8 && hex.is_multiple_of(4) {
            rest = &rest[hex..];
            made.push(NUMBER);
        } else if first.is_ascii_digit() && !is_inside {
            let number = rest[..digits].trim_end_matches('.');
            rest = &rest[number.len()..];
            // 4K, 8M
            let unit = rest.strip_prefix(['K', 'M', 'G', 'T']);
            rest = unit.filter(|rest| !rest.starts_with(char::is_alphanumeric)).unwrap_or(rest);
            made.push(NUMBER);
        } else {
            made.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    for variant in ["_avx", "_evex", "_sse", "_erms", "_unaligned"] {
        if made.starts_with("__")
            && let Some(at) = made.find(variant)
        {
            made.truncate(at);
        }
    }
    made
}

/// The rules, on the lines they are for. (The program of these tests has no harness of its own.)
pub(crate) fn examples() {
    for (line, expected) in [
        ("[64, 128)   1576 |@@@@   |", "[N, N) N"),
        ("[1M, 2M)  3 |    |", "[N, N) N"),
        ("[512 ns, 1.02 µs)  3 |    |", "[N, N) N"),
        ("average 3.48 µs, total 1.30 s", "average N, total N"),
        ("armed in /usr/lib/x86_64-linux-gnu/libc.so.6 of process 4744", "armed in libc.so.N of process N"),
        ("  usleep+0", "usleep+N"),
        ("        serve+97@svc.c:33", "serve+N"),
        ("@line[uprobe:a.out:svc.c:33]: 4", "@line[uprobe:a.out:svc.c:N]: N"),
        ("@held[0x55ca5a9d5100]: count 583", "@held[N]: count N"),
        ("654 58.60 __memcpy_avx512_unaligned_erms", "N N __memcpy"),
        ("a.out:dict*:entry 0,0", "a.out:dict*:entry N,N"),
        ("30800000 00000000 : 0.......", "N N : N......."),
        ("2026-11-28T20:33:41.058231437Z to", "N-N-NTN:N:NZ to"),
    ] {
        assert_eq!(shape(line), expected, "{line}");
    }
    let shown = ["@[a]: 1".to_string(), "@[b]: 2".to_string()];
    assert!(differences(&shown, "@[b]: 9\n\n@[a]: 8\n").is_empty());
    assert_eq!(differences(&shown, "@[a]: 1\n@[c]: 1\n"), ["not printed: @[b]: N", "not shown: @[c]: N"]);
    let shortened = ["@[a]: 1".to_string(), "...".to_string()];
    assert!(differences(&shortened, "@[a]: 8\n@[c]: 1\n").is_empty());
    assert_eq!(differences(&shortened, "@[c]: 1\n"), ["not printed: @[a]: N"]);
}
