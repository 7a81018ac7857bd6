//! What can be an argument of a probe.

/// A value that a probe passes: an integer, a `bool`, a pointer or a reference.
///
/// Of a string, pass `as_ptr()` and `len()`; of a [`CStr`](core::ffi::CStr), `as_ptr()`.
pub trait Argument: Copy {
    /// Its bytes; negative if it is signed. Notes say so too.
    const SIZE: i32;

    /// The value in a whole register.
    fn word(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(impl Argument for $integer {
            const SIZE: i32 = if <$integer>::MIN == 0 { 1 } else { -1 } * size_of::<$integer>() as i32;

            #[inline(always)]
            fn word(self) -> u64 {
                self as u64
            }
        })*
    };
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

impl Argument for bool {
    const SIZE: i32 = 1;

    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl<T> Argument for *const T {
    const SIZE: i32 = size_of::<usize>() as i32;

    #[inline(always)]
    fn word(self) -> u64 {
        self as usize as u64
    }
}

impl<T> Argument for *mut T {
    const SIZE: i32 = size_of::<usize>() as i32;

    #[inline(always)]
    fn word(self) -> u64 {
        self as usize as u64
    }
}

impl<T> Argument for &T {
    const SIZE: i32 = size_of::<usize>() as i32;

    #[inline(always)]
    fn word(self) -> u64 {
        core::ptr::from_ref(self) as usize as u64
    }
}
