//! The macro that declares probes, and what it makes of one.

/// Declares the probes of a provider, as functions of a module with its name:
///
/// ```
/// usdt::provider! {
///     pub mod cache {
///         fn hit(key: u64);
///         fn miss(key: u64, is_cold: bool);
///     }
/// }
/// cache::miss(7, true);
/// assert!(!cache::miss::enabled(), "nobody traces this");
/// ```
///
/// A call is the probe itself, at this place: it is inlined always. Several calls are several
/// probes of one name. A probe has at most twelve arguments, of types that are [`Argument`]s;
/// others are a mistake that the compiler reports:
///
/// ```compile_fail
/// usdt::provider! { mod wrong { fn text(all: &'static str); } }
/// ```
///
/// [`Argument`]: crate::Argument
#[macro_export]
macro_rules! provider {
    ($(#[$attribute:meta])* $visibility:vis mod $provider:ident {
        $($(#[$about:meta])* fn $probe:ident($($argument:ident: $type:ty),* $(,)?);)*
    }) => {
        $(#[$attribute])*
        #[allow(non_snake_case, clippy::too_many_arguments)]
        $visibility mod $provider {
            #[allow(unused_imports)]
            use super::*;

            $(
                $(#[$about])*
                #[inline(always)]
                pub fn $probe($($argument: $type),*) {
                    $crate::site!($provider, $probe, $($argument: $type),*);
                }

                /// Whether the probe of this name is traced.
                pub mod $probe {
                    #[doc(hidden)]
                    #[cfg_attr(all(target_arch = "x86_64", target_os = "linux"), unsafe(link_section = ".probes"))]
                    pub static SEMAPHORE: $crate::core::sync::atomic::AtomicU16 =
                        $crate::core::sync::atomic::AtomicU16::new(0);

                    /// Whether somebody traces the probe: what is done only for it can be left out
                    /// otherwise.
                    #[inline(always)]
                    pub fn enabled() -> bool {
                        SEMAPHORE.load($crate::core::sync::atomic::Ordering::Relaxed) != 0
                    }
                }
            )*
        }
    };
}

/// The probe itself:
///
/// ```text
/// 990:  90        nop
///
/// .note.stapsdt:  sizes, kind, "stapsdt"
///                 990, _.stapsdt.base, the semaphore
///                 "server" "request__start" "4@%rdi 8@%rsi 8@%rdx"
/// ```
///
/// The size says how much of a register is meant. `.stapsdt.base` is a byte that moves with the
/// code if something moves it later. `.reloc` has a linker that drops what nothing refers to keep
/// that byte and the semaphore.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[doc(hidden)]
#[macro_export]
macro_rules! site {
    ($provider:ident, $probe:ident,) => {
        $crate::site!(@ $provider $probe [""] [])
    };
    ($provider:ident, $probe:ident, $first:ident: $first_type:ty $(, $argument:ident: $type:ty)*) => {
        $crate::site!(
            @ $provider $probe
            ["{}@{}" $(, $crate::place!($argument))*]
            [$first $first_type $(, $argument $type)*]
        )
    };
    (@ $provider:ident $probe:ident [$($place:expr),*] [$($argument:ident $type:ty),*]) => {
        // SAFETY: the code is a no-operation; the sections are those of notes about probes.
        unsafe {
            $crate::core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, _.stapsdt.base, {semaphore}",
                concat!(".asciz \"", stringify!($provider), "\", \"", stringify!($probe), "\""),
                concat!(".asciz \"", $($place),*, "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                ".reloc 990b, R_X86_64_NONE, _.stapsdt.base",
                ".reloc 990b, R_X86_64_NONE, {semaphore}",
                $(
                    const <$type as $crate::Argument>::SIZE,
                    in(reg) <$type as $crate::Argument>::word($argument),
                )*
                semaphore = sym $probe::SEMAPHORE,
                options(att_syntax, readonly, nostack, preserves_flags),
            );
        }
    };
}

/// What a note says of a further argument: its size and its place.
#[doc(hidden)]
#[macro_export]
macro_rules! place {
    ($argument:ident) => {
        " {}@{}"
    };
}

/// The probe on other machines: nothing.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[doc(hidden)]
#[macro_export]
macro_rules! site {
    ($provider:ident, $probe:ident, $($argument:ident: $type:ty),*) => {
        $(let _: fn($type) -> u64 = <$type as $crate::Argument>::word; let _ = $argument;)*
    };
}
