//! How long it takes to arm many functions of a running process, and how long the process is held for it.
//!
//! Every repetition has a process of its own, whose threads call all functions all the time and check the results. `dprobes attach` is
//! started as users start it, with a pattern for the functions; it is armed when it says so. Then it is interrupted, and disarmed when it
//! has ended; the holds are those of its statistics. In the end all bytes of the library must be the file's, and no result was wrong.

mod exec;
mod library;
mod random;
mod session;
mod subject;

pub use exec::{Execs, again, execs};
pub use random::random_program;
pub use session::{Asked, Sample, measure};
pub use subject::{Library, Subject};
