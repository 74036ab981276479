//! Packets of strangers: noise, other versions, other jobs, wrong keys, and replays.

use crate::builder::{JOB, KEY};
use crate::cluster::Cluster;
use crate::network::InFlight;
use omnes_wire::{
    ChannelId, CommunicatorId, Flags, Header, JobId, JobKey, Kind, Rank, Seq, VERSION,
};

/// What a stranger sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Random bytes.
    Noise,
    /// The beginning of a packet of ours.
    Truncated,
    /// A packet of another version of the wire format.
    WrongVersion,
    /// A packet of another job, with that job's key.
    ForeignJob,
    /// A packet of our job under another key.
    WrongKey,
    /// An authentic packet that was sent before, once more. The only one that is taken in.
    Replay,
}

impl Forgery {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Noise,
        Self::Truncated,
        Self::WrongVersion,
        Self::ForeignJob,
        Self::WrongKey,
        Self::Replay,
    ];
}

const KINDS: [Kind; 8] = [
    Kind::Data,
    Kind::Grant,
    Kind::Ack,
    Kind::Nack,
    Kind::Ping,
    Kind::Pong,
    Kind::Failed,
    Kind::Bye,
];

/// Header, tag and `body` of a packet from `header.source` to `to` under a job's key.
pub(crate) fn sealed(key: &JobKey, header: &Header, to: Rank, body: &[u8]) -> Vec<u8> {
    let head = header.emit();
    let tag = key.sender(header.source).tag(&head, to, body);
    let mut packet = head.to_vec();
    packet.extend_from_slice(&tag.0.to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

impl Cluster {
    /// A stranger sends something to a rank; false if there was nothing to replay.
    pub fn forge(&mut self, forgery: Forgery, to: u32) -> bool {
        let to = Rank(to);
        let (from, bytes) = if forgery == Forgery::Replay {
            let history: Vec<_> =
                self.network.history.iter().filter(|packet| packet.to == to).collect();
            let index = self.strangers.below(history.len() as u64) as usize;
            let Some(old) = history.get(index) else { return false };
            (old.from, old.bytes.clone())
        } else {
            (None, self.forged_bytes(forgery, to))
        };
        let head_bytes = bytes.len();
        let now = self.now();
        self.network.inject(now, InFlight { from, to, bytes, head_bytes, is_corrupt: false });
        true
    }

    fn forged_bytes(&mut self, forgery: Forgery, to: Rank) -> Vec<u8> {
        if forgery == Forgery::Noise {
            let mut bytes = vec![0; self.strangers.below(200) as usize];
            self.strangers.fill(&mut bytes);
            return bytes;
        }
        let mut header = self.plausible_header(to);
        let key = match forgery {
            Forgery::WrongKey | Forgery::ForeignJob => JobKey::new([9; 16]),
            _ => KEY,
        };
        if forgery == Forgery::ForeignJob {
            header.job = JobId(JOB.0 ^ 1);
        }
        let mut bytes = sealed(&key, &header, to, &[]);
        match forgery {
            Forgery::Truncated => bytes.truncate(self.strangers.below(40) as usize),
            Forgery::WrongVersion => bytes[2] = VERSION + 1,
            _ => {}
        }
        bytes
    }

    fn plausible_header(&mut self, to: Rank) -> Header {
        let size = self.size();
        let random = &mut self.strangers;
        let source = (to.0 + 1 + random.below(u64::from(size) - 1) as u32) % size;
        Header {
            kind: random.pick(&KINDS),
            job: JOB,
            communicator: CommunicatorId(1),
            channel: ChannelId(random.below(2) as u8),
            flags: Flags(random.below(64) as u8),
            source: Rank(source),
            seq: Seq(random.below(64) as u32),
            expects: Seq(random.below(64) as u32),
            epoch: random.below(4) as u16,
            credits: random.below(64) as u16,
            argument: random.below(64) as u32,
        }
    }
}
