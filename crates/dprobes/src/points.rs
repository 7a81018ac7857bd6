//! `--at MODULE:FUNCTION:POINT`: points of functions on the command line, which `at_programs` makes
//! programs of.

use std::path::PathBuf;

use image::Pattern;
use process::{ImageCache, Module};
use rpn::FunctionPoint;

use crate::Failure;

/// The module that is the process's own program.
pub(crate) const PROGRAM: &str = "a.out";

/// A probepoint of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The module's name, or a pattern.
    pub(crate) module: String,
    /// The function's name, or a pattern.
    pub(crate) function: String,
    /// One point, or those that a pattern matches.
    pub(crate) points: Vec<FunctionPoint>,
    /// The process named by a provider such as `pid4711`.
    pub(crate) pid: Option<i32>,
}

impl At {
    /// The points one by one, as [`parse`] reads them.
    pub(crate) fn each(&self) -> impl Iterator<Item = String> {
        let pid = self.pid.map(|pid| format!("pid{pid}:")).unwrap_or_default();
        self.points.iter().map(move |point| format!("{pid}{}:{}:{point}", self.module, self.function))
    }
}

/// Parses a probepoint in the form of DTrace's `pid` provider.
///
/// A field that is missing or empty matches everything; fields count from the right. A provider
/// before them may name the process (`pid123`). `::` within a function's name belongs to the name,
/// as in C++ and Rust. Without a point, which DTrace demands, the entry is meant: `libc:malloc`.
pub(crate) fn parse(text: &str) -> Result<At, String> {
    const HOW: &str = "MODULE:FUNCTION or MODULE:FUNCTION:POINT expected, as in libc:malloc:entry";
    let all = without_provider(text);
    let pid = match text.strip_suffix(all).and_then(|provider| provider.strip_prefix("pid")) {
        None | Some(":" | "$target:") => None,
        Some(number) => {
            let number = number.trim_end_matches(':');
            Some(number.parse().map_err(|_| format!("`pid{number}` names no process"))?)
        }
    };
    let (rest, points) = match all.rsplit_once(':').filter(|(before, last)| is_point(before, last)) {
        Some((before, point)) => (before, self::points(point).map_err(|reason| format!("{reason}; {HOW}"))?),
        None => (all, vec![FunctionPoint::Entry]),
    };
    let rest = rest.trim_start_matches(':');
    // In `libc.so.6::entry` the function is empty.
    let (module, function) = match rest.strip_suffix(':') {
        Some(module) => (module, ""),
        None => single_colon(rest).map_or(("", rest), |at| (&rest[..at], &rest[at + 1..])),
    };
    if module.contains(':') || single_colon(function).is_some() {
        return Err(format!("too many fields; {HOW}"));
    }
    let any = |field: &str| if field.is_empty() { "*".to_owned() } else { field.to_owned() };
    for field in [module, function] {
        if field.contains(|character: char| character.is_control()) {
            return Err(format!("`{}` is no name; {HOW}", printable::text(field)));
        }
        if Pattern::is_one(field) && !field.contains("operator") {
            Pattern::new(field).map_err(|error| error.to_string())?;
        }
    }
    if all.bytes().all(|byte| byte == b':') {
        return Err(HOW.to_owned());
    }
    if module.is_empty() && function.contains('/') && !function.contains("operator") {
        let file = printable::text(function);
        return Err(format!(
            "`{file}` is a file, and the function is missing: {file}:FUNCTION:POINT; for an offset in the file, write \
             a program with `offset =`"
        ));
    }
    Ok(At { module: any(module), function: any(function), points, pid })
}

/// Whether the last field is a point, not a function whose entry is meant. A word of the letters a
/// to f may be both: behind a file's name, and behind `::`, it is a function.
fn is_point(before: &str, last: &str) -> bool {
    let is_qualified = before.ends_with(':');
    if last.is_empty() {
        // It was left out, which means every instruction.
        return true;
    }
    if single_colon(before.trim_matches(':')).is_some() {
        // The third field, if it is none of a name such as `ns::f`.
        return !is_qualified;
    }
    let is_file =
        before == "a.out" || before.contains('/') || before.contains(".so") || before.starts_with("lib");
    let is_word = !last.starts_with(|first: char| first.is_ascii_digit() || first == '+');
    match last.to_ascii_lowercase().as_str() {
        "entry" | "return" => true,
        // `::*` is every instruction of every function.
        _ if (is_file || is_qualified && last != "*") && is_word => false,
        _ => points(last).is_ok(),
    }
}

