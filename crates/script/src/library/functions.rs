//! Functions of scripts, a row each: name, parameters, what a call gives, what it needs, what is
//! said of it.
//!
//! What a function compiles to is in `compile/call.rs` and the files named there.

use super::entry::Accepts::{
    Address, Any, AnyOrMap, Condition, Countable, Format, Integer, Key, KeyedMap, Literal, Map, Memory,
    NetworkAddress, Number, Pointer, Signal, Text, Variable,
};
use super::entry::Gives::{Nothing, Same, Signed, Unsigned};
use super::entry::Usage::Function;
use super::entry::{Accepts, Entry, Gives, Needs, Parameter, needed, optional};
use crate::provider::Providers;
use crate::types::Opaque;

const FORMAT: &[Parameter] = &[needed("format", Format)];
const ANY: &[Parameter] = &[needed("value", Any)];
const WHOLE_MAP: &[Parameter] = &[needed("map", Map)];
const ENTRY: &[Parameter] = &[needed("map", KeyedMap), needed("key", Key)];
const KERNEL_FUNCTION: &[Parameter] = &[needed("name", Literal)];
const NEEDLE: &[Parameter] = &[needed("haystack", Text), needed("needle", Text)];
const SYMBOL: &[Parameter] = &[needed("symbol", Literal)];
const POINTER: &[Parameter] = &[needed("pointer", Address)];
const STRING: &[Parameter] = &[needed("string", Memory)];
const SIGNAL: &[Parameter] = &[needed("signal", Signal)];

const CALLS: Needs = Needs::Missing("calls of kernel functions from eBPF");

const fn function(name: &'static str, parameters: &'static [Parameter], gives: Gives) -> Entry {
    Entry::new(name, Function, parameters, gives)
}

