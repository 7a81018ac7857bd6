//! Runs shell lines in the virtual machine of the tests, and shows what became of them:
//!
//! ```text
//! cargo run -p dprobes-testing --example machine -- 'uname -a' 'ls /modules' \
//!     --program target/debug/dprobes --module ifb --parameter nokaslr
//! ```
//!
//! Each argument is a command of its own. A program is `/bin/NAME` there, a module `/modules/NAME.ko`.

use std::path::Path;
use std::process::ExitCode;

use testing::machine::{Command, End, Kernel, Machine};

fn main() -> ExitCode {
    let kernel = match Kernel::available() {
        Ok(kernel) => kernel,
        Err(missing) => {
            eprintln!("this needs {missing}");
            return ExitCode::FAILURE;
        }
    };
    let mut machine = Machine::new(&kernel);
    let mut commands = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match &word[..] {
            "--program" => machine.program(Path::new(&value())),
            "--module" => machine.module(&value()),
            "--parameter" => machine.parameter(&value()),
            _ => commands.push(Command::shell(&word)),
        }
    }
    let mut status = ExitCode::SUCCESS;
    for output in machine.run(&commands) {
        print!("{}", output.stdout);
        eprint!("{}{}", output.stderr, output.console);
        if output.end != End::Exited(0) {
            eprintln!("{:?}", output.end);
            status = ExitCode::FAILURE;
        }
    }
    status
}
