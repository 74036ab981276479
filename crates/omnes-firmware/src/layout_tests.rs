//! Both sides of each layout agree.

use crate::{Key, barrier, slot, spread};
use std::mem::{offset_of, size_of};

unsafe extern "C" {
    static omnes_native_layout: [u32; 45];
}

#[test]
fn both_sides_of_each_layout_agree() {
    // SAFETY: a constant array of that length.
    let native = unsafe { omnes_native_layout };
    let ours = [
        size_of::<Key>(),
        size_of::<barrier::Table>(),
        size_of::<barrier::Table>() - 8 * crate::STEPS_MAX,
        barrier::STATE_BYTES,
        16,
        barrier::STATE_BYTES - 2 * size_of::<barrier::Contribution>(),
        size_of::<barrier::Arrived>(),
        2 * size_of::<usize>(),
        size_of::<barrier::Contribution>(),
        2 * size_of::<u32>(),
        barrier::Combine::SumF64 as usize,
        barrier::COMBINE_KNOWN as usize,
        size_of::<barrier::Action>(),
        size_of::<spread::Table>(),
        size_of::<spread::Table>() - 2 * crate::KERNEL_GROUP_MAX,
        size_of::<slot::PortKey>(),
        size_of::<slot::Member>(),
        size_of::<slot::Slot>(),
        offset_of!(slot::Slot, address),
        offset_of!(slot::Slot, port),
        offset_of!(slot::Slot, key),
        offset_of!(slot::Slot, barrier),
        offset_of!(slot::Slot, spread),
        size_of::<slot::Peer>(),
        offset_of!(slot::Peer, frame),
        offset_of!(slot::Peer, rank),
        offset_of!(slot::Peer, learnt),
        size_of::<slot::Page>(),
        offset_of!(slot::Page, arrived),
        offset_of!(slot::Page, counters),
        offset_of!(slot::Page, counters) + offset_of!(slot::Counters, clone_failures),
        offset_of!(slot::Page, result),
        offset_of!(slot::Page, is_sleeping),
        offset_of!(slot::Page, is_lost),
        slot::QUEUE_PORTS_MAX,
        size_of::<slot::QueueKey>(),
        size_of::<slot::QueueEntry>(),
        offset_of!(slot::QueueEntry, data),
        size_of::<slot::Queue>(),
        offset_of!(slot::Queue, passed),
        offset_of!(slot::Queue, tail),
        offset_of!(slot::Queue, is_sleeping),
        offset_of!(slot::Queue, turns),
        offset_of!(slot::Queue, entries),
        0,
    ];
    assert_eq!(native.map(|number| number as usize), ours);
}
