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
mod budget;
mod children;
mod classic;
mod completions;
mod convert;
mod copies;
mod core;
mod core_copies;
mod counts;
mod coverage;
mod cycles;
mod death;
mod doctor;
mod domains;
mod doubtful;
mod emit;
mod every_instruction;
mod exact;
mod examples;
mod export;
mod faults;
mod first_calls;
mod flame;
mod follow;
mod forged;
mod format_library;
mod generated;
mod grouped;
mod hazards;
mod header;
mod help;
mod hostile;
mod i386;
mod jump;
mod kept;
mod limits;
mod listed;
mod live_spans;
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
mod ppdf_refused;
mod programs;
mod redis;
mod reports;
mod sealed;
mod seeds;
mod serve;
mod service;
mod session;
mod session_targets;
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
