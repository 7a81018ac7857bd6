//! The C and C++ header of a description.
//!
//! What a macro puts into a program is, as with `sys/sdt.h`:
//!
//! ```text
//! 990:  90                            nop                      in the code
//!
//! note: 08 00 00 00                   size of "stapsdt\0"      in the section .note.stapsdt,
//!       .. .. .. ..                   size of what follows     which is not loaded
//!       03 00 00 00                   the kind
//!       "stapsdt\0"
//!       990, _.stapsdt.base, the semaphore                     addresses
//!       "server\0" "request__start\0" "-4@%edi 8@%rsi\0"
//! ```
//!
//! `.stapsdt.base` is a byte that moves with the code if something moves it later. The semaphore is
//! a variable of 16 bits in `.probes`, which tracers count up. Each object file that includes the
//! header defines it, weakly, and the linker keeps one. It is hidden: a library's own is the one
//! that its notes name. `.reloc` has a linker that drops what nothing refers to keep both.
//!
//! A value is first converted to the argument's type, as by a function call. On x86-64 it is then a
//! constant or in a register, where every tracer finds it, also without the program's symbols. i386
//! has too few registers: there it is on the stack.

use std::fmt::{self, Write};

use crate::description::{Description, Probe, Provider};
use crate::types::{Size, Type};

/// What all headers have in common.
const COMMON: &str = r#"#ifndef DPROBES_USDT
#if defined __GNUC__ && defined __ELF__ && defined __x86_64__ && !defined __ILP32__
#define DPROBES_USDT 1
#define DPROBES_USDT_ADDRESSES ".8byte"
#define DPROBES_USDT_NO_RELOCATION "R_X86_64_NONE"
#define DPROBES_USDT_WORD "8"
#define DPROBES_USDT_HELD
#define DPROBES_USDT_IN "nr"
#define DPROBES_USDT_FRACTION_IN "x"
#elif defined __GNUC__ && defined __ELF__ && defined __i386__
#define DPROBES_USDT 1
#define DPROBES_USDT_ADDRESSES ".4byte"
#define DPROBES_USDT_NO_RELOCATION "R_386_NONE"
#define DPROBES_USDT_WORD "4"
#define DPROBES_USDT_HELD volatile
#define DPROBES_USDT_IN "m"
#define DPROBES_USDT_FRACTION_IN "m"
#else /* The macros do nothing on other machines. */
#define DPROBES_USDT 0
#endif
#ifdef __CHAR_UNSIGNED__
#define DPROBES_USDT_CHAR "1"
#else
#define DPROBES_USDT_CHAR "-1"
#endif
#ifdef __cplusplus
#define DPROBES_USDT_BOOL bool
#else
#define DPROBES_USDT_BOOL _Bool
#endif
/* The size of a type that the program defines, negative if it has no sign. Types with fractions are refused. */
#define DPROBES_USDT_SIZE(type)                                                                  \
    (((type)-1 < (type)1 ? 1 : -1) * (int)sizeof(type)                                           \
     * (int)(1 / sizeof(char[__builtin_classify_type((type)0) == 8 ? -1 : 1])))
#define DPROBES_USDT_SITE(provider, probe, semaphore, arguments)                                 \
    "990: nop\n"                                                                                 \
    ".pushsection .note.stapsdt, \"?\", \"note\"\n"                                              \
    ".balign 4\n"                                                                                \
    ".4byte 992f - 991f, 994f - 993f, 3\n"                                                       \
    "991: .asciz \"stapsdt\"\n"                                                                  \
    "992: .balign 4\n"                                                                           \
    "993: " DPROBES_USDT_ADDRESSES " 990b, _.stapsdt.base, " semaphore "\n"                      \
    ".asciz \"" provider "\", \"" probe "\", \"" arguments "\"\n"                                \
    "994: .balign 4\n"                                                                           \
    ".popsection\n"                                                                              \
    ".ifndef _.stapsdt.base\n"                                                                   \
    ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"                  \
    ".weak _.stapsdt.base\n"                                                                     \
    ".hidden _.stapsdt.base\n"                                                                   \
    "_.stapsdt.base: .space 1\n"                                                                 \
    ".size _.stapsdt.base, 1\n"                                                                  \
    ".popsection\n"                                                                              \
    ".endif\n"                                                                                   \
    ".reloc 990b, " DPROBES_USDT_NO_RELOCATION ", _.stapsdt.base\n"                              \
    ".reloc 990b, " DPROBES_USDT_NO_RELOCATION ", " semaphore "\n"
#endif
"#;

/// The header of a description. `source` is what its first line says that it is made of.
pub fn header(description: &Description, source: &str) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write_all(&mut out, description, source);
    out
}

