//! Exact bytes on the wire: other versions and the firmware read them. A change of any of these
//! requires a new [`VERSION`].
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_wire::{
    CastReport, ChannelId, CodedSet, CommunicatorId, Envelope, Flags, GapMap, Header, JobId,
    JobKey, Kind, Rank, Seq, VERSION, Words, carries_data, has_control_body,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A header in which all bytes differ, except for those of magic, version and kind.
fn header() -> Header {
    Header {
        kind: Kind::Data,
        job: JobId(0x1011_1213),
        communicator: CommunicatorId(0x2021_2223),
        channel: ChannelId(0x30),
        flags: Flags(0x40),
        source: Rank(0x5051),
        seq: Seq(0x6061_6263),
        expects: Seq(0x7071_7273),
        epoch: 0x8081,
        credits: 0x9091,
        argument: 0xa0a1_a2a3,
    }
}

#[test]
fn header_and_tags_match_the_golden_bytes() {
    assert_eq!(VERSION, 2);
    let header = header().emit();
    let fields = "10111213 20212223 30 40 5051 60616263 70717273 8081 9091 a0a1a2a3";
    assert_eq!(hex(&header), format!("4f6d0201{}", fields.replace(' ', "")));
    let key = JobKey::from_hex("000102030405060708090a0b0c0d0e0f").unwrap().sender(Rank(3));
    assert_eq!(hex(&key.to_bytes()), "92ab1e434074e7128ef44ad86d8bb6d5");
    assert_eq!(format!("{:016x}", key.tag(&header, Rank(7), b"body").0), "f60a807fed7f74dc");
    assert_eq!(format!("{:016x}", key.tag(&header, Rank::ALL, &[]).0), "6530e579335d4e0b");
}

#[test]
fn each_kind_has_its_number_and_body_length() {
    use Kind::*;
    let kinds = [
        (1, Data, 0, true),
        (2, Grant, 0, false),
        (3, Ack, 0, false),
        (4, Nack, 128, false),
        (5, Ping, 0, false),
        (6, Pong, 0, false),
        (7, Failed, 0, false),
        (8, Bye, 0, false),
        (9, Cast, 0, true),
        (10, CastAck, 0, false),
        (11, CastNack, 128, false),
        (12, Hello, 0, false),
        (13, Step, 0, false),
        (14, StepNack, 0, false),
        (15, StepAsk, 0, false),
        (16, StepTell, 0, false),
        (17, CastCoded, 0, true),
    ];
    for (number, kind, body_bytes, has_data) in kinds {
        let header = Header::blank(kind, Rank(0));
        assert_eq!((header.emit()[3], header.control_body_bytes()), (number, body_bytes));
        assert_eq!(has_control_body(&header.emit()), body_bytes > 0, "{kind:?}");
        assert_eq!(carries_data(&header.emit()), has_data, "{kind:?}");
    }
    let with = |kind, flags| {
        let header = Header { flags, ..Header::blank(kind, Rank(0)) };
        assert_eq!(has_control_body(&header.emit()), header.control_body_bytes() > 0);
        header.control_body_bytes()
    };
    assert_eq!(with(Data, Flags::FIRST), 16);
    assert_eq!(with(Data, Flags::FIRST.with(Flags::CARRIES_REPORT)), 32);
    assert_eq!(with(Cast, Flags::FIRST.with(Flags::GROUP)), 16);
    assert_eq!((with(Step, Flags(2)), with(StepTell, Flags(3)), with(Ping, Flags(3))), (16, 24, 0));
}

#[test]
fn control_bodies_match_the_golden_bytes() {
    let envelope = Envelope { tag: 0x0102_0304, token: 0x0506_0708, bytes: 0x1112_1314_1516_1718 };
    assert_eq!(hex(&envelope.emit()), "01020304050607081112131415161718");
    let report = CastReport {
        communicator: CommunicatorId(0x2122_2324),
        group: 0x33,
        root: Rank(0x2526_2728),
        expects: Seq(0x292a_2b2c),
        credits: 0x2d2e,
    };
    assert_eq!(hex(&report.emit()), "2122232425262728292a2b2c2d2e3300");
    let mut map = GapMap::default();
    for after in [1, 3, 10] {
        map.insert(Seq(5), Seq(5 + after));
    }
    assert_eq!(hex(map.as_bytes()), "0502");
}

#[test]
fn step_words_match_the_golden_bytes() {
    let words = Words::new(&[0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 3]);
    let header = words.on(Header::blank(Kind::Step, Rank(0)));
    assert_eq!((header.flags, header.word()), (Flags(2), 0x0102_0304_0506_0708));
    let behind = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0, 0, 0, 0, 0, 0, 0, 3];
    assert_eq!(Words::parse(&header, &behind), Some(words));
    assert_eq!(Words::parse(&header, &behind[..15]), None);
    assert_eq!(
        (words.behind(), Words::new(&[]).as_slice()),
        (&[0x1112_1314_1516_1718, 3][..], &[0][..])
    );
}

#[test]
fn coded_set_matches_the_golden_header_fields() {
    let set = CodedSet::new(Seq(7), 1 | 1 << 3 | 1 << 40);
    let header = set.name_in(Header::blank(Kind::CastCoded, Rank(0)));
    assert_eq!((header.seq, header.argument, header.credits), (Seq(7), 1 << 2, 1 << 7));
    assert_eq!(set.packets().collect::<Vec<_>>(), [Seq(7), Seq(10), Seq(47)]);
}
