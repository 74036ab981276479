//! Probe for multicast on this network, at the start of a job: that it works is never assumed.
//!
//! All ranks take each step together:
//!
//! 1. All report whether they could join the group, and the ports of their NICs' sockets. If one
//!    could not, its reason is the outcome.
//! 2. The leader of every node announces itself by multicast, repeatedly, until it has heard all
//!    other leaders or a short time has passed. With many nodes it waits for its turn ([`Rhythm`]):
//!    every leader hears every other, so all at the same time would overload a node.
//! 3. All report how many leaders they have heard. If all heard all, multicast is used. Otherwise
//!    packets were lost, or a switch was slow to learn the members: steps 2 and 3 are repeated with
//!    more time ([`LISTEN_MS`]), but fewer times if no leader has heard any other.
//!
//! Guarantees: the same outcome on all ranks. Cost: two exchanges over channels, and one packet
//! from every leader to all others if nothing is lost; without multicast [`SILENT_ROUNDS_MAX`]
//! rounds, which take 140 ms.

use super::BcastAlgorithm;
use crate::communicator::{Agreed, Communicator};
use crate::config::Multicast;
use crate::error::Error;
use omnes_net::MulticastState;
use omnes_proto::broadcast::Policy;
use std::time::{Duration, Instant};

/// Longest time for which a leader listens, by round: the total exceeds the second within which a
/// host repeats its membership report (IGMPv3, RFC 3376, 8.11). A switch that has missed the first
/// report may forward no packets to the host before.
const LISTEN_MS: [u64; 8] = [20, 40, 80, 160, 160, 160, 320, 320];
/// Rounds after which the probe gives up if no leader has heard any other.
const SILENT_ROUNDS_MAX: usize = 3;
/// Shortest time between two announcements of a leader.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(5);
/// Time between the first announcements of two leaders, about as long as it takes to receive one.
const ANNOUNCE_STAGGER: Duration = Duration::from_micros(2);
/// Length of the announcement interval in staggers of all leaders: receiving the announcements of
/// the others thus takes at most a tenth of a leader's time.
const STAGGERS_PER_ROUND: u32 = 10;
/// Interval at which a leader polls.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// When a leader announces itself, measured from the beginning of a listening round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rhythm {
    first: Duration,
    interval: Duration,
}

impl Rhythm {
    /// Rhythm of the leader of node `node` of `nodes`.
    fn of(node: u32, nodes: u32) -> Self {
        let interval = ANNOUNCE_INTERVAL.max(ANNOUNCE_STAGGER * STAGGERS_PER_ROUND * nodes);
        Self { first: ANNOUNCE_STAGGER * node, interval }
    }
}

/// Report of a rank on itself.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Report {
    /// Why the rank cannot multicast; `None` if it can.
    obstacle: Option<String>,
    /// Number of leaders that it has heard; meaningless unless the rank is a leader.
    heard: u32,
    /// Ports of the rank's NIC sockets.
    nic_ports: (u16, u16),
}

/// A report on the wire: kind, number, two ports, length of the reason, reason.
const REPORT_BYTES: usize = 128;
const REASON_BYTES_MAX: usize = REPORT_BYTES - 10;

impl Report {
    fn emit(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        let reason = self.obstacle.as_deref().unwrap_or_default();
        let length = reason.floor_char_boundary(REASON_BYTES_MAX);
        bytes[0] = u8::from(self.obstacle.is_some());
        bytes[1..5].copy_from_slice(&self.heard.to_be_bytes());
        bytes[5..7].copy_from_slice(&self.nic_ports.0.to_be_bytes());
        bytes[7..9].copy_from_slice(&self.nic_ports.1.to_be_bytes());
        bytes[9] = length as u8;
        bytes[10..10 + length].copy_from_slice(&reason.as_bytes()[..length]);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (has_obstacle, rest) = bytes.split_first()?;
        let (heard, rest) = rest.split_first_chunk::<4>()?;
        let (steps, rest) = rest.split_first_chunk::<2>()?;
        let (spread, rest) = rest.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first()?;
        let reason = String::from_utf8_lossy(rest.get(..usize::from(*length))?);
        let obstacle = (*has_obstacle != 0).then(|| reason.into_owned());
        let nic_ports = (u16::from_be_bytes(*steps), u16::from_be_bytes(*spread));
        Some(Self { obstacle, heard: u32::from_be_bytes(*heard), nic_ports })
    }
}

