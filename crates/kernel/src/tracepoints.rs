//! The kernel's tracepoints: which there are, and where the fields of their records are.
//!
//! Tracefs describes them, in `events/SYSTEM/NAME/format`:
//!
//! ```text
//! name: sched_process_exec
//! ID: 365
//! format:
//!         field:int common_pid;             offset:4;   size:4;  signed:1;
//!         field:__data_loc char[] filename; offset:8;   size:4;  signed:0;
//!         field:pid_t pid;                  offset:12;  size:4;  signed:1;
//!
//! print fmt: "filename=%s pid=%d", __get_str(filename), REC->pid
//! ```
//!
//! A program sees the record as its context, but for the first 8 bytes, in which the kernel passes
//! an address of its own: so the fields that are common to all tracepoints are computed, or not
//! there.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where tracefs is mounted, usually.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Bytes at the start of a record that a program does not see.
const HIDDEN: u32 = 8;
/// The largest record: `PERF_MAX_TRACE_SIZE`.
const LARGEST: u32 = 8192;
/// The most bytes of a description. Those of the kernel have some thousand.
const LONGEST: u64 = 1 << 20;

/// How a program gets the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldAccess {
    /// An integer in the record, of 1, 2, 4 or 8 bytes.
    Integer {
        /// Its offset in the record.
        offset: u16,
        /// Its bytes.
        size: u8,
        /// Whether its sign is extended.
        signed: bool,
    },
    /// Something else in the record, whose address is the value.
    Inline {
        /// Its offset in the record.
        offset: u16,
    },
    /// An array or a string behind the fixed part of the record, whose address is the value: the
    /// record has its offset there, in the lower 16 bits of a word of 32.
    Located {
        /// The offset of that word.
        offset: u16,
        /// What is added to the offset that it holds.
        from: u16,
    },
    /// An argument as the kernel passes it: a word of the program's context.
    Word {
        /// Its offset there.
        offset: u16,
    },
    /// The number of the thread.
    Thread,
    /// A number that is always the same.
    Constant(u32),
    /// The kernel does not show it to programs.
    Hidden,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type and name as C declares them: `char comm[16]`.
    pub declaration: String,
    /// Its bytes in the record.
    pub size: u32,
    /// Whether it may be negative.
    pub signed: bool,
    /// How a program gets its value.
    pub access: FieldAccess,
}

/// What a tracepoint's description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The tracepoint's number.
    pub id: u32,
    /// The fields of its record.
    pub fields: Vec<Field>,
}

impl Field {
    /// Whether all records have it, and it is no part of what the tracepoint tells.
    pub fn is_common(&self) -> bool {
        matches!(self.access, FieldAccess::Thread | FieldAccess::Constant(_) | FieldAccess::Hidden)
    }
}

impl Format {
    /// Parses a description.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Format, String> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")).ok_or("it has no line `ID:`")?;
        let id =
            id.trim().parse().map_err(|_| format!("the number `{}` is none", printable::text(id.trim())))?;
        // The format of how it is printed may have any text.
        let lines = text.lines().take_while(|line| !line.starts_with("print fmt:"));
        let fields = lines.filter_map(|line| line.trim_start().strip_prefix("field:"));
        let fields = fields.map(|line| {
            field(line, id).ok_or_else(|| format!("the field `{}` is not understood", printable::text(line)))
        });
        Ok(Format { id, fields: fields.collect::<Result<_, String>>()? })
    }

    /// How a program gets the value of a field.
    pub fn access(&self, name: &str) -> Option<FieldAccess> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.access)
    }
}