fn write_all(out: &mut String, description: &Description, source: &str) -> fmt::Result {
    let names: Vec<String> = description.providers.iter().map(|it| it.name.to_ascii_uppercase()).collect();
    let guard = format!("DPROBES_USDT_OF_{}", names.join("_"));
    let source: String =
        source.chars().map(|it| if it.is_control() || it == '*' { '?' } else { it }).collect();
    writeln!(out, "/* Static probes: `dprobes header` made this of {source}. */")?;
    writeln!(out, "#ifndef {guard}\n#define {guard}\n\n{COMMON}")?;
    for provider in &description.providers {
        writeln!(out, "/* The provider {}. */", provider.name)?;
        writeln!(out, "#if DPROBES_USDT\n#ifdef __cplusplus\nextern \"C\" {{\n#endif")?;
        for probe in &provider.probes {
            let semaphore = provider.semaphore(probe);
            writeln!(out, "volatile unsigned short {semaphore}")?;
            writeln!(out, "    __attribute__((weak, visibility(\"hidden\"), section(\".probes\"), used));")?;
        }
        writeln!(out, "#ifdef __cplusplus\n}}\n#endif\n#endif\n")?;
        for probe in &provider.probes {
            write_probe(out, provider, probe)?;
        }
    }
    writeln!(out, "#endif")
}

/// The two macros of a probe.
fn write_probe(out: &mut String, provider: &Provider, probe: &Probe) -> fmt::Result {
    let name = provider.macro_name(probe);
    let semaphore = provider.semaphore(probe);
    let numbers = 0..probe.arguments.len();
    let parameters: Vec<String> = numbers.map(|number| format!("arg{number}")).collect();
    let parameters = parameters.join(", ");
    writeln!(out, "/* {probe} */")?;
    writeln!(out, "#if DPROBES_USDT")?;
    writeln!(out, "#define {name}_ENABLED() __builtin_expect({semaphore} != 0, 0)")?;
    writeln!(out, "#define {name}({parameters}) \\\n    do {{ \\")?;
    let mut places = String::new();
    let mut operands = Vec::new();
    for (number, argument) in probe.arguments.iter().enumerate() {
        let kind = c_type(argument);
        // No conversion by itself leads from a function's address to another type.
        let cast = if *argument == Type::Function { format!("({kind})") } else { String::new() };
        writeln!(out, "        {kind} DPROBES_USDT_HELD dprobes_usdt_{number} = {cast}(arg{number}); \\")?;
        let before = if number == 0 { "" } else { " " };
        write!(places, "{before}{}", operand(argument, number))?;
        if let Type::Named(_) = argument {
            operands.push(format!("[s{number}] \"n\" (DPROBES_USDT_SIZE({argument}))"));
        }
        let constraint = match argument {
            Type::Fraction { .. } => "DPROBES_USDT_FRACTION_IN",
            _ => "DPROBES_USDT_IN",
        };
        operands.push(format!("[a{number}] {constraint} (dprobes_usdt_{number})"));
    }
    writeln!(out, "        __asm__ __volatile__(DPROBES_USDT_SITE( \\")?;
    writeln!(
        out,
        "            \"{}\", \"{}\", \"{semaphore}\", \"{places}\") : : {}{}); \\",
        provider.name,
        probe.name,
        operands.join(", "),
        clobber(probe)
    )?;
    writeln!(out, "    }} while (0)")?;
    writeln!(out, "#else\n#define {name}_ENABLED() 0")?;
    let unused: String =
        (0..probe.arguments.len()).map(|number| format!("(void)sizeof(arg{number}); ")).collect();
    writeln!(out, "#define {name}({parameters}) do {{ {unused}}} while (0)\n#endif\n")
}

/// What a tracer reads through a pointer must have been stored.
fn clobber(probe: &Probe) -> &'static str {
    let may_point = |argument: &Type| matches!(argument, Type::Pointer | Type::Named(_));
    if probe.arguments.iter().any(may_point) { " : \"memory\"" } else { "" }
}

/// The type of the variable that a macro holds a value in.
fn c_type(argument: &Type) -> String {
    match argument {
        // Every address of an object becomes it by itself, in C++ too.
        Type::Pointer => "const volatile void *".to_owned(),
        Type::Function => "__UINTPTR_TYPE__".to_owned(),
        Type::Truth => "DPROBES_USDT_BOOL".to_owned(),
        other => other.to_string(),
    }
}

/// What a note says of an argument: its size and its place.
fn operand(argument: &Type, number: usize) -> String {
    // A part of a register has names that not all tracers know: the whole one is named, and the
    // size says how much of it.
    let (size, part) = match argument {
        Type::Number { size, signed, .. } => {
            let sign = if *signed { "-" } else { "" };
            match size {
                Size::Bytes(bytes) => (format!("{sign}{bytes}"), if *bytes < 4 { "k" } else { "" }),
                Size::Char => ("\" DPROBES_USDT_CHAR \"".to_owned(), "k"),
                Size::Word => (format!("{sign}\" DPROBES_USDT_WORD \""), ""),
            }
        }
        Type::Truth => ("1".to_owned(), "k"),
        Type::Fraction { bytes, .. } => (format!("{bytes}f"), ""),
        Type::Pointer | Type::Function => ("\" DPROBES_USDT_WORD \"".to_owned(), ""),
        Type::Named(_) => (format!("%n[s{number}]"), "q"),
    };
    format!("{size}@%{part}[a{number}]")
}
