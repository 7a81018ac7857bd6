//! What a text describes: providers and their probes.

use std::fmt::{self, Display, Formatter};

use crate::types::Type;

/// The most arguments of a probe: as many as `sys/sdt.h` has.
pub const MAX_ARGUMENTS: usize = 12;

/// The providers of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// In the order of the text.
    pub providers: Vec<Provider>,
}

/// A group of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name, an identifier of C.
    pub name: String,
    /// In the order of the text.
    pub probes: Vec<Probe>,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its name as tracers show it, an identifier of C: `request__start`. A hyphen in the text is
    /// two underscores here.
    pub name: String,
    /// The types of its arguments.
    pub arguments: Vec<Type>,
}

impl Provider {
    /// The name of a probe's macro: `SERVER_REQUEST_START`.
    pub fn macro_name(&self, probe: &Probe) -> String {
        let whole = format!("{}_{}", self.name, probe.name);
        whole.replace("__", "_").to_ascii_uppercase()
    }

    /// The name of the variable that counts who traces a probe: `server_request__start_semaphore`.
    pub fn semaphore(&self, probe: &Probe) -> String {
        format!("{}_{}_semaphore", self.name, probe.name)
    }
}

impl Display for Description {
    /// A text from which the same description is read.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for provider in &self.providers {
            writeln!(out, "provider {} {{", provider.name)?;
            for probe in &provider.probes {
                writeln!(out, "    probe {probe};")?;
            }
            writeln!(out, "}};")?;
        }
        Ok(())
    }
}

impl Display for Probe {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}(", self.name)?;
        for (number, argument) in self.arguments.iter().enumerate() {
            write!(out, "{}{argument}", if number == 0 { "" } else { ", " })?;
        }
        out.write_str(")")
    }
}
