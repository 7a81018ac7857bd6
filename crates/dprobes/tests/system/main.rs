//! The whole product, from outside: the real command on real processes.
//!
//! Each module tests one promise. The programs under test are in `tests/targets` of the repository,
//! one per hazard; they are built with gcc on first use, and a test whose tools are missing is
//! skipped. The product's own counts (`--stats`) are compared with counts of the program under
//! test, or of another tool.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod support;

mod attaching;
mod bounds;
mod children;
mod classic;
mod convert;
mod copies;
mod core;
mod core_copies;
mod counts;
mod cycles;
mod death;
mod doctor;
mod domains;
mod doubtful;
mod every_instruction;
mod exact;
mod examples;
mod faults;
mod first_calls;
mod forged;
mod generated;
mod grouped;
mod hazards;
mod hostile;
mod i386;
mod jump;
mod kept;
mod limits;
mod lossless;
mod machines;
mod memory;
mod modules;
mod named;
mod namespaces;
mod options;
mod oracle;
mod own_rings;
mod plugins;
mod points;
mod ppdf;
mod programs;
mod redis;
mod sealed;
mod seeds;
mod session;
mod shortcuts;
mod signals;
mod sleepers;
mod stacks;
mod stores;
mod strangers;
mod tactics;
mod targets;
mod templates;
mod threads;
mod tools;
mod top;
mod unusual;
mod usdt;
mod waves;
