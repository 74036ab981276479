//! Both sides of each layout agree, and so do the constants that they share.

use crate::{Key, barrier, multisend, slot};
use omnes_wire::{CARRIED_MAX, Words};
use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};

/// A size, an offset or a constant of the C side, with the expression that yields it.
#[repr(C)]
struct Fact {
    name: *const c_char,
    value: u32,
}

unsafe extern "C" {
    /// Null after the last.
    safe fn omnes_native_fact_at(index: u32) -> *const Fact;
}

fn native() -> Vec<(String, usize)> {
    // SAFETY: null, or a constant that is never freed.
    let facts = (0..).map_while(|index| unsafe { omnes_native_fact_at(index).as_ref() });
    let entry = |fact: &Fact| {
        // SAFETY: every fact has a literal as its name.
        let name = unsafe { CStr::from_ptr(fact.name) };
        (name.to_string_lossy().into_owned(), fact.value as usize)
    };
    facts.map(entry).collect()
}

/// Arguments and results of the step functions.
fn of_steps() -> Vec<(&'static str, usize)> {
    vec![
        ("OMNES_GROUP_MAX", crate::GROUP_MAX),
        ("OMNES_KERNEL_GROUP_MAX", crate::KERNEL_GROUP_MAX),
        ("OMNES_STEPS_MAX", crate::STEPS_MAX),
        ("OMNES_COMBINING_MEMBERS_MAX", crate::COMBINING_MEMBERS_MAX),
        ("OMNES_CARRIED_MAX", CARRIED_MAX),
        ("sizeof(struct omnes_key)", size_of::<Key>()),
        ("sizeof(struct omnes_barrier_table)", size_of::<barrier::Table>()),
        (
            "offsetof(struct omnes_barrier_table, step)",
            size_of::<barrier::Table>() - 8 * crate::STEPS_MAX,
        ),
        ("sizeof(struct omnes_barrier)", barrier::STATE_BYTES),
        ("offsetof(struct omnes_barrier, record)", 16),
        (
            "offsetof(struct omnes_barrier, own)",
            barrier::STATE_BYTES - 2 * size_of::<barrier::Contribution>(),
        ),
        ("sizeof(struct omnes_arrived)", size_of::<barrier::Arrived>()),
        ("offsetof(struct omnes_arrived, bit_words)", 2 * size_of::<usize>()),
        ("sizeof(struct omnes_contribution)", size_of::<barrier::Contribution>()),
        ("offsetof(struct omnes_contribution, words)", 2 * size_of::<u32>()),
        ("sizeof(struct omnes_words)", size_of::<Words>()),
        ("offsetof(struct omnes_words, more)", size_of::<[u64; CARRIED_MAX]>()),
        ("OMNES_COMBINE_SUM_F64", barrier::Combine::SumF64 as usize),
        ("OMNES_COMBINE_KNOWN", barrier::COMBINE_KNOWN as usize),
        ("sizeof(struct omnes_barrier_action)", size_of::<barrier::Action>()),
        ("sizeof(struct omnes_multisend_table)", size_of::<multisend::Table>()),
        (
            "offsetof(struct omnes_multisend_table, child)",
            size_of::<multisend::Table>() - 4 * crate::KERNEL_GROUP_MAX,
        ),
        (
            "offsetof(struct omnes_multisend_table, parent)",
            size_of::<multisend::Table>() - 2 * crate::KERNEL_GROUP_MAX,
        ),
    ]
}

