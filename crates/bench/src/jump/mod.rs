//! Measures what a hit costs inside the process, compared with the least possible cost and with
//! other tracers.
//!
//! Each repetition of each row has a process of its own: the unprobed function is timed, the tracer
//! attaches, the function is called and timed again, the tracer detaches and reports its count,
//! which must equal the number of calls. Rows take turns, so that other load on the machine affects
//! all of them.

mod measure;
mod ours;
mod records;
mod rows;
mod subject;
mod table;
mod tools;
mod tracer;
mod uprobe;

pub use measure::{Sample, measure};
pub use records::{Records, read as records_of};
pub use rows::{Bar, Row, Setting, directory, rows};
pub use subject::{Program, Round, Shape, Subject};
pub use table::{Results, head, line};
pub use uprobe::prepare;
