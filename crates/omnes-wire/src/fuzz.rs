//! Entry points for the fuzzer; the unit tests replay its corpus.

use crate::{
    CastReport, CodedSet, Envelope, GapMap, HEADER_BYTES, Header, PACKET_OVERHEAD_BYTES, Seq, Words,
};

/// Parses arbitrary bytes; input that parses must emit the same bytes again.
pub fn header(bytes: &[u8]) {
    if let Ok((header, tag)) = Header::parse(bytes) {
        assert_eq!(header.emit()[..], bytes[..HEADER_BYTES]);
        assert_eq!(tag.0.to_be_bytes()[..], bytes[HEADER_BYTES..PACKET_OVERHEAD_BYTES]);
        let body = &bytes[PACKET_OVERHEAD_BYTES..];
        if let Some(envelope) = Envelope::parse(body) {
            assert!(body.starts_with(&envelope.emit()));
        }
        if let Some(report) = CastReport::parse(body) {
            assert_eq!(CastReport::parse(&report.emit()), Some(report));
        }
        if let Some(words) = Words::parse(&header, body) {
            assert_eq!(words.on(header), header);
        }
        let set = CodedSet::of(&header);
        assert_eq!(set.packets().count() as u32, set.count());
        let map = GapMap::parse(body);
        let end = map.end(header.expects);
        assert!(end == header.expects || map.contains(header.expects, Seq(end.0.wrapping_sub(1))));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn corpus_is_replayed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/header");
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::header(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0);
    }
}
