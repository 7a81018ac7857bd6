//! The kernel's helpers that a program can call.

/// Makes one constant for each row, and the table of names.
macro_rules! helpers {
    ($($number:literal $constant:ident $name:literal)*) => {
        impl Helper {
            $(
                #[doc = concat!("`bpf_", $name, "`")]
                pub const $constant: Self = Self($number);
            )*

            /// The helper's name without `bpf_`, if it is one of those above.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

/// A helper, by the number that the kernel gives it. bpf-helpers(7) describes their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Helper(i32);

impl Helper {
    /// The number in a call instruction.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// A helper that has no constant here.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }
}

helpers! {
    1 MAP_LOOKUP_ELEM "map_lookup_elem"
    2 MAP_UPDATE_ELEM "map_update_elem"
    3 MAP_DELETE_ELEM "map_delete_elem"
    4 PROBE_READ "probe_read"
    5 KTIME_GET_NS "ktime_get_ns"
    6 TRACE_PRINTK "trace_printk"
    7 GET_PRANDOM_U32 "get_prandom_u32"
    8 GET_SMP_PROCESSOR_ID "get_smp_processor_id"
    12 TAIL_CALL "tail_call"
    14 GET_CURRENT_PID_TGID "get_current_pid_tgid"
    15 GET_CURRENT_UID_GID "get_current_uid_gid"
    16 GET_CURRENT_COMM "get_current_comm"
    27 GET_STACKID "get_stackid"
    35 GET_CURRENT_TASK "get_current_task"
    36 PROBE_WRITE_USER "probe_write_user"
    37 CURRENT_TASK_UNDER_CGROUP "current_task_under_cgroup"
    42 GET_NUMA_NODE_ID "get_numa_node_id"
    56 PERF_PROG_READ_VALUE "perf_prog_read_value"
    67 GET_STACK "get_stack"
    80 GET_CURRENT_CGROUP_ID "get_current_cgroup_id"
    93 SPIN_LOCK "spin_lock"
    94 SPIN_UNLOCK "spin_unlock"
    109 SEND_SIGNAL "send_signal"
    112 PROBE_READ_USER "probe_read_user"
    113 PROBE_READ_KERNEL "probe_read_kernel"
    114 PROBE_READ_USER_STR "probe_read_user_str"
    115 PROBE_READ_KERNEL_STR "probe_read_kernel_str"
    117 SEND_SIGNAL_THREAD "send_signal_thread"
    118 JIFFIES64 "jiffies64"
    120 GET_NS_CURRENT_PID_TGID "get_ns_current_pid_tgid"
    123 GET_CURRENT_ANCESTOR_CGROUP_ID "get_current_ancestor_cgroup_id"
    125 KTIME_GET_BOOT_NS "ktime_get_boot_ns"
    130 RINGBUF_OUTPUT "ringbuf_output"
    131 RINGBUF_RESERVE "ringbuf_reserve"
    132 RINGBUF_SUBMIT "ringbuf_submit"
    133 RINGBUF_DISCARD "ringbuf_discard"
    134 RINGBUF_QUERY "ringbuf_query"
    148 COPY_FROM_USER "copy_from_user"
    158 GET_CURRENT_TASK_BTF "get_current_task_btf"
    160 KTIME_GET_COARSE_NS "ktime_get_coarse_ns"
    173 GET_FUNC_IP "get_func_ip"
    174 GET_ATTACH_COOKIE "get_attach_cookie"
    175 TASK_PT_REGS "task_pt_regs"
    181 LOOP "loop"
    182 STRNCMP "strncmp"
    191 COPY_FROM_USER_TASK "copy_from_user_task"
    195 MAP_LOOKUP_PERCPU_ELEM "map_lookup_percpu_elem"
    208 KTIME_GET_TAI_NS "ktime_get_tai_ns"
}
