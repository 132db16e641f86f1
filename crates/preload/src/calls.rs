//! The functions that stand before the C library's: each decides whether this is a matter of ours, and calls the one behind if not.

/// Defines functions that programs find before the C library's of the same name.
macro_rules! before {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        // SAFETY: the C library exports the name with these arguments, so programs call it with them.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller keeps to the manual of the function with this name, and that is what those that it is handed to want.
            unsafe { $body }
        }
    )*};
}

mod data;
mod data_at;
mod descriptors;
mod memory;
mod messages;
mod open;
mod others;
mod owner;
mod process;
mod raw;
mod status;
mod stdio;
mod variadic;
