//! Which engine runs what is inserted: Linux 6.1 has no links of many uprobes, and none of one
//! process with all of its threads.

use crate::trial::Trial;

/// A program at a function that the kernel and the tracer can run.
const COUNTING: &str = "modtype = user\\nvars = 1\\noffset = work\\ninc lv, 0\\npush pid\\nlog 1\\nexit\\n";
/// One that no eBPF program can do.
const FLOATING: &str =
    "modtype = user\\nvars = 1\\noffset = work\\ninc lv, 0\\npush u, mxcsr\\nlog 1\\nexit\\n";
/// One that eBPF programs of other kernels may do.
const CHANGING: &str = "modtype = user\\noffset = work\\npush r, rax\\npop r, rax\\nexit\\n";

/// Shell lines: a server, whose standard input is descriptor 5 and whose process is `$server`; then
/// more lines, and its end.
fn with_server(lines: &str) -> String {
    format!(
        "rm -f asked said more.dpt; mkfifo asked
        tight -i < asked > said & server=$!
        exec 5> asked
        until grep -q pid said; do sleep 0.1; done
        {lines}
        exec 5>&-
        wait $server"
    )
}

/// Shell lines that have the server call `work`, and wait until it has.
fn ask(calls: u32) -> String {
    format!(
        "rounds=$(grep -c calls said || true); echo {calls} 1 >&5
        while [ $(grep -c calls said || true) = $rounds ]; do sleep 0.1; done"
    )
}

fn program(name: &str, text: &str) -> String {
    format!("printf 'name = \"/bin/tight\"\\n{text}' > {name}")
}

#[track_caller]
fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let for_all = with_server(&format!(
        "{}
        dprobes insert all.rpn -o all.dpt
        {}
        tight 20
        grep TracerPid /proc/$server/status
        dprobes query --all
        dprobes getvars --all
        dprobes remove --all
        tight 7
        echo records $(dprobes show all.dpt | wc -l)
        dprobes session stop",
        program("all.rpn", COUNTING),
        ask(30)
    ));
    let by_tracer = with_server(&format!(
        "{}
        ! dprobes insert --engine kernel float.rpn 2>&1
        echo nothing: $(dprobes query --all)
        dprobes insert float.rpn -o float.dpt
        {}
        if grep -q 'TracerPid:[^0-9]*[1-9]' /proc/$server/status; then echo it is traced; fi
        dprobes query --all
        dprobes remove --all
        dprobes session stop",
        program("float.rpn", FLOATING),
        ask(30)
    ));
    let of_one = with_server(&format!(
        "dprobes attach --engine kernel -p $server --at 'a.out:work' --at 'a.out:work_slot' \\
            --stats stats 2> told & session=$!
        until grep -q ' armed in ' told; do kill -0 $session; sleep 0.1; done
        {}
        tight 20
        kill -TERM $session
        wait $session
        cat told stats",
        ask(30)
    ));
    let refused = format!(
        "{}
        ! dprobes attach --engine kernel change.rpn 2>&1",
        program("change.rpn", CHANGING)
    );
    vec![
        Trial::shell("inserted: the kernel runs what is for all processes", &for_all, |text| {
            let parts = [
                "1 probe inserted in `/bin/tight`, by the kernel engine\n",
                "TracerPid:\t0\n",
                "hits 50 runs 50 ",
                // One by one.
                "  run by the kernel: uprobe 1\n",
                "lv[0] = 50 ",
                "records 50\n",
            ];
            has_all(text, &parts);
        }),
        Trial::shell("inserted: the tracer runs what the kernel cannot", &by_tracer, |text| {
            let parts = [
                "an eBPF program sees no register of the FPU or of SSE\n",
                "nothing:\n",
                "1 probe inserted in `/bin/tight`, which 1 process maps now\n",
                "it is traced\n",
                "hits 30 runs 30 ",
            ];
            has_all(text, &parts);
            assert!(!text.contains("by the kernel"), "{text}");
        }),
        Trial::shell("inserted: the kernel probes one process, site by site", &of_one, |text| {
            let spaceless: String = text.split_whitespace().collect();
            assert_eq!(spaceless.matches("\"hits\":30,").count(), 2, "{text}");
            assert_eq!(spaceless.matches("\"kernel\":{\"uprobe\":1}").count(), 2, "{text}");
        }),
        Trial::shell("inserted: what this kernel lacks is refused with its reason", &refused, |text| {
            let reason = "this kernel lets no eBPF program change the registers at this place";
            assert!(text.contains(reason), "{text}");
        }),
    ]
}
