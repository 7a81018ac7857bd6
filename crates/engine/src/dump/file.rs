//! The file of a core dump: always a new file, readable by its owner only, and sparse where there
//! are zeros.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::watch::Watch;

use crate::reason::NotDumped;

/// Names tried for one process, at most.
const NAMES: u32 = 100_000;
/// Bytes of a block. Blocks of zeros are not written.
const BLOCK: usize = 4096;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// A core file that is being written.
#[derive(Debug)]
pub(super) struct CoreFile {
    file: File,
    path: PathBuf,
    /// Bytes so far, including zeros that were not written.
    length: u64,
    /// Bytes that a file may have. The kernel kills a process that writes more.
    limit: u64,
    /// Looked at before each write.
    watch: Option<Arc<Watch>>,
}

impl CoreFile {
    /// Creates `core.PID` in the current directory or, if that exists, `core.PID.1` and so on.
    ///
    /// # Errors
    /// Why it cannot be created.
    pub(super) fn create(pid: i32) -> Result<CoreFile, NotDumped> {
        CoreFile::create_in(Path::new(""), pid)
    }

    fn create_in(directory: &Path, pid: i32) -> Result<CoreFile, NotDumped> {
        for number in 0..NAMES {
            let name = if number == 0 { format!("core.{pid}") } else { format!("core.{pid}.{number}") };
            let path = directory.join(name);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            match options.open(&path) {
                Ok(file) => return Ok(CoreFile { file, path, length: 0, limit: limit(), watch: None }),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(NotDumped::Create { path, cause: cause.into() }),
            }
        }
        Err(NotDumped::NoName(NAMES))
    }

    /// Fails from now on as soon as there is a reason to stop.
    pub(super) fn watch(&mut self, watch: Arc<Watch>) {
        self.watch = Some(watch);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Overwrites bytes, if they are as expected.
    pub(super) fn replace(&mut self, place: u64, expected: &[u8], bytes: &[u8]) -> io::Result<()> {
        let mut found = vec![0; expected.len()];
        self.file.read_exact_at(&mut found, place)?;
        if found != expected {
            return Err(io::Error::other("the file is not laid out as expected"));
        }
        self.file.write_all_at(bytes, place)
    }

    /// A word of the file, little-endian.
    pub(super) fn word(&self, place: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, place)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Sets the file's length, including zeros at its end.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)
    }

    /// Removes the file, which could not be completed for this reason. Returns the reason, and what
    /// became of the file.
    pub(super) fn discard(self, reason: NotDumped) -> NotDumped {
        let left = std::fs::remove_file(&self.path).err().map(Into::into);
        NotDumped::Incomplete { reason: Box::new(reason), path: self.path, left }
    }
}

impl Write for CoreFile {
    /// Takes consecutive blocks that are all zeros, or consecutive blocks that are not.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.look())?;
        let is_zero = |block: &[u8]| *block == ZEROS[..block.len()];
        let within = (self.length % BLOCK as u64) as usize;
        let mut end = bytes.len().min(BLOCK - within);
        let zero = is_zero(&bytes[..end]);
        while end < bytes.len() {
            let next = bytes.len().min(end + BLOCK);
            if is_zero(&bytes[end..next]) != zero {
                break;
            }
            end = next;
        }
        let length = self.length + end as u64;
        if length > self.limit {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if !zero {
            self.file.write_all_at(&bytes[..end], self.length)?;
        }
        self.length = length;
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The largest file that this process may write (RLIMIT_FSIZE), in bytes.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is valid for the call. If it fails, there is no limit.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use testing::Scratch;

    #[test]
    fn a_file_that_is_there_is_never_written() {
        let scratch = Scratch::new();
        let victim = scratch.path().join("victim");
        symlink(&victim, scratch.path().join("core.7")).expect("a link can be made");
        let names: Vec<_> = (0..2)
            .map(|_| CoreFile::create_in(scratch.path(), 7).expect("a file can be made"))
            .map(|file| file.path().file_name().expect("it has a name").to_owned())
            .collect();
        assert_eq!(names, ["core.7.1", "core.7.2"]);
        assert!(!victim.exists());
        let mode = scratch.path().join("core.7.1").metadata().expect("it is there").mode();
        assert_eq!(mode & 0o777 & !0o600, 0);
    }

    #[test]
    fn a_file_holds_what_was_written_and_zeros_take_no_room() {
        let scratch = Scratch::new();
        let mut file = CoreFile::create_in(scratch.path(), 1).expect("a file can be made");
        let mut expected = vec![1; 100];
        expected.extend([0; 5000]);
        expected.extend([2; 9000]);
        expected.extend(vec![0; 8 << 20]);
        expected.push(3);
        expected.extend([0; 12345]);
        for piece in expected.chunks(65536) {
            file.write_all(piece).expect("there is room");
        }
        file.complete().expect("there is room");
        let written = std::fs::read(file.path()).expect("it can be read");
        assert!(written == expected, "{} bytes", written.len());
        let room = file.path().metadata().expect("it is there").blocks() * 512;
        assert!(room < 1 << 20, "{room} bytes");
    }

    #[test]
    fn more_than_the_process_may_write_is_an_error_and_the_file_goes() {
        let scratch = Scratch::new();
        let mut file = CoreFile::create_in(scratch.path(), 1).expect("a file can be made");
        file.limit = 10_000;
        file.write_all(&[1; 9000]).expect("it is within the limit");
        let cause = file.write_all(&[0; 9000]).expect_err("it is beyond the limit");
        assert_eq!(cause.raw_os_error(), Some(libc::EFBIG));
        let path = file.path().to_owned();
        let said = file.discard(NotDumped::Write(cause.into()));
        let NotDumped::Incomplete { reason, left: None, .. } = &said else { panic!("{said}") };
        assert!(matches!(**reason, NotDumped::Write(_)));
        let told = format!("{reason}; the incomplete file {} was removed", path.display());
        assert_eq!(said.to_string(), told);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_takes_no_file_is_named() {
        let error = CoreFile::create_in(Path::new("/proc"), 1).expect_err("no file can be made there");
        assert!(matches!(&error, NotDumped::Create { path, .. } if path == Path::new("/proc/core.1")));
        assert!(error.to_string().starts_with("/proc/core.1: "), "{error}");
    }
}
