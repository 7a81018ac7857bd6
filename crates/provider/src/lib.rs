//! Descriptions of static probes (USDT), and the C headers that are made of them.
//!
//! A provider is a group of static probes, usually those of one program. DTrace has a language to
//! describe them, whose files end in `.d`:
//!
//! ```text
//! provider server {
//!     probe request__start(int id, char *path);
//!     probe request__done(int id, long bytes);
//! };
//! #pragma D attributes Evolving/Evolving/Common provider server provider
//! ```
//!
//! [`read`] reads such a text, and [`header`] writes a header with a macro for each probe. Unlike
//! DTrace's, it needs nothing else: no `sys/sdt.h`, no object file that `dtrace -G` makes.
//!
//! ```text
//! text --tokens--> tokens, #define --parse--> Description --header--> C and C++
//! ```
//!
//! Design constraints:
//!
//! * Its input is untrusted. It never panics; time and memory are bounded by the text's size.
//! * One run reports all mistakes, each with its place, what was expected and what to do. A type
//!   whose values no probe can pass is a mistake here, not one of the compiler later.
//! * What a header's macros put into a program is what `sys/sdt.h` does: a `nop` and a note, so
//!   that gdb, bpftrace, perf and SystemTap see the probes as well.

#![forbid(unsafe_code)]

mod description;
mod header;
mod parse;
mod tokens;
mod types;

use source::{Diagnostic, Messages, Severity, Sources};

pub use description::{Description, MAX_ARGUMENTS, Probe, Provider};
pub use header::header;
pub use types::{Size, Type};

/// What was read of a text.
#[derive(Debug)]
pub struct Read {
    /// The providers; those without mistakes if there are mistakes.
    pub description: Description,
    /// The text, to which the messages refer.
    pub sources: Sources,
    /// What is wrong, in the order of the text.
    pub messages: Vec<Diagnostic>,
}

/// Reads a text. `name` is what messages call it.
pub fn read(name: &str, text: &str) -> Read {
    let mut sources = Sources::default();
    let id = sources.add(name.to_owned(), text.into(), None);
    let mut messages = Messages::default();
    let tokens = tokens::tokens(id, text, &mut messages);
    let description = parse::parse(&tokens, &mut messages);
    let messages = messages.in_order(&sources);
    Read { description, sources, messages }
}

impl Read {
    /// Whether there are mistakes.
    pub fn has_errors(&self) -> bool {
        self.messages.iter().any(|message| message.severity == Severity::Error)
    }

    /// The messages as text, an empty line between two.
    pub fn render(&self, colour: bool) -> String {
        let all = self.messages.iter().map(|message| message.render(&self.sources, colour));
        all.collect::<Vec<_>>().join("\n\n")
    }
}
