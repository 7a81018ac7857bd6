//! Output files that replace an old file only once there is something to put in its place.
//!
//! ```text
//! begin    DIR/.NAME.PID.part   is written
//! settle   rename               DIR/NAME is the new file, which goes on growing
//! dropped  unlink               DIR/NAME is what it was
//! ```
//!
//! A pipe, device or socket is written directly; so is an open descriptor named as a file
//! (`/dev/stdout`), from its current position. A symbolic link is kept: the file it leads to is
//! replaced. If the new file cannot be created beside the old one, or cannot take its name (a
//! directory without write permission, a mounted file), it is first written to memory; settling
//! empties the old file and fills it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Most symbolic links followed to a file.
const MAX_LINKS: usize = 40;
/// Most bytes of the file's name used in the name of its `.part` file.
const MAX_NAME: usize = 200;

/// What is still to be done for a file that was begun. Dropping it without settling undoes what was
/// begun.
#[derive(Debug)]
pub(crate) struct PendingFile(Way);

#[derive(Debug)]
enum Way {
    /// Nothing: the file is in its place.
    Settled,
    /// It is written to `part`, beside its place.
    Beside { part: PathBuf, place: PathBuf, written: RawFd },
    /// It is written to memory, and copied when settled.
    Apart { place: PathBuf, written: RawFd },
    /// A trace of several files is made in an empty or new directory.
    Directory { directory: PathBuf, is_new: bool },
}

/// Begins a file. It gets to its place only when it is settled.
///
/// # Errors
/// It cannot be written.
pub(crate) fn begin(path: &Path) -> io::Result<(File, PendingFile)> {
    let (file, way) = match follow_links(path)? {
        OutputPath::Open(descriptor) => (duplicate(descriptor)?, Way::Settled),
        OutputPath::AsItIs => (File::options().write(true).open(path)?, Way::Settled),
        OutputPath::Absent(place) => {
            let (part, file) = create_part(&place, None)?;
            let written = file.as_raw_fd();
            (file, Way::Beside { part, place, written })
        }
        OutputPath::Regular(place) => {
            // A file that may not be written is not replaced either.
            let old = File::options().write(true).open(&place)?.metadata()?;
            match create_part(&place, Some(&old)) {
                Ok((part, file)) => {
                    let written = file.as_raw_fd();
                    (file, Way::Beside { part, place, written })
                }
                Err(error) if error.kind() == ErrorKind::StorageFull => return Err(error),
                Err(_) => {
                    let file = in_memory()?;
                    let written = file.as_raw_fd();
                    (file, Way::Apart { place, written })
                }
            }
        }
    };
    Ok((file, PendingFile(way)))
}

/// Call this before a trace in the Common Trace Format is made in a directory. A directory with
/// files in it is left alone: the trace is refused there.
pub(crate) fn begin_directory(directory: &Path) -> PendingFile {
    let files = fs::read_dir(directory);
    let is_new = files.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    match is_new || files.is_ok_and(|mut files| files.next().is_none()) {
        true => PendingFile(Way::Directory { directory: directory.to_owned(), is_new }),
        false => PendingFile::nothing(),
    }
}

/// Writes a file as a whole: it has either the old or the new contents.
///
/// # Errors
/// Writing fails.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, mut unsettled) = begin(path)?;
    file.write_all(bytes)?;
    unsettled.commit()
}

/// Tests whether a file can be written, and leaves it as it is.
///
/// # Errors
/// It cannot be written.
pub(crate) fn probe(path: &Path) -> io::Result<()> {
    match follow_links(path)? {
        // Opening and closing a pipe would end its reader's input.
        OutputPath::Open(_) | OutputPath::AsItIs => Ok(()),
        OutputPath::Absent(_) | OutputPath::Regular(_) => begin(path).map(|_| ()),
    }
}

impl PendingFile {
    /// For output that only needs to be written.
    pub(crate) fn nothing() -> PendingFile {
        PendingFile(Way::Settled)
    }

    /// Puts the file in its place. Call it while the file returned by [`begin`] is open.
    ///
    /// # Errors
    /// The file cannot be put there. What was written stays in the `.part` file, named in the
    /// error, or is lost.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Way::Settled) {
            Way::Settled | Way::Directory { .. } => Ok(()),
            Way::Beside { part, place, written } => {
                if fs::rename(&part, &place).is_ok() {
                    return Ok(());
                }
                fill(&place, written).map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("{error}; it is written to {}", printable::path(&part)),
                    )
                })?;
                let _ = fs::remove_file(part);
                Ok(())
            }
            Way::Apart { place, written } => fill(&place, written),
        }
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        match &self.0 {
            Way::Settled | Way::Apart { .. } => {}
            Way::Beside { part, .. } => {
                let _ = fs::remove_file(part);
            }
            Way::Directory { directory, is_new } => {
                let files = fs::read_dir(directory).into_iter().flatten().flatten();
                let is_ours = |name: &[u8]| name == b"metadata" || name.starts_with(b"cpu_");
                for file in files.filter(|file| is_ours(file.file_name().as_encoded_bytes())) {
                    let _ = fs::remove_file(file.path());
                }
                if *is_new {
                    let _ = fs::remove_dir(directory);
                }
            }
        }
    }
}

