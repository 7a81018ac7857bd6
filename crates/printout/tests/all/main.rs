//! The reader as a whole: scripts, logs and maps are built by hand, a world answers from memory.

mod events;
mod expected;
mod golden;
mod hostile;
mod maps;
mod measures;
mod support;
mod whole;
