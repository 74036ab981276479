//! Receives from any source, each completed by either a rank's own message or another rank's.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Host;
use omnes_net::{Operation, Pattern};
use omnes_wire::{CommunicatorId, Rank};
use ranks::{Member, with_ranks};
use std::ptr::NonNull;

/// Runs `body` as the first of two ranks; the second sends it a number whenever they meet.
fn with_sender(numbers: &[u8], body: impl Fn(&Member<'_>) + Sync) {
    let here = Host::here([127, 0, 0, 1].into());
    with_ranks(
        &[here.clone(), here],
        |_| {},
        |member| {
            if member.engine.rank() == 0 {
                return body(member);
            }
            for number in numbers {
                member.meet.wait();
                member.wait(member.start_send(0, &[*number; 8]));
            }
        },
    );
}

fn start_receive_any(member: &Member<'_>, buffer: &mut [u8; 8]) -> Operation {
    let pattern = Pattern { source: None, communicator: CommunicatorId(0), tag: Some(1) };
    // SAFETY: callers wait for the operation, or release it, while they hold the buffer.
    unsafe { member.engine.receive(0, pattern, NonNull::from(buffer).cast(), 8).unwrap() }
}

fn wait_for_peer(member: &Member<'_>, receive: Operation) -> Rank {
    member.engine.wait(receive, |_| true).unwrap().peer
}

#[test]
fn receive_completed_by_an_own_message_takes_none_of_another_rank() {
    with_sender(&[2], |member| {
        let (mut first, mut second) = ([0; 8], [0; 8]);
        let any = start_receive_any(member, &mut first);
        assert!(member.start_send(0, &[1; 8]).is_none());
        assert_eq!((wait_for_peer(member, any), first), (Rank(0), [1; 8]));
        let other = member.start_receive(1, &mut second);
        member.meet.wait();
        assert_eq!((wait_for_peer(member, other), second), (Rank(1), [2; 8]));
        assert_eq!(first, [1; 8]);
    });
}

#[test]
fn receive_completed_by_another_rank_takes_no_own_message() {
    with_sender(&[1, 2], |member| {
        let (mut first, mut second, mut third) = ([0; 8], [0; 8], [0; 8]);
        let any = start_receive_any(member, &mut first);
        member.meet.wait();
        assert_eq!((wait_for_peer(member, any), first), (Rank(1), [1; 8]));
        let other = member.start_receive(1, &mut second);
        assert!(member.start_send(0, &[3; 8]).is_none());
        member.meet.wait();
        assert_eq!((wait_for_peer(member, other), second), (Rank(1), [2; 8]));
        let own = start_receive_any(member, &mut third);
        assert_eq!((wait_for_peer(member, own), third), (Rank(0), [3; 8]));
        assert_eq!(first, [1; 8]);
    });
}

#[test]
fn released_receive_takes_no_message() {
    with_sender(&[2], |member| {
        let (mut first, mut second, mut third) = ([0; 8], [0; 8], [0; 8]);
        let any = start_receive_any(member, &mut first);
        assert_eq!(member.engine.release(any), None);
        let other = member.start_receive(1, &mut second);
        assert!(member.start_send(0, &[1; 8]).is_none());
        member.meet.wait();
        assert_eq!((wait_for_peer(member, other), second), (Rank(1), [2; 8]));
        let own = start_receive_any(member, &mut third);
        assert_eq!((wait_for_peer(member, own), third), (Rank(0), [1; 8]));
        assert_eq!(first, [0; 8]);
    });
}
