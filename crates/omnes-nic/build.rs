//! Compiles the firmware for the kernel; `kernel` embeds the object.

#[path = "../../firmware/clang.rs"]
mod clang;

const FOLDER: &str = "../../firmware";
/// Everything that the object is made from.
const SOURCES: [&str; 15] = [
    "nic.bpf.c",
    "nic_maps.h",
    "nic_packet.h",
    "nic_barrier.h",
    "nic_queue.h",
    "nic_multisend.h",
    "barrier_step.h",
    "combine.h",
    "sum_f64.h",
    "multisend_step.h",
    "siphash.h",
    "tag.h",
    "slot.h",
    "types.h",
    "wire.h",
];

fn main() {
    for file in SOURCES {
        println!("cargo:rerun-if-changed={FOLDER}/{file}");
    }
    clang::compile(&format!("{FOLDER}/nic.bpf.c"), "nic.bpf.o", "the kernel NIC");
}