/// What a path leads to.
enum OutputPath {
    /// No file yet; it will be created here.
    Absent(PathBuf),
    /// A regular file.
    Regular(PathBuf),
    /// An open descriptor of this process.
    Open(RawFd),
    /// A pipe, device, socket or directory, or another process's descriptor.
    AsItIs,
}

/// Follows a path, link by link.
fn follow_links(path: &Path) -> io::Result<OutputPath> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let directory = match path.parent() {
            Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
            Some(directory) => directory,
            None => return Ok(OutputPath::AsItIs),
        };
        let directory = fs::canonicalize(directory)?;
        let Some(Component::Normal(name)) = path.components().next_back() else {
            return Ok(OutputPath::AsItIs);
        };
        let here = directory.join(name);
        match fs::symlink_metadata(&here) {
            Ok(metadata) if metadata.is_symlink() => {
                if let Some(known) = descriptor(&here) {
                    return Ok(known);
                }
                path = directory.join(fs::read_link(&here)?);
            }
            Ok(metadata) if metadata.is_file() => return Ok(OutputPath::Regular(here)),
            Ok(_) => return Ok(OutputPath::AsItIs),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // A trailing slash names a directory, which does not exist.
                return match path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                    true => Err(ErrorKind::IsADirectory.into()),
                    false => Ok(OutputPath::Absent(here)),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// The descriptor of a process that a link in a canonical directory stands for, if it does: the
/// file behind it may have any name, or none.
fn descriptor(link: &Path) -> Option<OutputPath> {
    let words: Vec<&str> = link.strip_prefix("/proc").ok()?.iter().filter_map(|word| word.to_str()).collect();
    let (process, number) = match words.as_slice() {
        [process, "fd", number] | [process, "task", _, "fd", number] => (*process, *number),
        _ => return None,
    };
    let is_own = process == std::process::id().to_string();
    Some(number.parse().ok().filter(|_| is_own).map_or(OutputPath::AsItIs, OutputPath::Open))
}

/// Duplicates a descriptor; both share the file position.
fn duplicate(descriptor: RawFd) -> io::Result<File> {
    // SAFETY: a plain call; the new descriptor has no other owner. (nix and the standard library
    // require an open descriptor, but this number comes from the user.)
    unsafe {
        match libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) {
            -1 => Err(io::Error::last_os_error()),
            copy => Ok(File::from_raw_fd(copy)),
        }
    }
}

/// Creates a new file beside its place, with the owner and permissions of the old one.
fn create_part(place: &Path, old: Option<&fs::Metadata>) -> io::Result<(PathBuf, File)> {
    let name = place.file_name().unwrap_or_default().as_encoded_bytes();
    let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned();
    let part = place.with_file_name(format!(".{name}.{}.part", std::process::id()));
    // A leftover of an earlier process with this process id must not be in the way.
    let _ = fs::remove_file(&part);
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(&part)?;
    if let Some(old) = old {
        // Without the right to change the owner, the file stays this user's.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777)).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
    }
    Ok((part, file))
}

/// A file without a name, in memory.
fn in_memory() -> io::Result<File> {
    Ok(File::from(memfd_create(c"dprobes", MFdFlags::MFD_CLOEXEC)?))
}

