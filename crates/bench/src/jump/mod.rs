//! What a hit costs inside of the process, beside what it could cost at least and what it costs with others.
//!
//! Every repetition of every row has a process of its own: the unprobed function is timed, the tracer attaches, the
//! function is called and timed again, the tracer detaches and gives its account, and that must be the number of calls.
//! Rows take turns, so that what else the machine does meets all of them.

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
