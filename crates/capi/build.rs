//! What the linker has to know about `libperdure.so`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs look for this name, whatever the file was called when they were linked. The number is the major version, until 1.0 it stays 0.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libperdure.so.0");
    // Threads (the read cache), destructors of thread-local values and the handler of `fork` point into the library: dlclose() leaves it where it is.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
