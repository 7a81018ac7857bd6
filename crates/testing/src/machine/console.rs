//! The kernel's messages.

/// What the first process writes into the kernel's log before each command, but for its number.
const BEGINS: &str = "machine: command ";

/// How the kernel begins its last message.
const PANIC: &str = "Kernel panic - not syncing: ";

/// Divides a console by command: what was written before the first one, and during each.
pub(super) fn divide(console: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in console.lines() {
        if line.contains(BEGINS) && line.ends_with(" begins") {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

/// The message of a panic.
pub(super) fn panic(console: &str) -> Option<String> {
    let line = console.lines().find_map(|line| line.split_once(PANIC))?;
    Some(line.1.trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "[    0.10] hello\r\n\
        [    1.00] machine: command 0 begins\r\n\
        [    1.10] brd: module loaded\r\n\
        [    2.00] machine: command 1 begins\r\n\
        [    2.10] Kernel panic - not syncing: sysrq triggered crash\r\n\
        [    2.11] CPU: 0 PID: 77 Comm: sh\r\n";

    #[test]
    fn messages_belong_to_commands() {
        let parts = divide(CONSOLE);
        assert_eq!(parts[..2], ["[    0.10] hello\n", "[    1.10] brd: module loaded\n"]);
        assert_eq!(panic(&parts[1]), None);
        assert_eq!(panic(&parts[2]).as_deref(), Some("sysrq triggered crash"));
        assert_eq!(parts.len(), 3);
    }
}