/// The points that a text means: one, or those among `entry` and `return` that a pattern matches.
/// Empty text, and a pattern that matches everything, mean every instruction, including entry and
/// return.
fn points(text: &str) -> Result<Vec<FunctionPoint>, String> {
    if text.bytes().all(|byte| byte == b'*') {
        return Ok(vec![FunctionPoint::Each]);
    }
    let lower = text.to_ascii_lowercase();
    if !Pattern::is_one(&lower) {
        return FunctionPoint::parse(text).map(|point| vec![point]).ok_or_else(|| {
            let shown = printable::text(text);
            format!(
                "`{shown}` is no point of a function: entry, return, * or an offset in hexadecimal expected"
            )
        });
    }
    let pattern = Pattern::new(&lower).map_err(|error| error.to_string())?;
    let named = [("entry", FunctionPoint::Entry), ("return", FunctionPoint::Return)];
    let points: Vec<FunctionPoint> =
        named.into_iter().filter(|(name, _)| pattern.matches(name)).map(|(_, point)| point).collect();
    match points.is_empty() {
        true => Err(format!(
            "`{}` matches neither entry nor return; offsets are given one by one, and * means every instruction",
            printable::text(text)
        )),
        false => Ok(points),
    }
}

/// Checks that probepoints which name a process name a probed one.
///
/// # Errors
/// One names another process.
pub(crate) fn are_for(ats: &[At], pids: &[i32]) -> Result<(), Failure> {
    let Some(pid) = ats.iter().filter_map(|at| at.pid).find(|pid| !pids.contains(pid)) else { return Ok(()) };
    Err(Failure::new(match pids {
        [] => {
            format!("`pid{pid}:` names a process, and none is given with -p; leave it out, or give -p {pid}")
        }
        [one] => format!("`pid{pid}:` names another process than -p {one}"),
        _ => format!("`pid{pid}:` names a process that is not among those given with -p"),
    }))
}

