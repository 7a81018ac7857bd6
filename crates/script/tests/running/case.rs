//! The form of a case, and what it shows.

use std::fmt::Write;

use dprobes_script::{Parameters, check_text, compile};
use vm::End;

use crate::machine::Thread;
use crate::reader;
use crate::run::Run;

/// One block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    with: String,
    thread: String,
    script: String,
    hits: String,
    events: String,
    maps: String,
    says: String,
}

impl Case {
    fn part(&mut self, keyword: &str) -> &mut String {
        match keyword {
            "WITH" => &mut self.with,
            "THREAD" => &mut self.thread,
            "SCRIPT" => &mut self.script,
            "EVENTS" => &mut self.events,
            "MAPS" => &mut self.maps,
            "SAYS" => &mut self.says,
            _ => panic!("unknown keyword {keyword:?}"),
        }
    }
}

pub(crate) fn parse(text: &str) -> (String, Vec<Case>) {
    let mut head = String::new();
    let mut cases: Vec<Case> = Vec::new();
    let mut keyword = String::new();
    for line in text.lines() {
        if cases.is_empty() && line.starts_with('#') {
            writeln!(head, "{line}").expect("a string takes it");
            continue;
        }
        if let Some(indented) = line.strip_prefix("    ").or(line.is_empty().then_some("")) {
            if let Some(case) = cases.last_mut().filter(|_| keyword != "NAME" && keyword != "HITS") {
                writeln!(case.part(&keyword), "{indented}").expect("a string takes it");
            }
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        keyword = word.to_string();
        match word {
            "NAME" => cases.push(Case { name: rest.to_string(), ..Case::default() }),
            "HITS" => cases.last_mut().expect("a case has begun").hits = rest.to_string(),
            _ => {}
        }
    }
    for case in &mut cases {
        for keyword in ["WITH", "THREAD", "SCRIPT", "EVENTS", "MAPS", "SAYS"] {
            let text = case.part(keyword);
            text.truncate(text.trim_end_matches('\n').len());
            if !text.is_empty() {
                text.push('\n');
            }
        }
    }
    (head, cases)
}

pub(crate) fn print(head: &str, cases: &[Case]) -> String {
    let mut out = head.to_string();
    for case in cases {
        writeln!(out, "\nNAME {}", case.name).expect("a string takes it");
        let mut case = case.clone();
        let hits = case.hits.clone();
        for keyword in ["WITH", "THREAD", "SCRIPT", "HITS", "EVENTS", "MAPS", "SAYS"] {
            if keyword == "HITS" {
                if !hits.is_empty() {
                    writeln!(out, "HITS {hits}").expect("a string takes it");
                }
                continue;
            }
            let text = case.part(keyword);
            if !text.is_empty() {
                writeln!(out, "{keyword}").expect("a string takes it");
                for line in text.lines() {
                    writeln!(out, "{}", format!("    {line}").trim_end()).expect("a string takes it");
                }
            }
        }
    }
    out.trim_start_matches('\n').to_string()
}

fn number(text: &str) -> u64 {
    let text = text.trim();
    match (text.strip_prefix("0x"), text.strip_prefix('-')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) => digits.parse().map(u64::wrapping_neg),
        (None, None) => text.parse(),
    }
    .unwrap_or_else(|_| panic!("{text:?} is a number"))
}

/// The bytes of `1, u32 2, u16 3, u8 4, "text\0"`.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.split(',').map(str::trim) {
        if let Some(text) = part.strip_prefix('"') {
            let text = text.strip_suffix('"').expect("a text ends with a quote");
            out.extend(text.replace("\\0", "\0").bytes());
        } else if let Some(rest) = part.strip_prefix("u32 ") {
            out.extend((number(rest) as u32).to_le_bytes());
        } else if let Some(rest) = part.strip_prefix("u16 ") {
            out.extend((number(rest) as u16).to_le_bytes());
        } else if let Some(rest) = part.strip_prefix("u8 ") {
            out.push(number(rest) as u8);
        } else {
            out.extend(number(part).to_le_bytes());
        }
    }
    out
}

