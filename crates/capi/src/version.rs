//! Which version this is.

use std::ffi::c_char;

/// Major version of this header. While it is 0, a new minor version may change what programs were
/// compiled against.
pub const PERDURE_VERSION_MAJOR: u32 = 0;
/// Minor version of this header.
pub const PERDURE_VERSION_MINOR: u32 = 1;
/// Patch level of this header.
pub const PERDURE_VERSION_PATCH: u32 = 0;
/// Version of this header as one number: major * 1000000 + minor * 1000 + patch.
pub const PERDURE_VERSION: u32 = 1000;

const _: () = assert!(
    PERDURE_VERSION
        == PERDURE_VERSION_MAJOR * 1_000_000 + PERDURE_VERSION_MINOR * 1000 + PERDURE_VERSION_PATCH
);

/// Version of the library that the program runs with, as PERDURE_VERSION. A program that compares
/// the two learns whether it was compiled for another one.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_version() -> u32 {
    PERDURE_VERSION
}

/// Version of the library as text, such as "0.1.0". It stays valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn perdure_version_text() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_package() {
        let numbers = [
            PERDURE_VERSION_MAJOR,
            PERDURE_VERSION_MINOR,
            PERDURE_VERSION_PATCH,
        ];
        let text = numbers.map(|number| number.to_string()).join(".");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
    }
}
