//! The arguments of a hook: words, as C passes integers and pointers, with Rust types at both ends.

/// The most arguments a hook can have.
pub const ARGUMENTS: usize = 6;

/// A value that fits in a word.
///
/// # Safety
/// `from_word(into_word(x))` is `x` again, for as long as a reference in it lives.
pub unsafe trait Argument: Copy {
    /// The value as a word.
    fn into_word(self) -> usize;

    /// The value of a word.
    ///
    /// # Safety
    /// The word came from [`Argument::into_word`] of the same type, whose lifetime has not ended.
    unsafe fn from_word(word: usize) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        // SAFETY: a word has as many bits as the widest of these, and casting both ways keeps them.
        unsafe impl Argument for $integer {
            fn into_word(self) -> usize {
                self as usize
            }

            unsafe fn from_word(word: usize) -> $integer {
                word as $integer
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

// SAFETY: the two values are 0 and 1.
unsafe impl Argument for bool {
    fn into_word(self) -> usize {
        self.into()
    }

    unsafe fn from_word(word: usize) -> bool {
        word != 0
    }
}

// SAFETY: a pointer to a sized type is a word, and its provenance is exposed.
unsafe impl<T> Argument for *const T {
    fn into_word(self) -> usize {
        self.expose_provenance()
    }

    unsafe fn from_word(word: usize) -> *const T {
        std::ptr::with_exposed_provenance(word)
    }
}

// SAFETY: as for `*const T`.
unsafe impl<T> Argument for *mut T {
    fn into_word(self) -> usize {
        self.expose_provenance()
    }

    unsafe fn from_word(word: usize) -> *mut T {
        std::ptr::with_exposed_provenance_mut(word)
    }
}

// SAFETY: a reference to a sized type is a word.
unsafe impl<T> Argument for &T {
    fn into_word(self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    unsafe fn from_word(word: usize) -> Self {
        // SAFETY: the caller has it from a reference of this type whose lifetime has not ended.
        unsafe { &*std::ptr::with_exposed_provenance::<T>(word) }
    }
}

/// All arguments of a hit: a tuple of up to [`ARGUMENTS`].
///
/// # Safety
/// As for [`Argument`].
pub unsafe trait Arguments: Copy {
    /// The number of arguments.
    const COUNT: usize;

    /// The arguments as words, with zeros behind the last.
    fn into_words(self) -> [usize; ARGUMENTS];

    /// The arguments from words.
    ///
    /// # Safety
    /// The words came from [`Arguments::into_words`] of the same type, and no lifetime in it has
    /// ended.
    unsafe fn from_words(words: &[usize; ARGUMENTS]) -> Self;
}

macro_rules! tuples {
    ($($count:literal: $($name:ident $place:tt)*;)*) => {$(
        // SAFETY: each word is one argument's.
        unsafe impl<$($name: Argument),*> Arguments for ($($name,)*) {
            const COUNT: usize = $count;

            #[allow(unused_mut, reason = "none is written where there is no argument")]
            fn into_words(self) -> [usize; ARGUMENTS] {
                let mut words = [0; ARGUMENTS];
                $(words[$place] = self.$place.into_word();)*
                words
            }

            #[allow(unused_variables, clippy::unused_unit, reason = "none is read where there is no argument")]
            unsafe fn from_words(words: &[usize; ARGUMENTS]) -> Self {
                // SAFETY: the caller's promise holds for each.
                ($(unsafe { $name::from_word(words[$place]) },)*)
            }
        }
    )*};
}

tuples! {
    0: ;
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
}

/// The argument types of a hook, from its declaration.
pub trait Signature: 'static {
    /// Their types, while a hit lasts.
    type Arguments<'a>: Arguments;
}

/// A return type of functions that an exit's code can end.
pub trait FromCode {
    /// The value for a code.
    fn from_code(code: isize) -> Self;
}

impl FromCode for () {
    fn from_code(_: isize) {}
}

macro_rules! codes {
    ($($integer:ty)*) => {$(
        impl FromCode for $integer {
            fn from_code(code: isize) -> $integer {
                code as $integer
            }
        }
    )*};
}

codes!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

/// 0 is success; another code is the error.
impl FromCode for Result<(), isize> {
    fn from_code(code: isize) -> Self {
        if code == 0 { Ok(()) } else { Err(code) }
    }
}
