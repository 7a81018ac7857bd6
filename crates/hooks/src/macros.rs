//! Macros that declare hooks and sites.

/// Declares a hook: its name and its parameters.
///
/// ```
/// hooks::declare_hook! {
///     /// A request has been read.
///     pub REQUEST<'a>(length: usize, path: &'a String)
/// }
/// fn answer(path: &String) {
///     hooks::hook!(REQUEST, path.len(), path);
/// }
/// # answer(&String::new());
/// ```
///
/// With `exclusive` before the visibility only one exit may be registered.
#[macro_export]
macro_rules! declare_hook {
    ($(#[$attribute:meta])* exclusive $visibility:vis $name:ident $(<$life:lifetime>)? ($($parameter:ident: $type:ty),* $(,)?)) => {
        $crate::declare_hook!(@ true, [$(#[$attribute])*] [$visibility] $name [$($life)?] ($($parameter: $type),*));
    };
    ($(#[$attribute:meta])* $visibility:vis $name:ident <$life:lifetime> ($($parameter:ident: $type:ty),* $(,)?)) => {
        $crate::declare_hook!(@ false, [$(#[$attribute])*] [$visibility] $name [$life] ($($parameter: $type),*));
    };
    ($(#[$attribute:meta])* $visibility:vis $name:ident ($($parameter:ident: $type:ty),* $(,)?)) => {
        $crate::declare_hook!(@ false, [$(#[$attribute])*] [$visibility] $name [] ($($parameter: $type),*));
    };
    (@ $exclusive:literal, $attributes:tt $visibility:tt $name:ident [] $parameters:tt) => {
        $crate::declare_hook!(@ $exclusive, $attributes $visibility $name ['hit] $parameters);
    };
    (@ $exclusive:literal, [$(#[$attribute:meta])*] [$visibility:vis] $name:ident [$life:lifetime] ($($parameter:ident: $type:ty),*)) => {
        #[allow(non_camel_case_types, missing_docs, missing_debug_implementations, clippy::upper_case_acronyms)]
        #[doc(hidden)]
        $visibility enum $name {}

        impl $crate::Signature for $name {
            type Arguments<$life> = ($($type,)*);
        }

        $(#[$attribute])*
        $visibility static $name: $crate::Hook<$name> = $crate::Hook::declare(
            $crate::c_text!(stringify!($name)),
            $crate::c_text!(concat!("" $(, stringify!($parameter), ": ", stringify!($type), ", ")*)),
            <<$name as $crate::Signature>::Arguments<'static> as $crate::Arguments>::COUNT as u32,
            $exclusive,
        );
    };
}

/// A C string from a literal.
#[doc(hidden)]
#[macro_export]
macro_rules! c_text {
    ($text:expr) => {
        match ::core::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        }
    };
}

/// A site of a hook: `hook!(NAME, argument, ...)`. While no exit is armed it is one no-operation,
/// and the arguments are not evaluated.
#[macro_export]
macro_rules! hook {
    ($hook:path $(, $argument:expr)* $(,)?) => {
        $crate::site!($hook, {
            // A return code of an exit is ignored here.
            let _ = $crate::hit(&$hook, $crate::Kind::Plain, ($($argument,)*));
        })
    };
}

/// A site of a hook whose exits can make the function return: if one returns
/// [`Verdict::Return`](crate::Verdict::Return), the function returns its code converted by
/// [`FromCode`](crate::FromCode) (HOOK_RET; HOOK_RET_NORC in a function that returns nothing).
#[macro_export]
macro_rules! hook_ret {
    ($hook:path $(, $argument:expr)* $(,)?) => {
        $crate::site!($hook, {
            if let ::core::option::Option::Some(code) = $crate::hit(&$hook, $crate::Kind::Code, ($($argument,)*)) {
                return $crate::FromCode::from_code(code);
            }
        })
    };
}

/// The site itself:
///
/// ```text
///         (up to 4 bytes of no-operation, so that the next 5 are in one aligned word of 8)
/// site:   0f 1f 44 00 00     nop       dormant
///         e9 xx xx xx xx     jmp armed while an exit is armed
/// ```
///
/// and in the section `dprobes_hook_sites`, for each site, the words `site`, `armed`, `hook`.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]
#[doc(hidden)]
#[macro_export]
macro_rules! site {
    ($hook:path, $armed:block) => {{
        // SAFETY: a no-operation, or a jump to the block; the section is the sites' own.
        #[allow(unused_unsafe)]
        unsafe {
            ::core::arch::asm!(
                ".p2align 3,,4",
                "2: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                ".pushsection dprobes_hook_sites,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad 2b, {armed}, {hook}",
                ".popsection",
                // Linkers that drop what nothing refers to keep the entry with the code it is for.
                ".reloc 2b, R_X86_64_NONE, 3b",
                armed = label { $armed },
                hook = sym $hook,
                options(nomem, nostack, preserves_flags),
            );
        }
    }};
}

/// The site itself: loads and tests a byte; does not jump while the hook is dormant. The hook
/// becomes known when an exit is registered.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites"))))]
#[doc(hidden)]
#[macro_export]
macro_rules! site {
    ($hook:path, $armed:block) => {
        if $hook.is_active() {
            $crate::cold();
            $armed
        }
    };
}