/// Conclusion from all reports.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    Works,
    /// Some leaders are heard and some are not.
    Patchy(String),
    /// No leader is heard.
    Silent(String),
}

/// The first obstacle, with the rank that reports it.
fn obstacle(reports: &[Report]) -> Option<String> {
    let mut said = (0..).zip(reports).filter_map(|(rank, it)| Some((rank, it.obstacle.as_ref()?)));
    said.next().map(|(rank, reason): (u32, _)| format!("multicast is off on rank {rank}: {reason}"))
}

/// Judges how many leaders each leader has heard; `nodes` has each node's leader first.
fn judge(reports: &[Report], nodes: &[Vec<u32>]) -> Verdict {
    let others = nodes.len() as u32 - 1;
    let leaders = nodes.iter().map(|node| node[0]);
    let mut heard = leaders.map(|rank| (rank, reports[rank as usize].heard));
    let Some((rank, count)) = heard.clone().find(|(_, heard)| *heard < others) else {
        return Verdict::Works;
    };
    let reason = match heard.clone().find(|(_, heard)| *heard == 0) {
        Some((deaf, _)) => format!("rank {deaf} hears no multicast of the other ranks"),
        None => format!("rank {rank} hears the multicast of {count} nodes of {others}"),
    };
    if heard.any(|(_, heard)| heard > 0) {
        Verdict::Patchy(reason)
    } else {
        Verdict::Silent(reason)
    }
}

impl Communicator {
    /// Finds out whether multicast works, and if so opens this communicator's first group. Called
    /// once, by all ranks of the job.
    pub(crate) fn probe_multicast(&self) -> Result<(), Error> {
        let job = self.job();
        if self.size() == 1 {
            return Ok(());
        }
        let outcome = match job.nodes.len() {
            1 => Err("all ranks are on one node".to_owned()),
            _ => self.try_multicast()?,
        };
        match (outcome, job.config.multicast) {
            (Ok(()), _) => job.allow_multicast(),
            // A single node has no peer to multicast to, even if its settings require multicast.
            (Err(reason), Multicast::On) if job.nodes.len() > 1 => {
                return Err(Error::NoMulticast { reason });
            }
            (Err(reason), _) => {
                job.engine.disable_multicast(&reason);
                self.use_multisend()?;
            }
        }
        Ok(())
    }

    /// Tries whether multicast works.
    fn try_multicast(&self) -> Agreed<()> {
        let job = self.job();
        let obstacle_here = match job.engine.multicast() {
            MulticastState::On { .. } => None,
            MulticastState::Off { reason } => Some(reason),
        };
        let nic_ports = job.engine.nic_ports();
        let reports = self.reports(&Report { obstacle: obstacle_here, heard: 0, nic_ports })?;
        let ports: Vec<(u16, u16)> = reports.iter().map(|report| report.nic_ports).collect();
        job.engine.set_nic_ports(&ports);
        if let Some(reason) = obstacle(&reports) {
            return Ok(Err(reason));
        }
        // Before any rank can use it.
        self.group(self.usual_policy())?;
        let mut reason = String::new();
        for (round, time_ms) in (1..).zip(LISTEN_MS) {
            let heard = self.listen(Duration::from_millis(time_ms));
            let reports = self.reports(&Report { obstacle: None, heard, nic_ports })?;
            reason = match judge(&reports, &job.nodes) {
                Verdict::Works => return Ok(Ok(())),
                Verdict::Silent(reason) if round >= SILENT_ROUNDS_MAX => return Ok(Err(reason)),
                Verdict::Silent(reason) | Verdict::Patchy(reason) => reason,
            };
        }
        Ok(Err(reason))
    }

    fn reports(&self, own: &Report) -> Result<Vec<Report>, Error> {
        let table = self.exchange(&own.emit())?;
        let reports: Option<Vec<Report>> = table.chunks(REPORT_BYTES).map(Report::parse).collect();
        reports.ok_or(Error::Mismatch { what: "the format of the multicast probe" })
    }

