//! Processes that may not be probed are refused, and left unchanged.

use crate::support::{Server, dprobes, need, run, target, text_differences};
use std::process::Command;

#[test]
fn a_process_of_another_user_and_a_thread_of_the_kernel_are_refused() {
    let program = need!("another user's process", target("server"), "gcc");
    let setpriv = need!("another user's process", testing::find_program("setpriv"), "setpriv");
    if !testing::is_root() {
        return testing::skipped("another user's process", "root");
    }
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    // Other users cannot enter this directory: they get a copy of the command elsewhere.
    let copy = std::env::temp_dir().join(format!("dprobes-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_dprobes"), &copy).expect("the command can be copied");
    let scratch = std::env::temp_dir().join(format!("dprobes-{}.rpn", std::process::id()));
    let text = "name = \"server\"\nmodtype = user\noffset = server_work\nabort\n";
    std::fs::write(&scratch, text).expect("the program can be written");
    let mut command = Command::new(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(["attach", "-p"]);
    let (status, _, stderr) = run(command.arg(server.pid().to_string()).arg(&scratch).current_dir("/"));
    assert!(!status.success(), "{stderr}");
    assert!(stderr.contains(&server.pid().to_string()), "{stderr}");
    assert!(stderr.contains("belongs to user 0"), "{stderr}");
    assert!(server.lives() && text_differences(server.pid()).is_empty());

    let threads = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let kernel = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.split(' ').nth(3) == Some("2")
    });
    if let Some(kernel) = kernel {
        let mut command = dprobes();
        let (status, _, stderr) = run(command.args(["attach", "-p", &kernel.to_string()]).arg(&scratch));
        assert!(!status.success() && stderr.contains("kernel"), "{stderr}");
    }
    let _ = std::fs::remove_file(copy);
    let _ = std::fs::remove_file(scratch);
}
