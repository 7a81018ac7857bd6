//! One run of QEMU.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{Command, End, Kernel, Output, console, reports};
use crate::spawn;

/// How the processor is made. Emulated, it is the same everywhere; KVM in a virtual machine may
/// hang.
const PROCESSOR: [&str; 4] = ["-accel", "tcg", "-cpu", "max"];

/// How many processors there are, if instructions are not counted.
const PROCESSORS: [&str; 2] = ["-smp", "2"];

/// One processor, of which each instruction takes a nanosecond by all clocks of the machine; the
/// time in which it waits is skipped.
const COUNTED: [&str; 4] = ["-smp", "1", "-icount", "shift=0,sleep=off"];

/// Memory in MiB, if nothing else is said. The files are in it, packed and unpacked while the
/// kernel boots.
pub(super) const MEMORY: u32 = 768;

/// Kernel parameters:
///
/// - `console`, `quiet`: messages go to the first serial port, but not those of the boot, which
///   take longer than the boot.
/// - `panic=-1`, `oops=panic`: a machine whose kernel has failed ends at once.
/// - `printk.devkmsg=on`: no mark between commands is left out.
/// - `mitigations=off`: an emulated processor leaks nothing and is slow enough.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic printk.devkmsg=on mitigations=off";

/// How long a machine may report nothing, in addition to the longest time limit of a command.
const SILENCE: Duration = Duration::from_secs(180);

/// What a boot has shown.
pub(super) struct Seen {
    /// Of the commands that have begun. Only the last can be `Panicked` or `Lost`.
    pub(super) outputs: Vec<Output>,
    /// The whole console.
    pub(super) console: String,
}

/// What is booted, and on what.
pub(super) struct Hardware<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) initramfs: &'a Path,
    /// In MiB.
    pub(super) memory: u32,
    /// Whether its clock counts instructions.
    pub(super) counts: bool,
}

/// Boots a machine with these files, waits for its end, and collects what it has said.
pub(super) fn boot(
    Hardware { kernel, initramfs, memory, counts }: &Hardware<'_>,
    parameters: &str,
    commands: &[Command],
    directory: &Path,
) -> Seen {
    let (console, reports) = (directory.join("console"), directory.join("reports"));
    for file in [&console, &reports] {
        std::fs::write(file, "").expect("a scratch file can be written");
    }
    let mut command = std::process::Command::new(kernel.qemu());
    command.args(PROCESSOR).args(if *counts { &COUNTED[..] } else { &PROCESSORS[..] });
    command.args(["-m", &memory.to_string()]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.arg("-serial").arg(file_device(&console)).arg("-debugcon").arg(file_device(&reports));
    command.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(initramfs);
    command.arg("-append").arg(format!("{PARAMETERS}{parameters}"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = spawn(&mut command).unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));

    let longest = commands.iter().map(|command| command.limit).max().unwrap_or_default();
    wait(child, &reports, SILENCE + longest);
    let read = |path| std::fs::read(path).expect("a scratch file can be read");
    let console = String::from_utf8_lossy(&read(&console)).into_owned();
    Seen { outputs: outputs(&read(&reports), &console), console }
}

/// A file as QEMU names the other end of a port.
fn file_device(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// Waits for the end of a machine, and kills it if this file does not grow for so long. The console
/// may grow forever: a kernel that hangs says so again and again.
fn wait(mut child: Child, reports: &Path, silence: Duration) {
    let length = || reports.metadata().map_or(0, |data| data.len());
    let (mut before, mut grown) = (0, Instant::now());
    while child.try_wait().expect("a child can be waited for").is_none() {
        let now = length();
        if now != before {
            (before, grown) = (now, Instant::now());
        } else if grown.elapsed() > silence {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The outputs of the commands that have begun.
fn outputs(reported: &[u8], text: &str) -> Vec<Output> {
    let mut consoles = console::divide(text).into_iter().skip(1);
    let reported = reports::read(reported).into_iter().map(|reported| {
        let console = consoles.next().unwrap_or_default();
        let end = reported.end.unwrap_or_else(|| console::panic(&console).map_or(End::Lost, End::Panicked));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Output { end, stdout: text(reported.stdout), stderr: text(reported.stderr), console }
    });
    reported.collect()
}
