//! What has come of attaching one probe.

use bpf::AttachError;
use kernel::session::Attached;

use super::places::LeftOut;

/// What has come of one probe in one file.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// What was attached: to how many sites, by what kind of probe.
    pub(super) attached: Vec<(Attached, usize, &'static str)>,
    pub(super) left_out: LeftOut,
    /// The process in which it was attached; all if there is none.
    pub(super) process: Option<i32>,
    /// The reason of a probe with one site.
    pub(super) only: Option<String>,
}

impl Attempt {
    /// Notes what was attached to sites in these functions.
    pub(super) fn note(
        &mut self,
        functions: &[String],
        attached: Attached,
        kind: &'static str,
        reason: impl Fn(AttachError) -> String,
    ) {
        for (place, error) in &attached.refused {
            let reason = reason(*error);
            self.left_out.add(&functions[*place], &reason);
            self.only = (functions.len() == 1).then_some(reason);
        }
        let count = functions.len() - attached.refused.len();
        if count > 0 {
            self.attached.push((attached, count, kind));
        }
    }

    /// Notes that there is no handler for sites in these functions.
    pub(super) fn failed(&mut self, functions: &[String], reason: &str) {
        functions.iter().for_each(|function| self.left_out.add(function, reason));
        self.only = Some(reason.to_owned());
    }
}
