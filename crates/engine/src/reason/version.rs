//! Why a program is not for a machine.

use rpn::Arch;

/// Why processes of a machine do not get a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoVersion {
    /// As the caller has said: the program is for one machine only, does not compile for this one,
    /// or its plugins are not for it.
    #[error("{0}")]
    Given(String),
    /// The version for this machine has other probes.
    #[error("the file on disk now has other probes for {0}")]
    OtherProbes(Arch),
    /// No process of this machine is probed.
    #[error("programs of other machines cannot be probed")]
    OtherMachine,
}
