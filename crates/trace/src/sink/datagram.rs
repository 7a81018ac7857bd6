//! Sends messages to the socket of a daemon, one datagram each.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use crate::queue::Progress;

/// A connection to the datagram socket of another process.
#[derive(Debug)]
pub(super) struct DaemonSocket {
    path: PathBuf,
    /// None while no process listens at the other end.
    socket: Option<UnixDatagram>,
    progress: Progress,
}

impl DaemonSocket {
    /// Connects to a socket.
    ///
    /// # Errors
    /// The socket does not exist, or no process has it open.
    pub(super) fn connect(path: PathBuf, progress: Progress) -> io::Result<DaemonSocket> {
        let mut datagrams = DaemonSocket { path, socket: None, progress };
        datagrams.reconnect()?;
        Ok(datagrams)
    }

    fn reconnect(&mut self) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(&self.path)?;
        socket.set_nonblocking(true)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Sends a message. Waits for a slow daemon, and reconnects to one that was restarted.
    ///
    /// # Errors
    /// No process listens, the message is larger than the kernel allows, or this target is given
    /// up.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let mut is_new = false;
        loop {
            if self.socket.is_none() {
                is_new = true;
                self.reconnect()?;
            }
            let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
            match socket.send(message) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.progress.wait_for(socket.as_fd(), Duration::MAX)?;
                }
                Err(error) => {
                    let is_gone = !matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::ENOBUFS));
                    if is_gone {
                        self.socket = None;
                    }
                    if is_new || !is_gone {
                        return Err(error);
                    }
                }
            }
        }
    }
}
