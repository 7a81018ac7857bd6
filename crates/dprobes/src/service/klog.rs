//! The kernel log, for those who may write it, and the system's log for the others.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Writes lines to /dev/kmsg or, where the user may not, to syslog.
#[derive(Debug)]
pub(crate) struct KernelLog {
    device: Option<File>,
}

impl KernelLog {
    pub(crate) fn open() -> KernelLog {
        KernelLog { device: OpenOptions::new().write(true).open("/dev/kmsg").ok() }
    }
}

/// Bytes of a message. The kernel refuses one of about 1000 or more, and its prefix and newline come to it.
const MOST: usize = 960;

/// The lines of some text, but for empty ones; what is longer than a message may be is several. A character stays whole.
fn messages(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').flat_map(|mut line| {
        std::iter::from_fn(move || {
            // Of a character, all bytes but the first begin with the bits 10.
            let goes_on = |at: usize| line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
            let most = MOST.min(line.len());
            let end = (most.saturating_sub(3)..=most).rev().find(|&at| !goes_on(at)).unwrap_or(most);
            let (message, rest) = line.split_at(end);
            line = rest;
            Some(message).filter(|message| !message.is_empty())
        })
    })
}

impl Write for KernelLog {
    /// Takes whole records: each line is a message of its own, of priority "informational".
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in messages(bytes) {
            match &mut self.device {
                Some(device) => {
                    // <6>: informational. The kernel takes one message in one write.
                    let mut message = b"<6>".to_vec();
                    message.extend_from_slice(line);
                    message.push(b'\n');
                    device.write_all(&message)?;
                }
                None => {
                    let text = CString::new(line).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                    // SAFETY: both strings end in NUL, and the format takes one string.
                    unsafe { libc::syslog(libc::LOG_USER | libc::LOG_INFO, c"%s".as_ptr(), text.as_ptr()) };
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_several_messages() {
        let text = format!("one\n\n{}\n{}x\nend", "a".repeat(2 * MOST), "é".repeat(MOST));
        let parts: Vec<&[u8]> = messages(text.as_bytes()).collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [3, MOST, MOST, MOST, MOST, 1, 3]);
        assert!(parts.iter().all(|part| std::str::from_utf8(part).is_ok()));
        assert_eq!(parts.concat(), text.replace('\n', "").as_bytes());
        let odd = format!("a{}", "é".repeat(MOST));
        assert!(messages(odd.as_bytes()).all(|part| part.len() <= MOST && std::str::from_utf8(part).is_ok()));
        // What is no text is cut too, and nothing of it lost.
        let bytes = [0x80u8; 2 * MOST];
        assert_eq!(messages(&bytes).map(<[u8]>::len).sum::<usize>(), 2 * MOST);
        assert!(messages(&[0x80]).eq([&[0x80u8][..]]));
    }
}
