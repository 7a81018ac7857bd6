//! Commands as the documents write them outside of sessions, made commands that can be run.
//!
//! | written | means |
//! |---|---|
//! | `[WORDS]` | these words may be left out |
//! | `(A \| B)`, `[A \| B]`, with blanks | one of these sequences of words |
//! | `a\|b`, without blanks | one of these words |
//! | `WORD...` | one or more: here one |
//! | `PROG.rpn`, `PID` and others in capitals | what [`PLACEHOLDERS`] has for them |
//!
//! A choice is made at a time: each optional part once with all others left out, each alternative
//! once with the first ones of all others. Alternatives of what does not name a command or a
//! process get the optional part that does. A command in which something is quoted means itself.

/// What stands for words in capitals: the word before (empty: any), the word or the part of it,
/// and its value. `{pid}` is the process of the running `./svc 600`, `{dir}` the directory, and
/// `{only}` the name of a copy of the service that no other process has.
const PLACEHOLDERS: [(&str, &str, &str); 44] = [
    ("", "[OPTIONS]", ""),
    ("", "PROG.rpn", "prog.rpn"),
    ("", "SCRIPT.bt", "script.bt"),
    ("", "PROVIDER.d", "provider.d"),
    ("", "FILE.dpt", "trace.dpt"),
    ("", "FILE.info", "out.info"),
    ("", "FILE.svg", "out.svg"),
    ("", "FILE.so", "./events.so=events.txt"),
    ("--insert", "FILE", "prog.rpn"),
    ("apply-ppdf", "FILE", "prog.ppdf"),
    ("list", "FILE", "./svc"),
    ("--sym", "FILE", "./svc"),
    ("--html", "FILE", "out.html"),
    ("", "FILE", "out"),
    ("", "CMD", "./svc"),
    ("", "ARGS", "1"),
    ("help", "COMMAND", "run"),
    ("help", "TOPIC", "coverage"),
    ("completions", "SHELL", "bash"),
    ("", "PID", "{pid}"),
    ("-p", "NAME", "{only}"),
    ("show", "NAME", "opens"),
    ("run", "NAME", "opens"),
    ("-m", "MODULE", "svc"),
    ("--name", "MODULE", "{dir}/svc"),
    ("", "MODULE:FUNCTION", "{module}:serve"),
    ("--points", "POINT", "return"),
    ("", "PATTERN", "'serv*'"),
    ("", "STATEMENTS", "'push retval; log 1'"),
    ("", "VARIABLE", "served"),
    ("", "ARGUMENT", "arg0"),
    ("", "SCRIPT", "'uprobe:{module}:serve { @ = count(); }'"),
    ("", "TEXT", "'uprobe:./svc:serve { @ = count(); }'"),
    ("--arch", "MACHINE", "i386"),
    ("-o", "DIR", "written"),
    ("-I", "DIR", "examples"),
    ("", "DIR", "examples/templates"),
    ("", "KEY=VALUE", "KEY=1"),
    ("", "ITEMS", "PID"),
    ("--log-target", "TARGET", "ctf:out"),
    ("--group", "LIST", "often"),
    ("--type", "LIST", "calls"),
    ("", "SIZE", "512K"),
    ("", "10s", "1s"),
];

/// A part of a synopsis.
#[derive(Debug)]
enum Part {
    Text(String),
    /// One of these; the first one is none if it may be left out.
    Choice(Vec<Vec<Part>>),
}

/// The commands that a synopsis stands for, in which [`PLACEHOLDERS`] have their values.
///
/// # Errors
/// A bracket is not closed, or a word in capitals has no value.
pub(crate) fn commands(written: &str) -> Result<Vec<String>, String> {
    if written.contains(['\'', '"']) {
        return Ok(vec![written.to_string()]);
    }
    let written = written.replace("[OPTIONS] ", "").replace("...", "");
    let mut rest = written.as_str();
    let parts = sequences(&mut rest, None)?.pop().unwrap_or_default();
    let mut made = Vec::new();
    for words in variants(&parts) {
        let command = filled(&words)?;
        if !made.contains(&command) {
            made.push(command);
        }
    }
    Ok(made)
}

/// The alternatives up to a closing bracket, or up to the end.
fn sequences(rest: &mut &str, closing: Option<char>) -> Result<Vec<Vec<Part>>, String> {
    let mut all = vec![Vec::new()];
    loop {
        let end = rest.find(['[', '(', ']', ')']).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(end);
        // Behind ` | ` another sequence begins.
        for (number, text) in text.split(" | ").enumerate() {
            if number > 0 {
                all.push(Vec::new());
            }
            let own = all.last_mut().expect("there is one");
            own.extend(text.split_inclusive(' ').map(word));
        }
        let bracket = behind.chars().next();
        *rest = behind.get(1..).unwrap_or_default();
        let own = all.last_mut().expect("there is one");
        match bracket {
            Some('[') => {
                let inner = sequences(rest, Some(']'))?;
                own.push(Part::Choice(std::iter::once(Vec::new()).chain(inner).collect()));
            }
            Some('(') => own.push(Part::Choice(sequences(rest, Some(')'))?)),
            bracket if bracket == closing => return Ok(all),
            _ => return Err(format!("{bracket:?} where {closing:?} is expected")),
        }
    }
}

