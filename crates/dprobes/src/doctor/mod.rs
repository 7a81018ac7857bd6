//! `dprobes doctor`: what works here, and what to do about the rest.
//!
//! What matters most is tried, by this same command on a program that it starts. The rest is looked
//! up. No process that was there before is changed.
//!
//! | file | what it is |
//! |---|---|
//! | `finding` | what was found out about one thing |
//! | `machine` | this machine, and what this user may do |
//! | `process` | one process |
//! | `trial` | probes in a new program, and in a running one |

mod finding;
mod machine;
mod process;
mod trial;

use std::process::ExitCode;

use crate::Failure;
use crate::arguments::Doctor;
use crate::stdout;
use finding::{Finding, State};

/// Says what works.
pub(crate) fn doctor(arguments: &Doctor) -> Result<ExitCode, Failure> {
    let findings = match arguments.pid {
        None => [trial::findings(), machine::findings()].concat(),
        Some(pid) => process::findings(pid),
    };
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let line = |finding: &Finding| {
        let state = match finding.state {
            State::Works => "ok",
            State::Lacking => "--",
            State::Fails => "NO",
            State::Note => "",
        };
        format!("{state:<4}{:<width$}  {}\n", finding.subject, finding.text)
    };
    let text: String = findings.iter().map(line).collect();
    stdout::show(&printable::lines(&text))?;
    let fails = findings.iter().any(|finding| finding.state == State::Fails);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
