//! Measures how long it takes to arm many functions of a running process, and how long the process
//! is held.
//!
//! Each repetition has a process of its own, whose threads call all functions continuously and
//! check the results. `dprobes attach` is started with a pattern for the functions; it is armed
//! when it prints so. Then it is interrupted, and is disarmed when it has ended; hold times come
//! from its statistics. In the end all bytes of the library must equal the file's, and no result
//! may have been wrong.

mod exec;
mod library;
mod random;
mod session;
mod subject;

pub use exec::{Execs, again, execs};
pub use random::random_program;
pub use session::{Asked, Sample, measure};
pub use subject::{Library, Subject};