fn thread(text: &str) -> Thread {
    let mut thread = Thread { name: "prog".into(), ..Thread::default() };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("at ") {
            let (address, content) = rest.split_once(':').expect("an address and bytes");
            thread.memory.push((number(address), bytes(content)));
            continue;
        }
        let (name, value) = line.split_once(" = ").expect("a name and a value");
        match name {
            "pid" => thread.pid = number(value),
            "tid" => thread.tid = number(value),
            "cpu" => thread.processor = number(value),
            "now" => thread.now = number(value),
            "ppid" => thread.parent = number(value) as u32,
            "uid" => thread.ids.0 = number(value) as u32,
            "gid" => thread.ids.1 = number(value) as u32,
            "name" => thread.name = value.to_string(),
            "stack" => thread.stack = value.split(',').map(number).collect(),
            register => {
                thread.registers.insert(register.to_string(), number(value));
            }
        }
    }
    thread
}

fn parameters(text: &str) -> Parameters {
    let mut parameters = Parameters { processors: 2, ..Parameters::default() };
    for line in text.lines() {
        if let Some(site) = line.strip_prefix("site ") {
            crate::sites::add(&mut parameters, site);
            continue;
        }
        match line.split_once(" = ") {
            Some(("child", value)) => parameters.child = Some(number(value) as u32),
            Some(("nodes", value)) => {
                parameters.nodes = value.split(' ').map(|node| number(node) as u32).collect();
            }
            Some((name, value)) if name.starts_with("cgroup ") => {
                let found = value.parse().map_err(|_| format!("{value} is found"));
                parameters.cgroups.insert(name[7..].to_string(), found);
            }
            Some((name, value)) if name.starts_with("--") => {
                parameters.named.insert(name[2..].to_string(), Some(value.to_string()));
            }
            Some((_, value)) => parameters.positional.push(value.to_string()),
            None if line == "unsafe" => parameters.allow_unsafe = true,
            None if line == "starts" => parameters.starts = true,
            None => {
                parameters.named.insert(line.trim_start_matches("--").to_string(), None);
            }
        }
    }
    parameters
}

/// The case with what is seen now.
pub(crate) fn seen(case: &Case) -> Case {
    let mut now = Case { events: String::new(), maps: String::new(), says: String::new(), ..case.clone() };
    let checked = check_text("a.bt", &case.script);
    let compiled = match compile(&checked, &parameters(&case.with)) {
        Ok(compiled) => compiled,
        Err(messages) => {
            let all: Vec<String> =
                messages.iter().map(|message| message.render(&checked.sources, false)).collect();
            let lines: Vec<String> =
                all.join("\n\n").lines().map(|line| format!("{}\n", line.trim_end())).collect();
            now.says = lines.concat();
            return now;
        }
    };
    if let Err(what) = crate::verify::handlers(&compiled) {
        writeln!(now.says, "{what}").expect("a string takes it");
    }
    let mut run = Run::new(compiled).expect("the maps are small");
    let mut thread = thread(&case.thread);
    let hits: Vec<usize> = match case.hits.as_str() {
        "" => (0..run.compiled.handlers.len()).collect(),
        hits => hits.split(' ').map(|hit| hit.parse().expect("a number")).collect(),
    };
    for hit in hits {
        let (outcome, log) = run.hit(hit, hit as u32, &mut thread);
        now.events.push_str(&reader::events(&run, &log));
        match outcome.end {
            End::Exit | End::Abort => {}
            end => writeln!(now.events, "ended: {end:?}").expect("a string takes it"),
        }
        if let (End::Exit, true) = (outcome.end, log.is_empty()) {
            writeln!(now.events, "an empty log is kept").expect("a string takes it");
        }
    }
    for act in thread.acts {
        writeln!(now.events, "{act}").expect("a string takes it");
    }
    now.maps = reader::maps(&run);
    now
}

pub(crate) fn check(case: &Case) -> Result<(), String> {
    let now = seen(case);
    let expected = print("", std::slice::from_ref(case));
    let found = print("", std::slice::from_ref(&now));
    if expected == found { Ok(()) } else { Err(format!("expected:\n{expected}\nfound:\n{found}")) }
}