/// Parses `TYPE NAME; offset:N; size:N; signed:N;`.
fn field(line: &str, id: u32) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.trim().parse::<u32>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    if offset.checked_add(size)? > LARGEST {
        return None;
    }
    // `char comm[16]`, but `__data_loc char[] filename`.
    let is_array = declaration.ends_with(']');
    let named = if is_array { declaration.split_once('[')?.0 } else { declaration };
    let (kind, name) = named.rsplit_once([' ', '*', '\t'])?;
    if name.is_empty() {
        return None;
    }
    let is_pointer = named.contains('*');
    let is_struct = ["struct ", "union "].iter().any(|word| kind.starts_with(word)) && !is_pointer;
    let place = offset as u16;
    let access = if offset < HIDDEN {
        match name {
            "common_pid" => FieldAccess::Thread,
            "common_type" => FieldAccess::Constant(id),
            _ => FieldAccess::Hidden,
        }
    } else if kind.starts_with("__data_loc") && size == 4 {
        FieldAccess::Located { offset: place, from: 0 }
    } else if kind.starts_with("__rel_loc") && size == 4 {
        FieldAccess::Located { offset: place, from: place.checked_add(4)? }
    } else if !is_array && !is_struct && matches!(size, 1 | 2 | 4 | 8) {
        FieldAccess::Integer { offset: place, size: size as u8, signed: signed != 0 }
    } else {
        FieldAccess::Inline { offset: place }
    };
    let declaration = declaration.to_owned();
    Some(Field { name: name.to_owned(), declaration, size, signed: signed != 0, access })
}

/// The tracepoints of the running kernel.
#[derive(Clone, Debug)]
pub struct Tracefs {
    events: PathBuf,
}

impl Tracefs {
    /// Finds where the kernel describes its tracepoints.
    ///
    /// # Errors
    /// What is missing.
    pub fn open() -> Result<Tracefs, String> {
        let found = MOUNTS.iter().map(|mount| Path::new(mount).join("events"));
        let mut reason = None;
        for events in found {
            match fs::read_dir(&events) {
                Ok(_) => return Ok(Tracefs { events }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => reason = reason.or(Some(format!("{}: {error}", events.display()))),
            }
        }
        Err(reason.unwrap_or_else(|| {
            format!(
                "tracefs, which describes the kernel's tracepoints, is not mounted: mount -t tracefs tracefs {}",
                MOUNTS[0]
            )
        }))
    }

    /// The names of the systems that have tracepoints, sorted.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn systems(&self) -> Result<Vec<String>, String> {
        let entries =
            fs::read_dir(&self.events).map_err(|error| format!("{}: {error}", self.events.display()))?;
        let entries = entries.filter_map(Result::ok).filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The names of a system's tracepoints, sorted.
    ///
    /// # Errors
    /// There is no such system.
    pub fn names(&self, system: &str) -> Result<Vec<String>, String> {
        let directory = self.events.join(system);
        let entries = fs::read_dir(&directory).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                format!("the kernel has no tracepoints of a system `{}`", printable::text(system))
            }
            _ => format!("{}: {error}", directory.display()),
        })?;
        let entries = entries.filter_map(Result::ok).filter(|entry| entry.path().join("format").exists());
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The description of a tracepoint.
    ///
    /// # Errors
    /// There is no such tracepoint, or its description is not understood.
    pub fn format(&self, system: &str, name: &str) -> Result<Format, String> {
        let path = self.events.join(system).join(name).join("format");
        let mut text = String::new();
        let read = fs::File::open(&path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        read.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                format!(
                    "the kernel has no tracepoint `{}:{}`",
                    printable::text(system),
                    printable::text(name)
                )
            }
            _ => format!("{}: {error}", path.display()),
        })?;
        Format::parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