    /// If this rank is its node's leader, announces it and listens for the others, for at most
    /// `time` after all have had their turn. Returns how many were heard so far.
    fn listen(&self, time: Duration) -> u32 {
        let job = self.job();
        if self.nodes().local()[0] != self.rank() {
            return 0;
        }
        let nodes = job.nodes.len() as u32;
        let rhythm = Rhythm::of(self.nodes().node_of(self.rank()).0, nodes);
        let (start, time) = (Instant::now(), time + ANNOUNCE_STAGGER * nodes);
        let mut announced: Option<Duration> = None;
        loop {
            let due = announced.map_or(rhythm.first, |at| at + rhythm.interval);
            // At the next poll, the announcement would be late.
            if start.elapsed() + LOOK_INTERVAL > due {
                job.engine.announce();
                announced = Some(start.elapsed());
            }
            let heard = job.engine.heard() as u32;
            let is_done = announced.is_some() && heard >= nodes - 1;
            if is_done || start.elapsed() >= time {
                return heard;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// The policy of this communicator's first group.
    pub(crate) fn usual_policy(&self) -> Policy {
        match self.job().config.bcast {
            Some(BcastAlgorithm::Multicast(policy)) => policy,
            _ => Policy::usual(self.nodes().count()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn heard(counts: &[u32]) -> Vec<Report> {
        counts
            .iter()
            .map(|heard| Report { obstacle: None, heard: *heard, nic_ports: (0, 0) })
            .collect()
    }

    #[test]
    fn reports_round_trip_and_long_reasons_are_truncated() {
        for obstacle in [None, Some("switched off".to_owned()), Some(String::new())] {
            let report = Report { obstacle, heard: 70_000, nic_ports: (54_321, 7) };
            assert_eq!(Report::parse(&report.emit()), Some(report));
        }
        let report = Report { obstacle: Some("ß".repeat(200)), heard: 0, nic_ports: (0, 0) };
        let cut = Report::parse(&report.emit()).unwrap().obstacle.unwrap();
        assert_eq!(cut, "ß".repeat(REASON_BYTES_MAX / 2));
        assert_eq!(Report::parse(&[0; 5]), None);
        assert_eq!(Report::parse(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 65]), None);
    }

    #[test]
    fn leaders_take_turns_and_repeat_less_often_when_there_are_many() {
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        assert_eq!(Rhythm::of(0, 2), Rhythm { first: us(0), interval: ms(5) });
        assert_eq!(Rhythm::of(249, 250), Rhythm { first: us(498), interval: ms(5) });
        assert_eq!(Rhythm::of(999, 1000), Rhythm { first: us(1998), interval: ms(20) });
    }

    #[test]
    fn only_leaders_must_hear_all_other_nodes() {
        let nodes = [vec![0, 2], vec![1, 4], vec![3]];
        assert_eq!(judge(&heard(&[2, 2, 0, 2, 0]), &nodes), Verdict::Works);
        let patchy = judge(&heard(&[2, 1, 0, 2, 0]), &nodes);
        let reason = "rank 1 hears the multicast of 1 nodes of 2".to_owned();
        assert_eq!(patchy, Verdict::Patchy(reason));
        let patchy = judge(&heard(&[2, 1, 0, 0, 0]), &nodes);
        let reason = "rank 3 hears no multicast of the other ranks".to_owned();
        assert_eq!(patchy, Verdict::Patchy(reason));
        let silent = judge(&heard(&[0; 5]), &nodes);
        let reason = "rank 0 hears no multicast of the other ranks".to_owned();
        assert_eq!(silent, Verdict::Silent(reason));
    }

    #[test]
    fn first_obstacle_is_reported_with_its_rank() {
        let mut reports = heard(&[0, 0, 0]);
        assert_eq!(obstacle(&reports), None);
        reports[2].obstacle = Some("switched off".to_owned());
        reports[1].obstacle = Some("no route".to_owned());
        assert_eq!(obstacle(&reports).unwrap(), "multicast is off on rank 1: no route");
    }
}
