//! Processes on the command line: by id, or by name as `pidof` finds them.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

/// The running processes that a command is about.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Processes {
    /// A running process: its id, or the name of its program, which means all that run it; several
    /// are separated by commas, or given each with its own -p
    #[arg(id = "pid", short = 'p', long = "pid", value_name = "PID|NAME", value_delimiter = ',', value_parser = named)]
    named: Vec<Named>,
}

impl Processes {
    /// Their ids, each once.
    pub(crate) fn ids(&self) -> Vec<i32> {
        let mut ids: Vec<i32> = Vec::new();
        for &id in self.named.iter().flat_map(|named| &named.0) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }
}

/// The processes that a word means; none if it is wrong.
pub(crate) fn ids_of(text: &str) -> Vec<i32> {
    named(text).map(|named| named.0).unwrap_or_default()
}

/// What one word means.
#[derive(Clone, Debug)]
struct Named(Vec<i32>);

/// Parses a process id, or the name of processes. Several ids with white space between them are
/// what a shell makes of `-p "$(pgrep app)"`.
fn named(text: &str) -> Result<Named, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > 1 && words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
        let each: Result<Vec<Named>, String> = words.into_iter().map(named).collect();
        return each.map(|each| Named(each.into_iter().flat_map(|named| named.0).collect()));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        let id = text.parse().ok().filter(|id| *id > 0);
        return id.map(|id| Named(vec![id])).ok_or_else(|| format!("{text} is no process id"));
    }
    if text.is_empty() || text.starts_with('-') {
        return Err("a process id, or the name of a running program, is expected".to_owned());
    }
    let ids = of_name(text);
    match ids.is_empty() {
        true => Err(format!("no process runs a program that is called `{}`", printable::text(text))),
        false => Ok(Named(ids)),
    }
}

/// Parses one process: its id, or a name that only one has.
pub(super) fn one(text: &str) -> Result<i32, String> {
    match &*named(text)?.0 {
        [id] => Ok(*id),
        ids => {
            let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
            let name = printable::text(text);
            Err(format!(
                "{} processes are called `{name}`, and one is expected: {}",
                ids.len(),
                ids.join(", ")
            ))
        }
    }
}

/// The processes whose program's file, or whose first thread, has a name. The caller is none of
/// them.
fn of_name(name: &str) -> Vec<i32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut ids: Vec<i32> = ids.filter(|&id| id as u32 != own && is_called(id, name)).collect();
    ids.sort_unstable();
    ids
}

fn is_called(id: i32, name: &str) -> bool {
    let directory = format!("/proc/{id}");
    // A file that was replaced or removed while it runs keeps its name.
    let program = std::fs::read_link(format!("{directory}/exe")).unwrap_or_default();
    let program = program.file_name().map(OsString::from).unwrap_or_default();
    let program = program.to_string_lossy();
    let thread = std::fs::read(format!("{directory}/comm")).unwrap_or_default();
    let thread = thread.strip_suffix(b"\n").unwrap_or(&thread);
    // Scripts are called by the name of their file, which is the interpreter's argument.
    let is_program = program.strip_suffix(" (deleted)").unwrap_or(&program) == name;
    let is_thread = !thread.is_empty() && thread == &name.as_bytes()[..name.len().min(15)];
    // A process that has ended, and is not waited for yet, cannot be probed.
    (is_program || is_thread) && Path::new(&directory).join("exe").read_link().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{named, one};
    use std::process::{Command, Stdio};

    #[test]
    fn ids_and_names_are_processes() {
        assert_eq!(named("17").expect("an id").0, [17]);
        assert_eq!(named("17\n4711\n").expect("what pgrep prints").0, [17, 4711]);
        for wrong in ["", "0", "99999999999", "-4", "no program is called so"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        let directory = tempfile::tempdir().expect("a scratch folder");
        let program = directory.path().join("sleeps-a-while-longer");
        std::fs::copy("/bin/sleep", &program).expect("it can be copied");
        let start = || Command::new(&program).arg("60").stdout(Stdio::null()).spawn().expect("it starts");
        let mut first = start();
        let id = first.id() as i32;
        assert_eq!(named("sleeps-a-while-longer").expect("its whole name").0, [id]);
        assert_eq!(one("sleeps-a-while-longer"), Ok(id));
        let mut second = start();
        let both = named("sleeps-a-while-longer").expect("two").0;
        assert!(both.len() == 2 && both.contains(&id), "{both:?}");
        assert!(one("sleeps-a-while-longer").is_err_and(|text| text.contains(&id.to_string())));
        for child in [&mut first, &mut second] {
            child.kill().expect("it is this process's");
            child.wait().expect("it is this process's");
        }
        assert!(named("sleeps-a-while-longer").is_err());
    }
}
