//! Tests that compare with gdb and with gcc's own unwinder, and tests with damaged input.

mod common;

mod damage;
mod programs;
mod samples;
mod systems;
mod tables;
