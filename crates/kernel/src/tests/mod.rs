//! Tests that run handlers in the kernel: a uprobe on an instruction of this program.
//!
//! They need the right to load programs. Without it they are skipped by name.

mod any;
mod by_process;
mod cases;
mod fields;
mod light;
mod limits;
mod listing;
mod live;
mod machine;
mod memory;
mod places;
mod random;
mod refusals;
mod site;
