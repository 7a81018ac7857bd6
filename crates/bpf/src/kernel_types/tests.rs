//! The running kernel's own types, and damaged ones.

use super::*;

/// The kernel's own file, if it shows one.
fn file() -> Option<Vec<u8>> {
    sys::read_file("/sys/kernel/btf/vmlinux").ok()
}

#[test]
fn the_kernels_functions_and_structs_are_what_they_are_in_its_sources() {
    let Some(bytes) = file() else { return testing::skipped("btf: types", "the kernel's BTF") };
    let types = KernelTypes::parse(bytes).expect("it is one");
    let read = types.function("vfs_read").expect("it reads");
    let texts: Vec<String> =
        read.parameters.iter().map(|(name, of)| format!("{} {name}", types.text(*of))).collect();
    assert_eq!(texts, ["struct file * file", "char * buf", "size_t count", "loff_t * pos"]);
    assert_eq!(types.text(read.result), "ssize_t");
    assert_eq!(types.shape(read.result), KernelShape::Integer { bytes: 8, signed: true });
    let task = types.record(false, "task_struct").expect("it has tasks");
    let members = types.members(task);
    let member = |name: &str| members.iter().find(|member| member.name == name).expect("it is there");
    let comm = types.shape(member("comm").of);
    assert!(matches!(comm, KernelShape::Array { length: 16, .. }), "{comm:?}");
    assert_eq!(types.text(member("comm").of), "char[16]");
    let tgid = crate::kernel_members("task_struct", ["tgid"]).expect("it is read").expect("it is there");
    assert_eq!(member("tgid").first, u64::from(tgid[0]) * 8);
    assert!(types.size(task).is_some_and(|size| size > 1000));
    assert!(types.function("no_such_function").is_none());
    assert!(types.functions().contains(&"vfs_read".to_owned()));
}

#[test]
fn tracepoints_have_their_arguments() {
    let Some(bytes) = file() else { return testing::skipped("btf: tracepoints", "the kernel's BTF") };
    let types = KernelTypes::parse(bytes).expect("it is one");
    assert!(types.tracepoints().contains(&"sched_switch".to_owned()));
    let arguments = types.tracepoint("sched_process_fork").expect("it is told");
    let texts: Vec<String> = arguments.iter().map(|(_, of)| types.text(*of)).collect();
    assert_eq!(texts, ["struct task_struct *", "struct task_struct *"]);
    assert!(types.tracepoint("no_such_tracepoint").is_none());
}

#[test]
fn enums_have_their_constants() {
    let Some(bytes) = file() else { return testing::skipped("btf: enums", "the kernel's BTF") };
    let types = KernelTypes::parse(bytes).expect("it is one");
    let kinds = types.enumeration("pid_type").expect("it has numbers of processes");
    let constants = types.enumerators(kinds);
    assert!(constants.contains(&("PIDTYPE_PID".to_owned(), 0)), "{constants:?}");
    assert!(constants.contains(&("PIDTYPE_TGID".to_owned(), 1)), "{constants:?}");
}

#[test]
fn a_file_that_is_cut_or_changed_is_read_without_harm() {
    let Some(bytes) = file() else { return testing::skipped("btf: damage", "the kernel's BTF") };
    let short = 1 << 16;
    for length in (0..short).step_by(257) {
        assert!(KernelTypes::parse(bytes[..length].to_vec()).is_none(), "{length}");
    }
    // Types that lead to others at random, and to themselves.
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20 {
        let mut bytes = bytes.clone();
        for _ in 0..2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let place = 24 + (state >> 33) as usize % (bytes.len() - 24);
            bytes[place] = (state >> 20) as u8;
        }
        let Some(types) = KernelTypes::parse(bytes) else { continue };
        for number in (0..types.starts.len() as u32).step_by(97) {
            let of = KernelType(number);
            let _ = (types.text(of), types.size(of), types.members(of), types.enumerators(of));
        }
        let _ = (types.function("vfs_read"), types.tracepoint("sched_switch"), types.functions());
    }
}
