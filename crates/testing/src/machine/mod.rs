//! A virtual machine with a kernel of its own, for tests that probe a kernel.
//!
//! Kernel probes act on the whole system, and a mistake may crash it. So tests run them in a
//! machine that QEMU emulates, with the kernel of Debian 12. Nothing of the host is changed, and no
//! root is needed.
//!
//! ```text
//! Machine: files, commands --cpio--> initramfs --qemu--> kernel --> tests/targets/machine.c (pid 1)
//!                                                          |             runs the commands
//!                                        console (ttyS0) --+             | reports (port 0xe9)
//!                                                          v             v
//!                                                        [Output of each command]
//! ```
//!
//! The machine's files are in its memory only: busybox as the shell and its commands, and what the
//! test adds. A boot takes a few seconds, so one boot runs the commands of many tests. If a command
//! crashes the kernel, the rest run in another boot.
//!
//! ```no_run
//! use testing::machine::{Command, End, Kernel, Machine};
//!
//! let kernel = Kernel::available().expect("QEMU and the kernel are there");
//! let mut machine = Machine::new(&kernel);
//! machine.module("ifb");
//! let outputs = machine.run(&[Command::shell("insmod /modules/ifb.ko && ip link set ifb0 up")]);
//! assert_eq!(outputs[0].end, End::Exited(0), "{:#?}", outputs[0]);
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `kernel` | the kernel and what goes with it: found, or fetched from Debian |
//! | `setup` | [`Machine`]: which files it has, how it is booted |
//! | `cpio` | the format of an initramfs |
//! | `command` | what is run, and what became of it |
//! | `reports` | the bytes that the first process sends |
//! | `console` | the kernel's messages, by command; its panic |
//! | `boot` | one run of QEMU |

mod boot;
mod command;
mod console;
mod cpio;
mod kernel;
mod reports;
mod setup;

pub use command::{Command, End, Output};
pub use kernel::{Kernel, Missing};
pub use setup::Machine;
