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

impl Write for KernelLog {
    /// Takes whole records: each line is a message of its own, of priority "informational".
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
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
