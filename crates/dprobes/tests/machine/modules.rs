//! Modules of the kernel come and go in the machine, as tests of probes in them need.

use crate::trial::Trial;

/// Loads a network device without hardware, uses it, and unloads it. IPv6 would send a packet itself.
const IFB: &str = "
    echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
    grep -c '\\[ifb\\]' /proc/kallsyms || true
    insmod /modules/ifb.ko numifbs=1
    grep -c ' ifb_xmit\t\\[ifb\\]' /proc/kallsyms
    calls packets 7 ifb0 > /dev/null
    cat /sys/class/net/ifb0/statistics/rx_dropped
    rmmod ifb
    grep -c '\\[ifb\\]' /proc/kallsyms || true";

/// Makes a file system on a RAM disk, and leaves no trace of it.
const BRD: &str = "
    insmod /modules/brd.ko rd_nr=1 rd_size=4096
    mke2fs /dev/ram0 > /dev/null
    mkdir -p /mnt
    mount -t ext2 /dev/ram0 /mnt
    calls write 3 /mnt/file > /dev/null
    wc -l < /mnt/file
    umount /mnt
    rmmod brd";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::shell("modules: a network device comes and goes", IFB, |text| {
            assert_eq!(text, "0\n1\n7\n0\n")
        }),
        Trial::shell("modules: a RAM disk comes and goes", BRD, |text| assert_eq!(text, "3\n")),
    ]
}
