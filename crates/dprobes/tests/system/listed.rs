//! `list --data`: variables, where the program itself says that it has them.

use std::process::Command;

use testing::output;

use crate::support::{Scratch, Server, dprobes, find_program, need, run};

/// Says where its variables are. One of them is no part of the file.
const PROGRAM: &str = r#"#include <stdio.h>
int counts[30] = { 1 };
static char room[70000];
int main(void)
{
    printf("%p %p\n", (void *)counts, (void *)room);
    fflush(stdout);
    while (getchar() != EOF) ;
    return 0;
}
"#;

#[test]
fn variables_are_where_the_program_has_them() {
    let gcc = need!("list: data", find_program("gcc"), "gcc");
    let scratch = Scratch::new();
    let (source, program) = (scratch.file("variables.c", PROGRAM), scratch.path().join("variables"));
    output(Command::new(gcc).arg(source).arg("-o").arg(&program));
    // Of a file: names and sizes.
    let listed = output(dprobes().args(["list", "--data"]).arg(&program));
    for line in ["     120  variables:counts", "   70000  variables:room"] {
        assert_eq!(listed.lines().filter(|listed| listed.ends_with(line)).count(), 1, "{listed}");
    }
    assert!(!listed.contains(":main"), "{listed}");
    let one = output(dprobes().args(["list", "--data"]).arg(&program).arg("count?"));
    assert_eq!(one.lines().count(), 1, "{one}");
    // Of a process: the program's own addresses.
    let server = Server::start(&program, [] as [&str; 0]);
    let said = server.line();
    let pid = server.pid().to_string();
    let names = ["counts", "room"];
    for (address, name) in said.split_whitespace().zip(names) {
        let listed = output(dprobes().args(["list", "--data", "-p", &pid, &format!("variables:{name}")]));
        let address = u64::from_str_radix(&address[2..], 16).expect("an address");
        assert!(listed.starts_with(&format!("{address:#018x} ")), "{said}: {listed}");
        assert_eq!(listed.lines().count(), 1, "{listed}");
    }
    assert!(server.end().0.success());
    let (status, _, said) = run(dprobes().args(["list", "--data"]).arg(&program).arg("nothing*"));
    assert_eq!((status.code(), said.as_str()), (Some(1), "dprobes: error: nothing matches\n"));
}

/// The kernel's own list of its functions says where they are; who may not see that is told.
#[test]
fn functions_of_the_kernel_are_where_it_says() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let of = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        (name == "vfs_read" && kind.eq_ignore_ascii_case("t")).then(|| address.to_owned())
    };
    let Some(address) = symbols.lines().find_map(of) else {
        return testing::skipped("list: kernel", "a kernel that shows its symbols");
    };
    let (status, listed, said) = run(dprobes().args(["list", "kernel", "vfs_rea*"]));
    if address.bytes().all(|digit| digit == b'0') {
        assert!(status.code() == Some(1) && said.contains("the kernel hides its addresses"), "{said}");
        return;
    }
    assert_eq!(status.code(), Some(0), "{said}");
    let line = listed.lines().find(|line| line.ends_with("  kernel:vfs_read")).unwrap_or_default();
    assert!(line.starts_with(&format!("0x{address} ")), "{address}: {listed}");
    assert!(listed.contains(":vfs_readv\n") && !listed.contains("vfs_write"), "{listed}");
    let (status, _, said) = run(dprobes().args(["list", "kernel", "no_such_function*"]));
    assert!(status.code() == Some(1) && said.contains("nothing matches"), "{said}");
    let (status, _, said) = run(dprobes().args(["list", "kernel", "--tactics"]));
    assert!(status.code() == Some(2) && said.contains("no points of them"), "{said}");
}
