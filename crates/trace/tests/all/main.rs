//! The tests of this crate from outside, but for those that need a process of their own.

#[path = "../ctf_support/mod.rs"]
mod ctf_support;

mod ctf;
mod sinks;
mod store_version_1;
mod template;
mod template_conditions;
mod template_directory;
mod template_page;