";

    fn parse(fields: &str) -> Result<Format, String> {
        Format::parse(&format!(
            "name: x\nID: 305\n{COMMON}{fields}\nprint fmt: \"field:%d\", REC->a\nfield:no\n"
        ))
    }

    fn integer(offset: u16, size: u8, signed: bool) -> Option<FieldAccess> {
        Some(FieldAccess::Integer { offset, size, signed })
    }

    #[test]
    fn a_system_calls_arguments_are_integers() {
        let format = parse(
            "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;
\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;
\tfield:const char *const *argv;\toffset:32;\tsize:8;\tsigned:0;",
        )
        .expect("it is one");
        assert_eq!(format.id, 305);
        assert_eq!(format.access("__syscall_nr"), integer(8, 4, true));
        assert_eq!(format.access("dfd"), integer(16, 8, false));
        assert_eq!(format.access("filename"), integer(24, 8, false));
        assert_eq!(format.access("argv"), integer(32, 8, false));
        assert_eq!((format.access("mode"), format.fields.len()), (None, 8));
    }

    #[test]
    fn what_is_common_to_all_records_is_not_in_the_record() {
        let format = parse("").expect("it is one");
        let accesses: Vec<FieldAccess> = format.fields.iter().map(|field| field.access).collect();
        let hidden = FieldAccess::Hidden;
        assert_eq!(accesses, [FieldAccess::Constant(305), hidden, hidden, FieldAccess::Thread]);
    }

    #[test]
    fn arrays_strings_and_structures_are_addresses() {
        let format = parse(
            "\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;
\tfield:__rel_loc u8[] tail;\toffset:12;\tsize:4;\tsigned:0;
\tfield:char comm[16];\toffset:16;\tsize:16;\tsigned:0;
\tfield:struct timespec64 now;\toffset:32;\tsize:8;\tsigned:0;
\tfield:struct file * file;\toffset:40;\tsize:8;\tsigned:0;
\tfield:enum xfs_group_type type;\toffset:48;\tsize:1;\tsigned:0;
\tfield:unsigned long args[6];\toffset:56;\tsize:48;\tsigned:0;
\tfield:u32 odd;\toffset:105;\tsize:4;\tsigned:0;
\tfield:u8 long[8];\toffset:112;\tsize:8;\tsigned:0;
\tfield:u8 address[6 + 2];\toffset:120;\tsize:8;\tsigned:0;",
        )
        .expect("it is one");
        assert_eq!(format.access("filename"), Some(FieldAccess::Located { offset: 8, from: 0 }));
        assert_eq!(format.access("tail"), Some(FieldAccess::Located { offset: 12, from: 16 }));
        assert_eq!(format.access("comm"), Some(FieldAccess::Inline { offset: 16 }));
        assert_eq!(format.access("now"), Some(FieldAccess::Inline { offset: 32 }));
        assert_eq!(format.access("file"), integer(40, 8, false));
        assert_eq!(format.access("type"), integer(48, 1, false));
        assert_eq!(format.access("args"), Some(FieldAccess::Inline { offset: 56 }));
        assert_eq!(format.access("odd"), integer(105, 4, false));
        assert_eq!(format.access("address"), Some(FieldAccess::Inline { offset: 120 }));
        assert_eq!(format.access("long"), Some(FieldAccess::Inline { offset: 112 }));
    }

    #[test]
    fn what_is_no_description_is_refused() {
        for wrong in [
            "\tfield:int a;\toffset:8;\tsize:4;",
            "\tfield:int a;\toffset:-8;\tsize:4;\tsigned:1;",
            "\tfield:int a;\toffset:8190;\tsize:4;\tsigned:1;",
            "\tfield:int a;\toffset:4294967295;\tsize:4;\tsigned:1;",
            "\tfield:int;\toffset:8;\tsize:4;\tsigned:1;",
            "\tfield:int [4];\toffset:8;\tsize:4;\tsigned:1;",
            "\tfield:\u{1b}[31m",
        ] {
            let reason = parse(wrong).expect_err(wrong);
            assert!(reason.contains("is not understood") && !reason.contains('\u{1b}'), "{reason}");
        }
        assert!(Format::parse("").is_err() && Format::parse("ID: x\n").is_err());
    }

    #[test]
    fn every_description_of_this_kernel_is_understood() {
        let Ok(tracefs) = Tracefs::open() else {
            return testing::skipped("optional: tracefs", "a mounted tracefs");
        };
        let mut count = 0;
        for system in tracefs.systems().expect("they were read before") {
            for name in tracefs.names(&system).unwrap_or_default() {
                let format = tracefs.format(&system, &name).unwrap_or_else(|reason| panic!("{reason}"));
                assert!(format.access("common_pid").is_some(), "{system}:{name}");
                count += 1;
            }
        }
        assert!(count > 100, "{count}");
        assert!(tracefs.names("no_such_system").is_err());
        assert!(tracefs.format("sched", "no_such_tracepoint").is_err());
    }
}
