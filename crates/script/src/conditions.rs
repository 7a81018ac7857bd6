//! `#ifdef`, `#ifndef`, `#else` and `#endif`.

use std::collections::BTreeMap;

use source::{Diagnostic, Messages, Span};

use crate::read::{Define, name_of};
use crate::scan::Scanner;
use crate::token::Token;

/// Names that are defined without a line of the script. Types of the kernel come from its BTF.
const DEFINED: &[&str] = &["BPFTRACE_HAVE_BTF", "DPROBES"];

/// The maximum depth of conditions.
const MAX_DEPTH: usize = 64;

#[derive(Debug)]
struct Condition {
    span: Span,
    /// Whether its lines are read.
    holds: bool,
    /// Whether the lines after `#else` are read.
    otherwise: bool,
    /// Whether `#else` has been.
    last: bool,
}

/// The conditions that are open in a file.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    open: Vec<Condition>,
}

impl Conditions {
    /// Whether lines are skipped.
    pub(crate) fn skipping(&self) -> bool {
        self.open.iter().any(|condition| !condition.holds)
    }

    /// Where the innermost open condition begins.
    pub(crate) fn open(&self) -> Option<Span> {
        self.open.last().map(|condition| condition.span)
    }

    /// Obeys a line if it is about conditions; whether it was.
    pub(crate) fn line(
        &mut self,
        line: &mut Scanner,
        defines: &BTreeMap<String, Define>,
        messages: &mut Messages,
    ) -> bool {
        let mut ahead = line.clone();
        let blank = ahead.rest().len() - ahead.rest().trim_start().len();
        ahead.advance(blank);
        let start = ahead.offset();
        ahead.advance(1);
        let Ok(word) = ahead.token() else { return self.skipping() };
        let span = ahead.span_from(start);
        let Token::Name(word) = word.token else { return self.skipping() };
        match &*word {
            "ifdef" | "ifndef" => {
                if self.open.len() >= MAX_DEPTH {
                    messages
                        .add(Diagnostic::error(span, "conditions are nested too deep").label("one too many"));
                    return true;
                }
                let outer = !self.skipping();
                let holds = match name_of(&mut ahead) {
                    Ok((name, _)) => {
                        let defined = DEFINED.contains(&&*name) || defines.contains_key(&*name);
                        defined == (&*word == "ifdef")
                    }
                    Err(message) => {
                        messages.add(message);
                        false
                    }
                };
                self.open.push(Condition {
                    span,
                    holds: outer && holds,
                    otherwise: outer && !holds,
                    last: false,
                });
            }
            "else" | "endif" => match self.open.last_mut() {
                Some(condition) if &*word == "else" && !condition.last => {
                    condition.holds = condition.otherwise;
                    condition.last = true;
                }
                Some(_) if &*word == "endif" => {
                    self.open.pop();
                }
                _ => messages.add(
                    Diagnostic::error(span, format!("there is no condition for `#{word}`"))
                        .label("expected `#ifdef` or `#ifndef` before it"),
                ),
            },
            // An unsupported condition must end with its own `#endif`, else the next one would be
            // taken for it.
            "if" => {
                if !self.skipping() {
                    messages.add(
                        Diagnostic::error(span, "preprocessor line `#if` is not supported")
                            .label("its lines are skipped")
                            .help("there are #ifdef and #ifndef"),
                    );
                }
                if self.open.len() < MAX_DEPTH {
                    self.open.push(Condition { span, holds: false, otherwise: false, last: false });
                }
            }
            _ => return self.skipping(),
        }
        true
    }
}