/// The fields after DTrace's provider, if there is one.
fn without_provider(text: &str) -> &str {
    let provider = text.strip_prefix("pid").and_then(|rest| {
        let rest = rest
            .strip_prefix("$target")
            .unwrap_or_else(|| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.strip_prefix(':')
    });
    // At least two fields must follow; in `pid:main:entry`, `pid` is a module.
    match provider {
        Some(rest)
            if rest.starts_with(':')
                || (!text.starts_with("pid:") && rest.contains(':'))
                || rest.rsplit_once(':').is_some_and(|(rest, _)| single_colon(rest).is_some()) =>
        {
            rest
        }
        _ => text,
    }
}

/// The position of the first colon that has no colon beside it.
fn single_colon(text: &str) -> Option<usize> {
    let double = |at: usize| text[at + 1..].starts_with(':') || text[..at].ends_with(':');
    text.match_indices(':').map(|(at, _)| at).find(|at| !double(*at))
}

/// Checks that probepoints whose module is a pattern match something in a process. Those that name
/// a module wait for it, or are refused when it is mapped.
///
/// # Errors
/// A probepoint matches nothing; the error names similar functions.
pub(crate) fn check(ats: &[At], pid: i32) -> Result<(), Failure> {
    if ats.iter().all(|at| !Pattern::is_one(&at.module)) {
        return Ok(());
    }
    let modules = process::modules(pid, &mut ImageCache::new()).map_err(Failure::new)?;
    for at in ats.iter().filter(|at| Pattern::is_one(&at.module)) {
        for &point in &at.points {
            check_one(at, point, pid, &modules)
                .map_err(|reason| Failure::new(format!("{}:{}:{point}: {reason}", at.module, at.function)))?;
        }
    }
    Ok(())
}

fn check_one(at: &At, point: FunctionPoint, pid: i32, modules: &[Module]) -> Result<(), String> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let mut named = modules.iter().filter(|module| module.is_named(&at.module, &root)).peekable();
    if named.peek().is_none() {
        return Err(format!("no module of process {pid} matches; `dprobes list -p PID` shows them"));
    }
    let mut reasons = Vec::new();
    for module in named {
        match engine::survey(&at.function, point, None, &module.image, &module.image, true) {
            Ok(_) => return Ok(()),
            Err(reason) => reasons.push(reason),
        }
    }
    // Prefer a reason with a hint.
    reasons.sort_by_key(|reason| !reason.suggests_names());
    Err(format!("in no module that matches: {}", reasons.swap_remove(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(module: &str, function: &str, point: FunctionPoint) -> Result<At, String> {
        Ok(At { module: module.into(), function: function.into(), points: vec![point], pid: None })
    }

    #[test]
    fn probepoints_are_read_as_dtrace_reads_them() {
        let entry = FunctionPoint::Entry;
        for (text, module, function, point) in [
            ("libc.so.6:malloc:entry", "libc.so.6", "malloc", entry),
            ("libc:mem*:return", "libc", "mem*", FunctionPoint::Return),
            ("a.out:main:a4", "a.out", "main", FunctionPoint::Offset(0xa4)),
            ("a.out:main:+0x10", "a.out", "main", FunctionPoint::Offset(0x10)),
            ("a.out:main:10", "a.out", "main", FunctionPoint::Offset(0x10)),
            ("a.out:main:*", "a.out", "main", FunctionPoint::Each),
            ("malloc:entry", "*", "malloc", entry),
            (":malloc:entry", "*", "malloc", entry),
            ("::malloc:entry", "*", "malloc", entry),
            ("libc::entry", "libc", "*", entry),
            (":::entry", "*", "*", entry),
            ("::entry", "*", "*", entry),
            ("a.out:ns::f:entry", "a.out", "ns::f", entry),
            ("a.out:ns::f(int, b::c<d::e>):entry", "a.out", "ns::f(int, b::c<d::e>)", entry),
            ("ns::f:entry", "*", "ns::f", entry),
            ("a.out:operator[]:entry", "a.out", "operator[]", entry),
            ("operator/:entry", "*", "operator/", entry),
            ("pid:libc:malloc:entry", "libc", "malloc", entry),
            ("libc:malloc:", "libc", "malloc", FunctionPoint::Each),
            ("malloc:", "*", "malloc", FunctionPoint::Each),
            ("libc::", "libc", "*", FunctionPoint::Each),
            ("libc:malloc:ent*", "libc", "malloc", entry),
            ("libc:malloc:[!e]*", "libc", "malloc", FunctionPoint::Return),
            ("libc:malloc:**", "libc", "malloc", FunctionPoint::Each),
            ("pid$target::malloc:entry", "*", "malloc", entry),
            ("pid$target:libc::entry", "libc", "*", entry),
            ("pid:main:entry", "pid", "main", entry),
            ("malloc", "*", "malloc", entry),
            ("libc:malloc", "libc", "malloc", entry),
            ("libc:mem*", "libc", "mem*", entry),
            ("libc:*", "libc", "*", entry),
            ("a.out:f", "a.out", "f", entry),
            ("./app:add", "./app", "add", entry),
            ("a.out:e*", "a.out", "e*", entry),
            ("main:f", "*", "main", FunctionPoint::Offset(0xf)),
            ("main:4", "*", "main", FunctionPoint::Offset(4)),
            ("main:*", "*", "main", FunctionPoint::Each),
            ("::*", "*", "*", FunctionPoint::Each),
            ("ns::f", "*", "ns::f", entry),
            ("a.out:ns::add", "a.out", "ns::add", entry),
            ("a.out:ns::entry", "a.out", "ns::entry", entry),
            ("main:fill", "main", "fill", entry),
        ] {
            let parsed = parse(text);
            assert_eq!(parsed, at(module, function, point), "{text}");
            let again = parsed.iter().flat_map(At::each).map(|text| parse(&text)).collect::<Vec<_>>();
            assert_eq!(again, [parsed], "{text}");
        }
        for text in [
            "",
            "libc:malloc:fast",
            "a:b:c:entry",
            "libc:malloc:x*",
            "libc:malloc:1?",
            "pid99999999999:libc:malloc:entry",
            "libc:m[:entry",
            "libc:f:entry2",
            "/bin/ls",
            "/bin/ls:0x1496",
            "::./app:entry",
            ":::",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn several_points_and_a_process_are_named() {
        let both = parse("pid4711:libc:malloc:*[!f]*r*").expect("both match");
        assert_eq!(both.points, [FunctionPoint::Entry, FunctionPoint::Return]);
        assert_eq!(both.pid, Some(4711));
        let one = parse("pid4711:libc:malloc").map(|at| (at.module, at.pid));
        assert_eq!(one, Ok(("libc".into(), Some(4711))));
        assert!(are_for(std::slice::from_ref(&both), &[1, 4711]).is_ok());
        for pids in [&[][..], &[4712], &[1, 2]] {
            let failure = are_for(std::slice::from_ref(&both), pids).expect_err("it names another");
            assert!(failure.message().contains("`pid4711:`"), "{failure}");
        }
    }
}
