//! Tells the supervisor that started the session as a service that it answers: the protocol of
//! systemd's `Type=notify` (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the supervisor's socket: a path, or an abstract name behind `@`.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Says that the session accepts connections, if a supervisor wants to know. One that does not
/// listen is no reason to end.
pub(super) fn ready() {
    let Some(name) = std::env::var_os(SOCKET) else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}
