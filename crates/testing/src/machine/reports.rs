//! The bytes that the first process of a machine sends: what the commands write, and how they end.
//!
//! A report is one letter, the command's number and a length, each of four bytes, and that many
//! bytes. `tests/targets/machine.c` lists the letters. The machine may end anywhere in it.

use super::End;

/// What became of one command, as far as reports say.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Reported {
    /// `None` while it runs.
    pub(super) end: Option<End>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Reads reports: all commands that have begun, in order, of which only the last can be without an
/// end.
///
/// # Panics
/// If these are no reports.
pub(super) fn read(mut bytes: &[u8]) -> Vec<Reported> {
    let mut commands: Vec<Reported> = Vec::new();
    while let Some((kind, number, contents, rest)) = next(bytes) {
        bytes = rest;
        match kind {
            b'b' => {
                assert_eq!(number, commands.len(), "commands begin one after another");
                commands.push(Reported::default());
                continue;
            }
            b'z' => break,
            _ => {}
        }
        let command = commands.get_mut(number).expect("what is reported of has begun");
        let value = || i32::from_le_bytes(contents.try_into().expect("a status has four bytes"));
        match kind {
            b'o' => command.stdout.extend_from_slice(contents),
            b'e' => command.stderr.extend_from_slice(contents),
            b'x' => command.end = Some(End::Exited(value())),
            b's' => command.end = Some(End::Signalled(value())),
            b't' => command.end = Some(End::TimedOut),
            other => panic!("no report begins with {:?}", char::from(other)),
        }
    }
    commands
}

/// The first report, if it is whole, and what follows it.
fn next(bytes: &[u8]) -> Option<(u8, usize, &[u8], &[u8])> {
    let (&kind, bytes) = bytes.split_first()?;
    let (number, bytes) = bytes.split_first_chunk()?;
    let (length, bytes) = bytes.split_first_chunk()?;
    let (contents, rest) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((kind, u32::from_le_bytes(*number) as usize, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: u8, number: u32, contents: &[u8]) -> Vec<u8> {
        let length = contents.len() as u32;
        [&[kind], &number.to_le_bytes()[..], &length.to_le_bytes()[..], contents].concat()
    }

    #[test]
    fn reports_are_read_up_to_the_end_of_the_machine() {
        let whole = [
            report(b'b', 0, b""),
            report(b'o', 0, b"hel"),
            report(b'e', 0, b"oh"),
            report(b'o', 0, b"lo"),
            report(b'x', 0, &3_i32.to_le_bytes()),
            report(b'b', 1, b""),
            report(b's', 1, &9_i32.to_le_bytes()),
            report(b'b', 2, b""),
            report(b't', 2, b""),
            report(b'z', 3, b""),
        ]
        .concat();
        let commands = read(&whole);
        let ends: Vec<_> = commands.iter().map(|command| command.end.clone()).collect();
        assert_eq!(ends, [Some(End::Exited(3)), Some(End::Signalled(9)), Some(End::TimedOut)]);
        assert_eq!((&commands[0].stdout[..], &commands[0].stderr[..]), (&b"hello"[..], &b"oh"[..]));
        for end in 0..whole.len() {
            let part = read(&whole[..end]);
            assert!(part.iter().rev().skip(1).all(|command| command.end.is_some()), "{end}");
        }
        assert_eq!(read(&whole[..9 + 9]), [Reported::default()]);
    }
}
