//! Stream format: round trips, and bytes that are not a valid stream.

#![allow(clippy::unwrap_used)]
use super::frame::*;

const META: Meta = Meta { mode: 0o640, mtime_s: -5, mtime_ns: 999_999_999 };

fn every_kind() -> [Frame<'static>; 7] {
    [
        Frame::Enter { name: b"" },
        Frame::File { meta: META, size: 1 << 40, name: b"name with \xff and blank" },
        Frame::Data { offset: 1 << 39, bytes: b"data" },
        Frame::End,
        Frame::Link { meta: META, name: b"link", target: b"../../elsewhere" },
        Frame::Leave { meta: META },
        Frame::Finish(Totals { files: 1, bytes: 4 }),
    ]
}

fn chunk_of(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(4096);
    chunk.resize(CHUNK_HEADER_BYTES, 0);
    for frame in frames {
        frame.try_emit(&mut chunk).unwrap();
    }
    chunk
}

#[test]
fn frames_round_trip() {
    let chunk = chunk_of(&every_kind());
    let parsed: Vec<_> = Frames::of(&chunk).map(Result::unwrap).collect();
    assert_eq!(parsed, every_kind());
}

#[test]
fn truncated_frame_is_an_error_and_ends_the_chunk() {
    for frame in every_kind() {
        let chunk = chunk_of(&[frame]);
        for bytes in CHUNK_HEADER_BYTES + 1..chunk.len() {
            let parsed: Vec<_> = Frames::of(&chunk[..bytes]).collect();
            assert_eq!(parsed, [Err(FrameError::Truncated)], "{frame:?} cut at {bytes}");
        }
    }
}

#[test]
fn chunk_accepts_frames_only_up_to_its_capacity() {
    for frame in every_kind() {
        let bytes = chunk_of(&[frame]).len();
        let mut chunk = Vec::with_capacity(64 + bytes);
        chunk.resize(65 + CHUNK_HEADER_BYTES, 7);
        assert_eq!(frame.try_emit(&mut chunk), Err(NoRoom), "{frame:?}");
        assert_eq!(chunk.len(), 65 + CHUNK_HEADER_BYTES);
        chunk.truncate(64 + CHUNK_HEADER_BYTES);
        assert_eq!(frame.try_emit(&mut chunk), Ok(()), "{frame:?}");
        assert_eq!((chunk.len(), chunk.capacity()), (64 + bytes, 64 + bytes));
    }
}

#[test]
fn chunk_headers_round_trip_and_invalid_ones_are_rejected() {
    let mut chunk = [0; CHUNK_HEADER_BYTES];
    for later in [Later::Chunk(100), Later::End, Later::Abandoned] {
        ChunkHeader { later }.emit(&mut chunk);
        assert_eq!(ChunkHeader::parse(&chunk, 100), Ok(ChunkHeader { later }));
    }
    ChunkHeader { later: Later::Chunk(101) }.emit(&mut chunk);
    let too_long = FrameError::ChunkHeader { state: 0, bytes: 101 };
    assert_eq!(ChunkHeader::parse(&chunk, 100), Err(too_long));
    ChunkHeader { later: Later::Chunk(7) }.emit(&mut chunk);
    assert!(ChunkHeader::parse(&chunk, 100).is_err());
    assert!(ChunkHeader::parse(&[0, 0, 0, 9, 0, 0, 0, 0], 100).is_err());
    assert_eq!(ChunkHeader::parse(&chunk[..7], 100), Err(FrameError::Truncated));
}

#[test]
fn names_that_leave_the_directory_are_rejected() {
    for name in [&b".."[..], b".", b"a/b", b"/etc", b"a\0b"] {
        let chunk = chunk_of(&[Frame::Enter { name }]);
        let parsed = Frames::of(&chunk).next().unwrap();
        assert!(matches!(parsed, Err(FrameError::Name(_))), "{name:?}");
    }
}

#[test]
fn out_of_range_values_are_rejected() {
    let first = |frame| Frames::of(&chunk_of(&[frame])).next().unwrap().map(|_| ()).unwrap_err();
    let meta = Meta { mtime_ns: 1_000_000_000, ..META };
    assert_eq!(first(Frame::Leave { meta }), FrameError::Nanoseconds(1_000_000_000));
    let offset = i64::MAX.cast_unsigned();
    assert_eq!(first(Frame::Data { offset, bytes: b"x" }), FrameError::Offset(offset));
    assert_eq!(first(Frame::Data { offset: u64::MAX, bytes: b"x" }), FrameError::Offset(u64::MAX));
    let unknown = [&[0; CHUNK_HEADER_BYTES][..], &[8, 1, 2]].concat();
    assert_eq!(Frames::of(&unknown).collect::<Vec<_>>(), [Err(FrameError::Kind(8))]);
}

#[test]
fn corrupted_chunks_never_panic_the_parser() {
    // xorshift: a fixed sequence, so that failures are reproducible.
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let whole = chunk_of(&every_kind());
    for _ in 0..20_000 {
        let mut chunk = whole.clone();
        for _ in 0..1 + next() % 4 {
            let at = usize::try_from(next()).unwrap() % chunk.len();
            chunk[at] = next().to_le_bytes()[0];
        }
        chunk.truncate(usize::try_from(next()).unwrap() % (whole.len() + 1));
        assert!(Frames::of(&chunk).count() <= whole.len());
        let _ = ChunkHeader::parse(&chunk, 1 << 20);
    }
}