/// Replaces a file's contents by what was written to a descriptor, and makes the descriptor refer
/// to that file.
fn fill(place: &Path, written: RawFd) -> io::Result<()> {
    let mut from = duplicate(written)?;
    let mut to = File::options().write(true).truncate(true).open(place)?;
    from.rewind()?;
    io::copy(&mut from, &mut to)?;
    // SAFETY: a plain call on two open descriptors. The owner of `written` then goes on writing at
    // the end of the file in its place.
    match unsafe { libc::dup3(to.as_raw_fd(), written, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("text")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_what_it_was_until_it_is_settled() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("keep");
        fs::write(&path, "old").expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
        let (mut file, unsettled) = begin(&path).expect("it can be written");
        file.write_all(b"new").expect("room");
        drop((file, unsettled));
        assert_eq!((text(&path), names(home.path())), ("old".to_owned(), vec!["keep".to_owned()]));
        let (mut file, mut unsettled) = begin(&path).expect("it can be written");
        file.write_all(b"new").expect("room");
        unsettled.commit().expect("it can be replaced");
        assert_eq!(text(&path), "new");
        // It goes on growing, in its place.
        file.write_all(b"er").expect("room");
        drop(unsettled);
        assert_eq!((text(&path), names(home.path())), ("newer".to_owned(), vec!["keep".to_owned()]));
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o640);
        probe(&path).expect("it can be written");
        assert_eq!(text(&path), "newer");
    }

    #[test]
    fn what_was_not_there_comes_when_it_is_settled_and_not_at_all_in_vain() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("new");
        drop(begin(&path).expect("it can be written"));
        assert_eq!(names(home.path()), [""; 0]);
        write_whole(&path, b"all").expect("room");
        assert_eq!((text(&path), names(home.path())), ("all".to_owned(), vec!["new".to_owned()]));
        assert!(begin(&home.path().join("nowhere/new")).is_err());
        assert!(begin(home.path()).is_err());
        assert!(begin(&home.path().join("none/")).is_err());
        let long = home.path().join("ü".repeat(127));
        write_whole(&long, b"all").expect("its part has a shorter name");
        assert_eq!(text(&long), "all");
    }

    #[test]
    fn links_stay_links_and_other_names_keep_what_they_had() {
        let home = tempfile::tempdir().expect("a directory");
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("far")).expect("room");
        fs::write(at("far/file"), "old").expect("room");
        fs::hard_link(at("far/file"), at("other")).expect("room");
        symlink("far/file", at("link")).expect("room");
        symlink("link", at("second")).expect("room");
        symlink("far/none", at("dangling")).expect("room");
        symlink("round", at("round")).expect("room");
        write_whole(&at("second"), b"new").expect("room");
        write_whole(&at("dangling"), b"new").expect("room");
        assert!(fs::symlink_metadata(at("link")).is_ok_and(|link| link.is_symlink()));
        assert_eq!([text(&at("far/file")), text(&at("far/none")), text(&at("other"))], ["new", "new", "old"]);
        assert!(write_whole(&at("round"), b"new").is_err());
    }

    #[test]
    fn pipes_devices_and_descriptors_are_written_as_they_are() {
        write_whole(Path::new("/dev/null"), b"gone").expect("it takes all");
        assert!(write_whole(Path::new("/dev/full"), b"x").is_err());
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("log");
        fs::write(&path, "first ").expect("room");
        let file = File::options().append(true).open(&path).expect("it is there");
        let name = format!("/dev/fd/{}", file.as_raw_fd());
        write_whole(Path::new(&name), b"second ").expect("it is open");
        write_whole(Path::new(&name), b"third").expect("it is open");
        assert_eq!(text(&path), "first second third");
    }

    #[test]
    fn where_there_is_no_room_beside_it_a_file_is_filled_when_it_is_settled() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("keep");
        fs::write(&place, "what stood there").expect("room");
        let mut file = in_memory().expect("memory");
        let way = Way::Apart { place: place.clone(), written: file.as_raw_fd() };
        let mut unsettled = PendingFile(way);
        file.write_all(b"begun ").expect("room");
        assert_eq!(text(&place), "what stood there");
        unsettled.commit().expect("it may be written");
        file.write_all(b"and done").expect("room");
        assert_eq!(text(&place), "begun and done");
    }

    #[test]
    fn a_directory_is_left_as_it_was_found() {
        let home = tempfile::tempdir().expect("a directory");
        let fill = |directory: &Path| {
            fs::create_dir_all(directory).expect("room");
            for name in ["metadata", "cpu_0", "other"] {
                fs::write(directory.join(name), "").expect("room");
            }
        };
        let (new, empty, full) =
            (home.path().join("new"), home.path().join("empty"), home.path().join("full"));
        fs::create_dir(&empty).expect("room");
        fill(&full);
        let begun = [&new, &empty, &full].map(|directory| begin_directory(directory));
        fill(&new);
        fill(&empty);
        fs::remove_file(new.join("other")).expect("it is there");
        drop(begun);
        assert_eq!(names(home.path()), ["empty", "full"]);
        assert_eq!(
            (names(&empty).join(" "), names(&full).join(" ")),
            ("other".into(), "cpu_0 metadata other".into())
        );
        let mut begun = begin_directory(&new);
        fill(&new);
        begun.commit().expect("nothing is left to do");
        drop(begun);
        assert_eq!(names(&new), ["cpu_0", "metadata", "other"]);
    }

    /// A place that no file can be renamed to, although one may be created beside it, like a
    /// mounted file.
    #[test]
    fn what_cannot_be_renamed_is_copied() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("keep");
        fs::write(&place, "old").expect("room");
        let (mut file, mut unsettled) = begin(&place).expect("it can be written");
        file.write_all(b"new").expect("room");
        let Way::Beside { part, .. } = &unsettled.0 else { panic!("{unsettled:?}") };
        fs::remove_file(part).expect("it is there");
        unsettled.commit().expect("it is copied");
        file.write_all(b"er").expect("room");
        assert_eq!(text(&place), "newer");
    }
}
