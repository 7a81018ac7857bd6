//! The tests of this crate from outside, but for those that need a process of their own.

mod common;

mod anything;
mod control;
mod control32;
mod every;
mod exhaustive;
mod golden;
mod lengths;
mod moved;
mod overlap;
mod plan;
mod real;
mod run;
mod stops;
mod trampoline;
