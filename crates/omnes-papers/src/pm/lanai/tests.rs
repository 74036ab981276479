//! Mechanics: order of waiting, and limits.

use super::nic::sram_bytes;
use super::*;
use omnes_sim::engine::Span;

const PAGE: u64 = 4096;

fn design(sending: Sending, receiving: Receiving) -> Design {
    Design { sending, receiving }
}

/// A stream of `count` messages from each of `senders` to node 0, which receives them from time
/// `from` on.
fn to_one(design: Design, bytes: u64, senders: usize, count: u32, from: Time) -> World {
    let mut programs = vec![Program::Sink { count: count * senders as u32, from }];
    let stream = Program::Stream { to: vec![0], bytes, count, copies: Copies::Fetched };
    programs.resize(1 + senders, stream);
    World::new(&Constants::built_in(), design, bytes, programs)
}

/// A stream of `count` messages of one page from node 0 to each of `receivers` others.
fn to_some(constants: &Constants, copies: Copies, receivers: usize, count: u32) -> World {
    let stream = Program::Stream { to: (1..=receivers).collect(), bytes: PAGE, count, copies };
    let mut programs = vec![stream];
    programs.resize(1 + receivers, Program::Sink { count, from: Time::ZERO });
    World::new(constants, Design::PM, PAGE, programs)
}

/// Runs to the end and calls `look` after each event.
fn watch(world: &mut World, mut look: impl FnMut(&World)) {
    for node in 0..world.nodes.len() {
        world.kick_host(node);
    }
    while world.nodes.iter().any(|node| !node.host.is_done()) {
        world.step();
        look(world);
    }
}

// [PM-R7]
#[test]
fn the_wire_follows_the_dma_and_never_overtakes_it() {
    let mut world = to_one(Design::PM, PAGE, 1, 8, Time::ZERO);
    let mut overlaps = 0;
    watch(&mut world, |world| {
        if let Some((ready, leaving, bytes)) = world.nodes[1].output.progress() {
            assert!(leaving <= ready && ready <= bytes);
            overlaps += u32::from(leaving > 0 && ready < bytes);
        }
    });
    assert!(overlaps > 100, "{overlaps}");
}

// [PM-R6, R8]
#[test]
fn packet_leaves_only_once_complete_without_immediate_sending() {
    for sending in [Sending::Plain, Sending::Double] {
        let mut world = to_one(design(sending, Receiving::Double), PAGE, 1, 8, Time::ZERO);
        let mut has_sent = false;
        watch(&mut world, |world| {
            if let Some((ready, leaving, bytes)) = world.nodes[1].output.progress() {
                has_sent |= leaving > 0;
                assert_eq!(ready, bytes);
            }
        });
        assert!(has_sent);
    }
}

#[test]
fn immediate_sending_saves_the_wire_time() {
    // The page's whole time on the wire, except for the remainder after the last burst and one
    // start of an engine.
    let constants = Constants::built_in();
    let first = |sending| {
        let mut world = to_one(design(sending, Receiving::Double), PAGE, 1, 1, Time::ZERO);
        world.run();
        world.received(0)[0]
    };
    let saved = first(Sending::Plain).since(first(Sending::Immediate));
    let wire = constants.link.byte * PAGE;
    let burst = constants.link.byte * constants.bus.burst_bytes;
    assert!(saved >= Span::from_ps(wire.as_ps() - burst.as_ps()), "{saved}");
    assert!(saved <= wire + constants.nic.instruction * 10, "{saved}");
    assert_eq!(first(Sending::Plain), first(Sending::Double));
}

// [PM-R3, R9]
#[test]
fn packets_in_sram_never_exceed_its_buffers() {
    for (receiving, buffers) in [(Receiving::Single, 1), (Receiving::Double, 2)] {
        let design = design(Sending::Immediate, receiving);
        let mut world = to_one(design, 256, 3, 40, Time::ZERO);
        let mut most = 0;
        watch(&mut world, |world| {
            let held = buffers - world.nodes[0].nic.receive_free;
            most = most.max(held);
            assert!(world.nodes[0].nic.arrived_count() as u32 <= held);
        });
        assert_eq!(most, buffers);
    }
}

#[test]
fn buffers_fit_into_128_kilobytes_of_sram() {
    let constants = Constants::built_in();
    assert!(sram_bytes(&constants, 4) <= 128 << 10);
    assert!(sram_bytes(&constants, 16) > 128 << 10);
}

