//! Reads and writes the memory of another process.
//!
//! Data goes through `process_vm_readv` and `process_vm_writev`, which respect page protection as
//! the process's own accesses do. Code is written through `/proc/PID/mem`, which can write private
//! read-only pages; other threads see a written byte whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use crate::Error;

/// The code and data of one address space, accessible whatever their protection.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

impl Memory {
    /// Opens the memory of a thread that the caller traces. It stays valid when the thread ends, as
    /// long as another thread uses the same memory.
    ///
    /// # Errors
    /// The thread is gone, or the kernel refuses.
    pub fn open(tid: i32) -> Result<Memory, Error> {
        let path = format!("/proc/{tid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Memory { file: file.map_err(|cause| Error::of_proc(tid, path, cause))? })
    }

    /// Reads code or data whatever its protection, as a debugger does.
    ///
    /// # Errors
    /// Nothing is mapped there, or the process is gone.
    pub fn peek(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, address)
    }

    /// Writes code or data whatever its protection, as a debugger does. The kernel refuses shared
    /// mappings that are not writable.
    ///
    /// # Errors
    /// Nothing is mapped there, it must not be written, or the process is gone.
    pub fn poke(&self, address: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, address)
    }
}

/// Reads data as the thread itself could.
///
/// # Errors
/// `Err(n)`: only the first `n` bytes could be read; they are in `into`.
pub fn read(tid: i32, address: u64, into: &mut [u8]) -> Result<(), usize> {
    let length = into.len();
    let count =
        process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(into)], &[remote(address, length)]);
    complete(count, length)
}

/// Writes data as the thread itself could.
///
/// # Errors
/// `Err(n)`: only the first `n` bytes were written.
pub fn write(tid: i32, address: u64, from: &[u8]) -> Result<(), usize> {
    let count = process_vm_writev(Pid::from_raw(tid), &[IoSlice::new(from)], &[remote(address, from.len())]);
    complete(count, from.len())
}

/// Writes several pieces of data, each at its address, in their order, as [`write()`] does.
///
/// # Errors
/// `Err(n)`: only the first `n` bytes of all were written.
pub fn write_each(tid: i32, pieces: &[(u64, &[u8])]) -> Result<(), usize> {
    /// The kernel's limit of pieces in one call (UIO_MAXIOV).
    const MOST: usize = 1024;
    let mut before = 0;
    for pieces in pieces.chunks(MOST) {
        let local: Vec<_> = pieces.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        let there: Vec<_> = pieces.iter().map(|(address, bytes)| remote(*address, bytes.len())).collect();
        let length = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let written = process_vm_writev(Pid::from_raw(tid), &local, &there);
        complete(written, length).map_err(|count| before + count)?;
        before += length;
    }
    Ok(())
}

fn remote(address: u64, len: usize) -> RemoteIoVec {
    RemoteIoVec { base: address as usize, len }
}

/// Whether a transfer moved all of `length` bytes; else how many.
fn complete(count: nix::Result<usize>, length: usize) -> Result<(), usize> {
    match count {
        Ok(count) if count == length => Ok(()),
        Ok(count) => Err(count),
        Err(_) => Err(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of which the second is unmapped, as their address.
    fn page_before_a_hole() -> u64 {
        // SAFETY: a fresh anonymous mapping; its second page is unmapped again and used by nobody.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::munmap(page.byte_add(4096), 4096), 0);
            page as u64
        }
    }

    #[test]
    fn a_read_that_meets_a_hole_gives_the_bytes_before_it() {
        let page = page_before_a_hole();
        let pid = std::process::id() as i32;
        let mut bytes = [1; 32];
        assert_eq!(read(pid, page + 4096 - 32, &mut bytes), Ok(()));
        assert_eq!(read(pid, page + 4096 - 7, &mut bytes), Err(7));
        assert_eq!(read(pid, page + 4096, &mut bytes), Err(0));
        assert_eq!(write(pid, page + 4096 - 7, &bytes), Err(7));
    }

    #[test]
    fn pieces_are_written_in_their_order_up_to_a_hole() {
        let page = page_before_a_hole();
        let pid = std::process::id() as i32;
        let pieces: Vec<(u64, &[u8])> = (0..2000).map(|number| (page + 2 * number, &b"x"[..])).collect();
        assert_eq!(write_each(pid, &pieces), Ok(()));
        let mut bytes = [0; 4096];
        assert_eq!(read(pid, page, &mut bytes), Ok(()));
        assert!((0..2000).all(|number| bytes[2 * number..][..2] == *b"x\0"));
        assert_eq!(write_each(pid, &[(page, b"abc"), (page + 4096, b"d"), (page + 8, b"e")]), Err(3));
    }

    #[test]
    fn data_writes_honour_the_protection_and_code_writes_do_not() {
        static CODE: [u8; 64] = [0x90; 64];
        let memory = Memory::open(std::process::id() as i32).expect("own memory");
        let address = std::ptr::from_ref(&CODE) as u64;
        assert_eq!(write(std::process::id() as i32, address, &[0xcc]), Err(0));
        memory.poke(address + 1, &[0xcc]).expect("a private page can be written");
        let mut bytes = [0; 3];
        memory.peek(address, &mut bytes).expect("mapped");
        assert_eq!(bytes, [0x90, 0xcc, 0x90]);
    }
}