/// The rows.
pub(super) const TABLE: &[Entry] = &[
    function("assert", &[needed("condition", Condition), needed("message", Text)], Nothing)
        .about("ends tracing with an error if the condition does not hold"),
    function("assert_str", ANY, Nothing)
        .about("refuses a value that is not like a string, when the script is checked"),
    function("bswap", &[needed("number", Integer)], Gives::Swapped).about("the bytes in the other order"),
    function("buf", &[needed("data", Memory), optional("length", Integer)], Gives::Bytes)
        .about("bytes from memory, to be printed with `%r`"),
    function("cat", FORMAT, Nothing).about("prints a file whose name is formatted"),
    function(
        "cgroup_path",
        &[needed("number", Integer), optional("filter", Literal)],
        Gives::Opaque(Opaque::CgroupPath),
    )
    .about("the path of a cgroup"),
    function("cgroupid", &[needed("path", Literal)], Unsigned(8)).about("the number of a cgroup"),
    function("clear", WHOLE_MAP, Nothing).about("removes all entries of a map"),
    function("comptime", ANY, Same(0)).about(
        "a value that is known when the script is checked; `if comptime` keeps the branch that is taken",
    ),
    function("core", &[], Nothing)
        .within(Providers::DUMPED)
        .needs(Needs::Unsafe)
        .about("ends the action, and dumps the core of the process, which goes on"),
    function("default_str_length", &[], Unsigned(8)).about("the length to which strings are read"),
    function("delete", &[needed("map", Map), optional("key", Key)], Gives::Bool)
        .about("removes an entry of a map"),
    function("errorf", FORMAT, Nothing).about("prints an error with the place in the script"),
    function("exit", &[optional("status", Integer)], Nothing).about("ends tracing"),
    function("fail", FORMAT, Nothing).about("refuses the script if this line is reached when it is checked"),
    function(
        "find",
        &[needed("map", KeyedMap), needed("key", Key), needed("variable", Variable)],
        Gives::Bool,
    )
    .about("sets a variable to an entry of a map, if there is one"),
    function(
        "getopt",
        &[needed("name", Literal), optional("default", Accepts::Default), optional("description", Literal)],
        Gives::OfDefault,
    )
    .about("a named parameter of the script"),
    function("globmatch", &[needed("string", Text), needed("pattern", Text)], Gives::Bool)
        .about("whether a string has the form of a pattern with `*`, `?` and `[a-z]`"),
    function("has_key", ENTRY, Gives::Bool).about("whether a map has an entry"),
    function("is_array", ANY, Gives::Bool).about("whether a value is an array"),
    function("is_integer", ANY, Gives::Bool).about("whether a value is an integer"),
    function("is_literal", ANY, Gives::Bool).about("whether a value is stated in the script"),
    function("is_ptr", ANY, Gives::Bool).about("whether a value is a pointer"),
    function("is_str", ANY, Gives::Bool).about("whether a value is a string"),
    function("is_unsigned_integer", ANY, Gives::Bool).about("whether a value is an unsigned integer"),
    function("join", &[needed("strings", Address), optional("separator", Literal)], Nothing)
        .about("prints the strings of an array of pointers that ends with 0"),
    function("kaddr", SYMBOL, Gives::Pointer).about("the address of a symbol of the kernel"),
    function("kfunc_allowed", KERNEL_FUNCTION, Gives::Bool)
        .needs(CALLS)
        .about("whether a probe may call a function of the kernel"),
    function("kfunc_exist", KERNEL_FUNCTION, Gives::Bool)
        .needs(CALLS)
        .about("whether the kernel has a function to call"),
    function("kptr", POINTER, Same(0)).needs(Needs::Kernel).about("a pointer into the kernel's memory"),
    function("ksym", &[needed("address", Address)], Gives::Opaque(Opaque::KernelSymbol))
        .about("the kernel's symbol at an address"),
    function("len", &[needed("counted", Countable)], Signed(8)).about("the number of entries or of frames"),
    function("macaddr", &[needed("bytes", Memory)], Gives::Opaque(Opaque::Mac))
        .about("an address of a network card"),
    function(
        "memcmp",
        &[needed("left", Memory), needed("right", Memory), needed("count", Integer)],
        Signed(4),
    )
    .about("compares bytes"),
    function(
        "ntop",
        &[optional("family", Integer), needed("address", NetworkAddress)],
        Gives::Opaque(Opaque::Inet),
    )
    .about("an address of a network"),
    function("override", &[needed("result", Integer)], Nothing)
        .within(Providers::OVERRIDDEN)
        .needs(Needs::Unsafe)
        .about("at a function's entry: returns this at once, and the function is not run"),
    function("path", &[needed("path", Any), optional("size", Number)], Gives::Text)
        .needs(Needs::Missing("the kernel's bpf_d_path, which only some functions of the kernel may call"))
        .about("the name of a file of the kernel"),
    function("percpu_kaddr", &[needed("symbol", Literal), optional("cpu", Integer)], Gives::Pointer)
        .needs(Needs::Kernel)
        .about("the address of a processor's variable of the kernel"),
    function(
        "print",
        &[needed("value", AnyOrMap), optional("top", Number), optional("divisor", Number)],
        Nothing,
    )
    .about("prints a value, or a map"),
    function("printf", FORMAT, Nothing).about("prints formatted values"),
    function("pton", &[needed("address", Literal)], Gives::AddressBytes).about("the bytes of an address"),
    function("reg", &[needed("register", Literal)], Unsigned(8))
        .within(Providers::REGISTERS)
        .about("a register"),
    function("signal", SIGNAL, Nothing)
        .within(Providers::TRACED)
        .needs(Needs::Unsafe)
        .about("sends a signal to the process"),
    function("signal_thread", SIGNAL, Nothing)
        .within(Providers::TRACED)
        .needs(Needs::Unsafe)
        .about("sends a signal to the thread"),
    function(
        "skboutput",
        &[
            needed("file", Literal),
            needed("packet", Pointer),
            needed("length", Integer),
            needed("offset", Integer),
        ],
        Unsigned(4),
    )
    .needs(Needs::Missing("the kernel's bpf_skb_output"))
    .about("writes a packet to a file"),
    function("socket_cookie", &[needed("socket", Pointer)], Unsigned(8))
        .needs(Needs::Missing("the kernel's bpf_get_socket_cookie"))
        .about("the number of a socket"),
    function("static_assert", &[needed("condition", Condition), needed("message", Literal)], Nothing)
        .about("refuses the script if the condition does not hold when it is checked"),
    function("str", &[needed("data", Memory), optional("length", Integer)], Gives::Text)
        .about("a string from memory"),
    function("strcap", STRING, Signed(8)).about("the room of a string or array"),
    function("strcontains", NEEDLE, Gives::Bool).about("whether a string contains another"),
    function("strerror", &[needed("error", Integer)], Gives::Text).about("the text of an error's number"),
    function(
        "strftime",
        &[needed("format", Literal), needed("time", Integer)],
        Gives::Opaque(Opaque::Timestamp),
    )
    .about("a formatted time"),
    function("strlen", STRING, Unsigned(8)).about("the length of a string"),
    function(
        "strncmp",
        &[needed("left", Memory), needed("right", Memory), needed("count", Integer)],
        Signed(8),
    )
    .about("compares the beginnings of strings"),
    function("strstr", NEEDLE, Signed(8)).about("where a string contains another, or -1"),
    function("syscall_name", &[needed("number", Integer)], Gives::Text).about("the name of a system call"),
    function("system", FORMAT, Nothing).needs(Needs::Unsafe).about("runs a command"),
    function("time", &[optional("format", Literal)], Nothing).about("prints the time of day"),
    function("uaddr", SYMBOL, Gives::Pointer).within(Providers::USER).about(
        "the address of a symbol of the probed file, in the process: `uint8 *` to `uint64 *`, by its size",
    ),
    function("unwatch", &[needed("address", Address)], Nothing)
        .within(Providers::WATCHES)
        .about("removes a watchpoint"),
    function("uptr", POINTER, Same(0)).about("a pointer into the process's memory"),
    function("usym", &[needed("address", Address)], Gives::Opaque(Opaque::UserSymbol))
        .about("the program's symbol at an address"),
    function("warnf", FORMAT, Nothing).about("prints a warning with the place in the script"),
    function("zero", WHOLE_MAP, Nothing).about("sets all entries of a map to 0"),
];
