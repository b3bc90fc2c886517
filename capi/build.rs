//! What the linker is told of `libunisonic.so`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The name by which programs ask for the library: its number grows when the ABI breaks.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libunisonic.so.0");
        // llguidance has functions for C of its own, which are not ours to promise.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