/// What user space and the kernel share of a slot.
fn of_slots() -> Vec<(&'static str, usize)> {
    vec![
        ("OMNES_SLOTS_MAX", slot::SLOTS_MAX as usize),
        ("OMNES_SENDERS", slot::SENDERS),
        ("OMNES_PEER_GROUP", slot::PEER_GROUP as usize),
        ("OMNES_STATE_BYTES", slot::STATE_BYTES),
        ("sizeof(struct omnes_port_key)", size_of::<slot::PortKey>()),
        ("OMNES_CLASS_STEPS", slot::Class::Steps as usize),
        ("OMNES_CLASS_MULTISEND", slot::Class::MultiSend as usize),
        ("OMNES_CLASS_V6", slot::CLASS_V6.into()),
        ("sizeof(struct omnes_member_key)", size_of::<slot::MemberKey>()),
        ("sizeof(struct omnes_member)", size_of::<slot::Member>()),
        ("OMNES_SLOT_FORWARDS", slot::SLOT_FORWARDS.into()),
        ("OMNES_SLOT_BY_MAC", slot::SLOT_BY_MAC.into()),
        ("sizeof(struct omnes_slot)", size_of::<slot::Slot>()),
        ("offsetof(struct omnes_slot, address)", offset_of!(slot::Slot, address)),
        ("offsetof(struct omnes_slot, port)", offset_of!(slot::Slot, port)),
        ("offsetof(struct omnes_slot, is_v6)", offset_of!(slot::Slot, is_v6)),
        ("offsetof(struct omnes_slot, key)", offset_of!(slot::Slot, key)),
        ("offsetof(struct omnes_slot, senders)", offset_of!(slot::Slot, senders)),
        ("offsetof(struct omnes_slot, barrier)", offset_of!(slot::Slot, barrier)),
        ("offsetof(struct omnes_slot, multisend)", offset_of!(slot::Slot, multisend)),
        ("sizeof(struct omnes_peer)", size_of::<slot::Peer>()),
        ("OMNES_FRAME_BYTES_V4", slot::FRAME_BYTES_V4),
        ("OMNES_FRAME_BYTES_V6", slot::FRAME_BYTES_V6),
        ("offsetof(struct omnes_peer, frame)", offset_of!(slot::Peer, frame)),
        ("offsetof(struct omnes_peer, rank)", offset_of!(slot::Peer, rank)),
        ("offsetof(struct omnes_peer, learnt)", offset_of!(slot::Peer, learnt)),
        ("sizeof(struct omnes_page)", size_of::<slot::Page>()),
        ("offsetof(struct omnes_page, arrived)", offset_of!(slot::Page, arrived)),
        ("offsetof(struct omnes_page, packets_in)", offset_of!(slot::Page, counters)),
        (
            "offsetof(struct omnes_page, clone_failures)",
            offset_of!(slot::Page, counters) + offset_of!(slot::Counters, clone_failures),
        ),
        ("offsetof(struct omnes_page, results)", offset_of!(slot::Page, results)),
        ("offsetof(struct omnes_page, is_sleeping)", offset_of!(slot::Page, is_sleeping)),
        ("offsetof(struct omnes_page, is_lost)", offset_of!(slot::Page, is_lost)),
        ("offsetof(struct omnes_page, arrived_for_all)", offset_of!(slot::Page, arrived_for_all)),
    ]
}

/// The layout that user space and the kernel share of a receive queue.
fn of_queues() -> Vec<(&'static str, usize)> {
    vec![
        ("OMNES_QUEUE_ENTRIES", slot::QUEUE_ENTRIES as usize),
        ("OMNES_QUEUE_DATA_BYTES", slot::QUEUE_DATA_BYTES),
        ("OMNES_QUEUE_PORTS_MAX", slot::QUEUE_PORTS_MAX),
        ("OMNES_QUEUE_PACKET_BYTES_MAX", slot::QUEUE_PACKET_BYTES_MAX),
        ("sizeof(struct omnes_queue_key)", size_of::<slot::QueueKey>()),
        ("sizeof(struct omnes_queue_entry)", size_of::<slot::QueueEntry>()),
        ("offsetof(struct omnes_queue_entry, data)", offset_of!(slot::QueueEntry, data)),
        ("sizeof(struct omnes_queue)", size_of::<slot::Queue>()),
        ("offsetof(struct omnes_queue, passed)", offset_of!(slot::Queue, passed)),
        ("offsetof(struct omnes_queue, tail)", offset_of!(slot::Queue, tail)),
        ("offsetof(struct omnes_queue, is_sleeping)", offset_of!(slot::Queue, is_sleeping)),
        ("offsetof(struct omnes_queue, seqs)", offset_of!(slot::Queue, seqs)),
        ("offsetof(struct omnes_queue, entries)", offset_of!(slot::Queue, entries)),
    ]
}

#[test]
fn rust_and_c_layouts_agree() {
    let ours = [of_steps(), of_slots(), of_queues()].concat();
    let ours: Vec<_> = ours.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(native(), ours);
}
