//! A hook declared in Rust.

use std::ffi::CStr;
use std::marker::PhantomData;

use crate::arguments::Signature;
use crate::exit::Builder;
use crate::head::{EXCLUSIVE, GENERIC, HookHeader};
use crate::{Error, registry};

/// A hook declared in Rust ([`declare_hook!`](crate::declare_hook)), with its argument types.
#[repr(transparent)]
pub struct Hook<S> {
    head: HookHeader,
    signature: PhantomData<fn(S)>,
}

impl<S> std::fmt::Debug for Hook<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("name", &self.head.name()).finish_non_exhaustive()
    }
}

impl<S: Signature> Hook<S> {
    #[doc(hidden)]
    pub const fn declare(
        name: &'static CStr,
        parameters: &'static CStr,
        count: u32,
        exclusive: bool,
    ) -> Hook<S> {
        let flags = GENERIC | if exclusive { EXCLUSIVE } else { 0 };
        Hook { head: HookHeader::new(name, parameters, count, flags), signature: PhantomData }
    }

    /// The part shared with C.
    pub fn head(&'static self) -> &'static HookHeader {
        &self.head
    }

    /// Whether an exit is armed.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.head.is_active()
    }

    /// Makes the hook known, so that exits can be registered by its name (GKH_identify of the
    /// paper). Hooks with sites in this program are identified automatically.
    pub fn identify(&'static self) {
        registry::identify(&self.head);
    }

    /// Deregisters all exits and makes the hook unknown (GKH_delete of the paper) until it is
    /// identified again.
    ///
    /// # Errors
    /// [`Error::UnknownHook`].
    pub fn delete(&'static self) -> Result<(), Error> {
        registry::delete(&self.head)
    }

    /// Begins an exit for this hook; the caller registers it.
    pub fn exit<F>(&'static self, exit: F) -> Builder
    where
        F: for<'a> Fn(&crate::Invocation<'_>, S::Arguments<'a>) -> crate::Verdict + Send + Sync + 'static,
    {
        use crate::arguments::Arguments;
        Builder::new(
            &self.head,
            Box::new(move |invocation, words| {
                // SAFETY: only sites of this hook call it, and they pass arguments of its declared
                // types, which live as long as the hit.
                let arguments = unsafe { S::Arguments::from_words(words) };
                exit(invocation, arguments)
            }),
        )
    }
}
