//! Compiles the firmware's native form.

fn main() {
    let folder = "../../firmware";
    for file in [
        "native.c",
        "native.h",
        "types.h",
        "siphash.h",
        "tag.h",
        "barrier_step.h",
        "combine.h",
        "multisend_step.h",
        "slot.h",
        "sum_f64.h",
        "wire.h",
    ] {
        println!("cargo:rerun-if-changed={folder}/{file}");
    }
    cc::Build::new()
        .file(format!("{folder}/native.c"))
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("omnes_firmware");
}
