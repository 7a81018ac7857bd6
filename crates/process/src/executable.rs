//! Finds the machine (processor architecture) of a program before it is started or traced.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use image::{Image, Machine};

/// How many scripts in a row may name a script as their interpreter; the kernel follows no more.
const SCRIPTS: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const LINE: u64 = 256;

/// The machine of the program that a process runs; `None` if it cannot be read.
pub fn machine_of_process(pid: i32) -> Option<Machine> {
    Image::open(Path::new(&format!("/proc/{pid}/exe"))).ok().map(|image| image.machine())
}

/// The machine of the program that a command would run; for a script, that of its interpreter. The
/// command is searched as `execvp` does. `None` if there is none, or none that can be read.
pub fn machine_of_command(command: &OsStr) -> Option<Machine> {
    let mut path = find(command)?;
    for _ in 0..SCRIPTS {
        match interpreter(&path) {
            Some(next) => path = next,
            None => break,
        }
    }
    Image::open(&path).ok().map(|image| image.machine())
}

/// The file of a command.
fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path).map(|directory| directory.join(command)).find(|file| {
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    })
}

/// The interpreter that a script's first line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    if !path.metadata().is_ok_and(|data| data.is_file()) {
        return None;
    }
    let mut line = Vec::new();
    File::open(path).ok()?.take(LINE).read_to_end(&mut line).ok()?;
    let rest = line.strip_prefix(b"#!")?;
    let rest = rest.split(|byte| *byte == b'\n').next()?;
    let name = rest.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine() {
        assert_eq!(machine_of_process(std::process::id() as i32), Some(Machine::X86_64));
        assert_eq!(machine_of_command("sh".as_ref()), Some(Machine::X86_64));
        assert_eq!(machine_of_command("/no/such/program".as_ref()), None);
        assert_eq!(machine_of_command("no-such-program".as_ref()), None);
        assert_eq!(machine_of_command("/".as_ref()), None);
    }

    #[test]
    fn a_script_is_for_the_machine_of_its_interpreter() {
        let directory = std::env::temp_dir();
        let script = directory.join(format!("dprobes-script-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\nexit\n").expect("a file can be written");
        let machine = machine_of_command(script.as_os_str());
        std::fs::write(&script, format!("#!{}\n", script.display())).expect("a file can be written");
        let endless = machine_of_command(script.as_os_str());
        std::fs::remove_file(&script).expect("it is there");
        assert_eq!((machine, endless), (Some(Machine::X86_64), None));
    }
}