#[test]
#[should_panic(expected = "bytes of SRAM are needed")]
fn nic_with_too_little_sram_is_rejected() {
    let mut constants = Constants::built_in();
    constants.nic.sram_bytes = 64 << 10;
    World::new(&constants, Design::PM, 8, vec![Program::Echo { bytes: 8 }]);
}

#[test]
fn the_bus_carries_each_byte_once_and_is_shared_with_the_host() {
    let constants = Constants::built_in();
    let mut world = to_some(&constants, Copies::Fetched, 1, 20);
    world.run();
    let (bus, host) = (&constants.bus, &constants.host);
    let message = bus.dma_start + bus.dma_down_byte * PAGE;
    let command = bus.write_word * host.descriptor_words;
    assert_eq!(world.nodes[0].bus.busy(), (message + command) * 20);
    // A host that writes more delays the DMA.
    let mut chatty = constants.clone();
    chatty.host.descriptor_words = 200;
    let mut slower = to_some(&chatty, Copies::Fetched, 1, 20);
    slower.run();
    let ends = [&world, &slower].map(|world| world.received(1)[19]);
    let more = chatty.bus.write_word * (200 - host.descriptor_words);
    assert!(ends[1].since(ends[0]) > more * 10, "{} {}", ends[0].as_ps(), ends[1].as_ps());
}

// [PM-R25]
#[test]
fn sram_resident_message_crosses_the_bus_once_for_all_receivers() {
    let constants = Constants::built_in();
    let busy = |copies| {
        let mut world = to_some(&constants, copies, 4, 10);
        world.run();
        assert!((1..=4).all(|node| world.received(node).len() == 10));
        let commands = constants.bus.write_word * constants.host.descriptor_words * 40;
        world.nodes[0].bus.busy().as_ps() - commands.as_ps()
    };
    assert_eq!(busy(Copies::Fetched), 4 * busy(Copies::Resident));
}

// [PM-R13–R16]
#[test]
fn packets_without_a_free_buffer_are_rejected_and_retransmitted() {
    // 32 KB hold seven pages.
    let until = Time::ZERO + Span::from_ns(5_000_000);
    let mut world = to_one(Design::PM, PAGE, 2, 20, until);
    world.run();
    assert_eq!(world.received(0).len(), 40);
    assert!(world.received(0)[0] > until);
    let sent = [1, 2].map(|node| world.counters(node));
    assert!(world.counters(0).rejects_sent > 0);
    assert!(sent.iter().all(|it| it.data_packets == 20 && it.retransmits > 0), "{sent:?}");
}

#[test]
fn nothing_is_retransmitted_while_the_host_keeps_up() {
    let mut world = to_one(Design::PM, 64, 1, 300, Time::ZERO);
    world.run();
    let (sender, receiver) = (world.counters(1), world.counters(0));
    assert_eq!((sender.retransmits, sender.timeouts, receiver.rejects_sent), (0, 0, 0));
}

// [PM-R15]
#[test]
fn run_of_messages_is_acknowledged_once() {
    // Several senders keep the receiver's buffers full, so that answers come last.
    let mut world = to_one(Design::PM, 8, 3, 200, Time::ZERO);
    world.run();
    let answers = world.counters(0).acks_sent;
    assert!(answers > 0 && answers < 400, "{answers}");
}

#[test]
fn repeated_runs_agree_to_the_picosecond() {
    let run = || {
        let mut world = to_one(Design::PM, 300, 2, 30, Time::ZERO);
        world.run();
        world.received(0).to_vec()
    };
    assert_eq!(run(), run());
}

// [PM-R21, R22]
#[test]
fn context_is_restored_unchanged_and_saving_takes_longer() {
    let constants = Constants::built_in();
    let Constants { buffers, bus, .. } = &constants;
    let full = Context::with(&constants, buffers.send_records, buffers.receive_records);
    assert_eq!(full.message_bytes(), 511 * 24 + 2730 * 12);
    let (saved, save_span) = save(&constants, &full);
    let (restored, restore_span) = restore(&constants, &saved);
    assert_eq!(restored, full);
    let words = constants.switching.structure_words + full.message_bytes() / 4;
    let dearer = bus.read_word.as_ps() - bus.write_word.as_ps();
    assert_eq!(save_span.as_ps() - restore_span.as_ps(), words * dearer);
}
