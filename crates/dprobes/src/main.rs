//! Room `dprobes`.
fn main() {}