/// A word, or the choice that it is.
fn word(text: &str) -> Part {
    if !text.contains('|') {
        return Part::Text(text.to_string());
    }
    let (words, blank) = text.strip_suffix(' ').map_or((text, ""), |words| (words, " "));
    Part::Choice(words.split('|').map(|each| vec![Part::Text(format!("{each}{blank}"))]).collect())
}

/// The variants of a sequence, the first of which has the first of every choice.
fn variants(parts: &[Part]) -> Vec<String> {
    let each: Vec<Vec<String>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => vec![text.clone()],
            Part::Choice(choices) => choices.iter().flat_map(|choice| variants(choice)).collect(),
        })
        .collect();
    let is_optional = |at: usize| each[at][0].is_empty();
    let names_target =
        |at: &usize| is_optional(*at) && each[*at][1..].iter().any(|part| part.starts_with("-p "));
    let target = (0..each.len()).find(names_target);
    let with = |chosen: &[(usize, usize)]| {
        let part = |(at, part): (usize, &Vec<String>)| {
            let choice = chosen.iter().find(|(of, _)| *of == at).map_or(0, |(_, choice)| *choice);
            part[choice].clone()
        };
        each.iter().enumerate().map(part).collect::<String>()
    };
    let mut made = vec![with(&[])];
    for (at, part) in each.iter().enumerate() {
        for (choice, words) in part.iter().enumerate().skip(1) {
            let needs_target = target.filter(|target| *target != at && !words.starts_with("-- "));
            let target = needs_target.map(|target| (target, 1));
            made.push(with(&target.into_iter().chain([(at, choice)]).collect::<Vec<_>>()));
        }
    }
    made
}

/// Words with the values of what is in capitals.
fn filled(words: &str) -> Result<String, String> {
    let mut made: Vec<String> = Vec::new();
    let mut before = "";
    for word in words.split_whitespace() {
        let mut value = word.to_string();
        for (behind, placeholder, with) in PLACEHOLDERS {
            if (behind.is_empty() || behind == before) && value == word {
                value = replaced(word, placeholder, with);
            }
        }
        // A function has a module and a point.
        value = replaced(&value, ":POINT", ":return");
        let is_left = |part: &str| part.len() > 1 && part.chars().all(|each| each.is_ascii_uppercase());
        let quoted = value.contains('\'');
        if let Some(left) = value.split(|each: char| !each.is_alphanumeric()).find(|part| is_left(part))
            && value == word
            && !quoted
        {
            return Err(format!("nothing stands for {left}: it is no word of PLACEHOLDERS"));
        }
        made.push(value);
        before = word;
    }
    let has_target = made.iter().any(|word| ["-p", "--pid", "--"].contains(&&**word));
    let module = if has_target { "a.out" } else { "{dir}/svc" };
    Ok(made.join(" ").replace("{module}", module))
}

/// A word in which a part that is not inside of another one has a value.
fn replaced(word: &str, part: &str, value: &str) -> String {
    let Some(at) = word.find(part) else { return word.to_string() };
    let is_inside = |each: Option<char>| each.is_some_and(char::is_alphanumeric);
    let (before, behind) = (&word[..at], &word[at + part.len()..]);
    let begins = part.starts_with(char::is_alphanumeric) && is_inside(before.chars().next_back());
    match begins || is_inside(behind.chars().next()) {
        true => word.to_string(),
        false => format!("{before}{value}{behind}"),
    }
}

/// The rules, on synopses that need them.
pub(crate) fn examples() {
    let made = |written: &str| commands(written).expect("it can be read");
    assert_eq!(made("dprobes trace -e 'BEGIN { @[PID] = 1 }'"), ["dprobes trace -e 'BEGIN { @[PID] = 1 }'"]);
    assert_eq!(made("dprobes run [OPTIONS] PROG.rpn -- CMD ARGS..."), ["dprobes run prog.rpn -- ./svc 1"]);
    assert_eq!(
        made("dprobes count|latency MODULE:FUNCTION... [-p PID|NAME] [-- CMD]"),
        [
            "dprobes count {dir}/svc:serve",
            "dprobes latency a.out:serve -p {pid}",
            "dprobes count a.out:serve -p {pid}",
            "dprobes count a.out:serve -p {only}",
            "dprobes count a.out:serve -- ./svc"
        ]
    );
    assert_eq!(
        made("dprobes tools [list | run NAME [-p PID]]"),
        [
            "dprobes tools",
            "dprobes tools list",
            "dprobes tools run opens",
            "dprobes tools run opens -p {pid}"
        ]
    );
    assert_eq!(
        made("dprobes list (FILE | -p PID) [--json]"),
        ["dprobes list ./svc", "dprobes list -p {pid}", "dprobes list ./svc --json"]
    );
    assert_eq!(
        made("dprobes top --at MODULE:FUNCTION[:POINT] -p PID"),
        ["dprobes top --at a.out:serve -p {pid}", "dprobes top --at a.out:serve:return -p {pid}"]
    );
    assert!(commands("dprobes list [FILE").is_err());
    assert!(commands("dprobes list NOTHING").is_err_and(|error| error.contains("NOTHING")));
}
