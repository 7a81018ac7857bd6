//! The session's socket, and which users may use it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

/// Overrides the directory of the socket, so that a user can have several sessions.
const DIRECTORY: &str = "DPROBES_SESSION_DIR";

/// The effective user of this process.
fn user() -> u32 {
    geteuid().as_raw()
}

/// The directory of the user's session.
fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return directory.into();
    }
    match (user(), std::env::var_os("XDG_RUNTIME_DIR")) {
        (0, _) => "/run/dprobes".into(),
        (_, Some(runtime)) => Path::new(&runtime).join("dprobes"),
        (user, None) => format!("/tmp/dprobes-{user}").into(),
    }
}

/// Creates the directory if needed and checks that it is the user's alone: anybody who could write
/// to it could put another socket there.
fn private_directory() -> io::Result<PathBuf> {
    let directory = directory();
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(&directory)?;
    if !metadata.is_dir() || metadata.uid() != user() || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "{} is not a directory that belongs to user {} alone (mode 700)",
            printable::path(&directory),
            user()
        )));
    }
    Ok(directory)
}

/// The default file for records: beside the logs of the system for root, else in the user's state
/// directory. Creates its directory.
pub(crate) fn records() -> io::Result<PathBuf> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let kept = || home("XDG_STATE_HOME").or_else(|| Some(home("HOME")?.join(".local/state")));
    let directory = match std::env::var_os(DIRECTORY) {
        Some(_) => private_directory()?,
        None if user() == 0 => "/var/log/dprobes".into(),
        None => kept().map_or_else(directory, |kept| kept.join("dprobes")),
    };
    DirBuilder::new().mode(0o700).recursive(true).create(&directory)?;
    Ok(directory.join("records"))
}

/// The socket's path.
fn path(directory: &Path) -> PathBuf {
    directory.join("session")
}

/// Connects to the user's session; `None` if there is none.
pub(crate) fn connect() -> io::Result<Option<UnixStream>> {
    let directory = directory();
    if !directory.exists() {
        return Ok(None);
    }
    let directory = private_directory()?;
    match UnixStream::connect(path(&directory)) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The session's end of the socket, and the lock that ensures a single session.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) listener: UnixListener,
    directory: PathBuf,
    _lock: File,
}

impl Home {
    /// Opens the socket; `None` if another session has it.
    pub(crate) fn open() -> io::Result<Option<Home>> {
        let directory = private_directory()?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))?;
        if lock.try_lock().is_err() {
            return Ok(None);
        }
        let path = path(&directory);
        // A leftover of a session that was killed.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        Ok(Some(Home { listener, directory, _lock: lock }))
    }

    /// A file for the session's own messages.
    pub(crate) fn log(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.directory.join("log"))
    }

    /// Removes the socket; new clients find no session.
    pub(crate) fn close(&self) {
        let _ = fs::remove_file(path(&self.directory));
    }
}

/// Whether the other end of a connection is this user or root.
pub(crate) fn is_welcome(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|other| other.uid() == user() || other.uid() == 0)
}
