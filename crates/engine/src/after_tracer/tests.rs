use super::*;

#[test]
fn a_jump_is_followed_where_it_stands() {
    let mut code = vec![0x90u8; 4096];
    let base = code.as_mut_ptr() as u64;
    // A short jump to a long one; a jump that was never written; a trap.
    let short = Change::new(base + 16, &[0x90, 0x90], &[0xeb, 0x0e]);
    let long = Change::new(base + 32, &[0x90; 5], &[0xe9, 0x00, 0x10, 0, 0]);
    let planned = Change::new(base + 64, &[0x90; 5], &[0xe9, 0x00, 0x10, 0, 0]);
    let trap = Change::new(base + 96, &[0x90], &[0xcc]);
    code[16..18].copy_from_slice(short.written());
    code[32..37].copy_from_slice(long.written());
    code[96] = 0xcc;
    let memory = Memory::open(std::process::id() as i32).expect("own memory");
    let jumps = Jumps::of(&[short, long, planned, trap], &memory);
    assert_eq!(jumps.from(base + 16), Some(base + 32));
    assert_eq!(jumps.from(base + 32), Some(base + 37 + 0x1000));
    assert_eq!((jumps.from(base + 64), jumps.from(base + 96)), (None, None));
}

/// A child that waits in a piece of code for a byte from a pipe. Returns the code, the child,
/// and the write end of the pipe.
fn waits_in_lent_bytes() -> (u64, i32, i32) {
    // `syscall`, `ret`, and padding to the length of a stub.
    let mut code_bytes = [0x90u8; process::STUB.len()];
    code_bytes[..3].copy_from_slice(&[0x0f, 0x05, 0xc3]);
    let mut pipe = [0; 2];
    // SAFETY: a fresh mapping, which gets code; room for two descriptors. The child makes only
    // calls that are safe after a fork, and ends.
    unsafe {
        let (all, private) =
            (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let code = libc::mmap(std::ptr::null_mut(), 4096, all, private, -1, 0);
        assert_ne!(code, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(code_bytes.as_ptr(), code.cast(), code_bytes.len());
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::close(pipe[1]);
            let mut byte = 0u8;
            let mut read = libc::SYS_read;
            std::arch::asm!("call {code}", code = in(reg) code, inout("rax") read, in("rdi") pipe[0],
                    in("rsi") &raw mut byte, in("rdx") 1, out("rcx") _, out("r11") _);
            let again = libc::read(pipe[0], (&raw mut byte).cast(), 1);
            libc::_exit(if read == 1 && again == 1 && byte == 7 { 0 } else { 1 });
        }
        libc::close(pipe[0]);
        (code as u64, child, pipe[1])
    }
}

#[test]
fn what_was_lent_is_given_back_when_the_call_is_over() {
    for waits in [false, true] {
        let (code, child, pipe) = waits_in_lent_bytes();
        while !process::blocked_at(child).is_ok_and(|at| at == Some(code + 2)) {
            std::thread::sleep(PAUSE);
        }
        let memory = Memory::open(child).expect("an own child");
        let mut lent = [0; process::STUB.len()];
        memory.peek(code, &mut lent).expect("it is mapped");
        let change = Change::new(code, &[0; process::STUB.len()], &lent);
        // SAFETY: one byte into a pipe with a reader.
        let end = move || unsafe { assert_eq!(libc::write(pipe, [7u8].as_ptr().cast(), 1), 1) };
        if waits {
            assert!(give_back(child, &change).is_err(), "it is still there");
            assert!(change.is_in(&Window::new(&memory)));
            end();
            give_back(child, &change).expect("it has left them");
        } else {
            let ends = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                end();
            });
            give_back(child, &change).expect("it leaves them soon");
            ends.join().expect("it has written");
        }
        let mut now = [1; process::STUB.len()];
        memory.peek(code, &mut now).expect("it is mapped");
        assert_eq!(now, [0; process::STUB.len()]);
        end();
        let mut status = 0;
        // SAFETY: a wait for an own child; the pipe is this test's.
        unsafe {
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            libc::close(pipe);
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    }
}
