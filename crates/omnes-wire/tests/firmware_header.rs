//! Checks that `firmware/wire.h` agrees with this crate. `OMNES_BLESS=1` regenerates it.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_wire::{
    COMBINE_SHIFT, ChannelId, CommunicatorId, ENVELOPE_BYTES, Flags, HEADER_BYTES, Header, JobId,
    Kind, MAGIC, Rank, Seq, TAG_BYTES, VERSION,
};
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../firmware/wire.h");

const BEGIN: &str = "\
/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* Made from omnes-wire by its test `firmware_header_is_up_to_date`: do not edit. */
#ifndef OMNES_WIRE_H
#define OMNES_WIRE_H

";
const END: &str = "
#endif
";

/// A header whose fields are zero, except for the constant ones.
fn zeros() -> Header {
    Header::blank(Kind::Step, Rank(0))
}

/// Position of a field, found by setting it: offset and length of the bytes that change.
fn place(set: impl FnOnce(&mut Header)) -> (usize, usize) {
    let before = zeros().emit();
    let mut header = zeros();
    set(&mut header);
    let after = header.emit();
    let changed: Vec<usize> = (0..HEADER_BYTES).filter(|at| before[*at] != after[*at]).collect();
    let (first, last) = (changed[0], changed[changed.len() - 1]);
    assert_eq!(last - first + 1, changed.len(), "a field is in one piece");
    (first, changed.len())
}

/// Name and position of each field.
fn fields() -> Vec<(&'static str, (usize, usize))> {
    let magic = zeros().emit().windows(2).position(|pair| pair == MAGIC.to_be_bytes()).unwrap();
    let kind = place(|it| it.kind = Kind::Data);
    vec![
        ("MAGIC", (magic, 2)),
        // Between the two: no field of the header changes it.
        ("VERSION", (magic + 2, kind.0 - magic - 2)),
        ("KIND", kind),
        ("JOB", place(|it| it.job = JobId(u32::MAX))),
        ("COMMUNICATOR", place(|it| it.communicator = CommunicatorId(u32::MAX))),
        ("CHANNEL", place(|it| it.channel = ChannelId(u8::MAX))),
        ("FLAGS", place(|it| it.flags = Flags(u8::MAX))),
        ("SOURCE", place(|it| it.source = Rank(u16::MAX.into()))),
        ("SEQ", place(|it| it.seq = Seq(u32::MAX))),
        ("EXPECTS", place(|it| it.expects = Seq(u32::MAX))),
        ("EPOCH", place(|it| it.epoch = u16::MAX)),
        ("CREDITS", place(|it| it.credits = u16::MAX)),
        ("ARGUMENT", place(|it| it.argument = u32::MAX)),
        ("TAG", (HEADER_BYTES, TAG_BYTES)),
    ]
}

fn header() -> String {
    let mut text = BEGIN.to_owned();
    let mut define = |name: &str, value: String| {
        writeln!(text, "#define OMNES_{name} {value}").unwrap();
    };
    define("MAGIC", format!("{MAGIC:#x}"));
    define("VERSION", VERSION.to_string());
    define("HEADER_BYTES", HEADER_BYTES.to_string());
    define("TAG_BYTES", TAG_BYTES.to_string());
    define("ENVELOPE_BYTES", ENVELOPE_BYTES.to_string());
    define("RANK_ALL", format!("{:#x}u", Rank::ALL.0));
    define("COMBINE_SHIFT", COMBINE_SHIFT.to_string());
    let kinds = [
        ("CAST", Kind::Cast),
        ("CAST_CODED", Kind::CastCoded),
        ("HELLO", Kind::Hello),
        ("STEP", Kind::Step),
        ("STEP_NACK", Kind::StepNack),
    ];
    text.push('\n');
    for (name, kind) in kinds {
        writeln!(text, "#define OMNES_KIND_{name} {}", kind as u8).unwrap();
    }
    text.push('\n');
    let flags =
        [("WORDS_MASK", Flags::WORDS_MASK), ("FIRST", Flags::FIRST), ("GROUP", Flags::GROUP)];
    for (name, flag) in flags {
        writeln!(text, "#define OMNES_FLAG_{name} {}", flag.0).unwrap();
    }
    text.push('\n');
    for (name, (offset, _)) in fields() {
        writeln!(text, "#define OMNES_OFFSET_{name} {offset}").unwrap();
    }
    text + END
}

#[test]
fn firmware_header_is_up_to_date() {
    if std::env::var_os("OMNES_BLESS").is_some() {
        std::fs::write(PATH, header()).unwrap();
    }
    let there = std::fs::read_to_string(PATH).unwrap();
    assert_eq!(there, header(), "firmware/wire.h: write it anew with OMNES_BLESS=1");
}

/// The firmware reads a step's word from the position of expected number, epoch and credits.
#[test]
fn step_words_are_stored_where_the_firmware_reads_them() {
    let header = zeros().with_word(0x0102_0304_0506_0708);
    let (at, _) = place(|it| it.expects = Seq(u32::MAX));
    assert_eq!(header.emit()[at..at + 8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(header.word(), 0x0102_0304_0506_0708);
}

#[test]
fn fields_fill_the_header_without_gaps() {
    let mut end = 0;
    for (name, (offset, bytes)) in fields() {
        assert_eq!(offset, end, "{name}");
        end = offset + bytes;
    }
    assert_eq!(end, HEADER_BYTES + TAG_BYTES);
    assert_eq!(zeros().emit()[2], VERSION);
}
