//! Compiles the lab's link-fault program; `lab::firmware` embeds the object.

#[path = "../../firmware/clang.rs"]
mod clang;

const SOURCE: &str = "../../firmware/link_faults.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    clang::compile(SOURCE, "link_faults.bpf.o", "link faults of `omnes lab`");
}
