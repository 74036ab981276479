//! Faults: a rule sees a packet in transit and drops, delays, duplicates or corrupts it.
//!
//! A rule is built from an action and any number of guards, all of which must hold:
//! `drop().kind(Kind::Data).seq(3).to(2).times(1)`. It acts while its [`Guard`] lives: a lexical
//! value, so that a test shows where its faults end. Rules apply in the order in which they were
//! made: the first one that drops a packet is the last one to see it; delays and copies add up.
//!
//! A multicast is one packet up to the network and one copy per receiver beyond it. Rules act on
//! each copy separately, unless they are [`Rule::at_uplink`] or [`Rule::at_doorstep`].

use crate::engine::random::Random;
use omnes_wire::{COMBINE_SHIFT, Flags, Header, Instant, Kind, Rank};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// What a rule does to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Drop,
    Delay { least: Duration, most: Duration },
    Duplicate,
    Corrupt,
}

/// Combined effect of all rules on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) is_dropped: bool,
    pub(crate) delay: Duration,
    pub(crate) copies: u32,
    pub(crate) corruptions: u32,
}

/// How a packet is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Unicast,
    Multicast,
    /// To one rank, on the socket that the kernel NIC watches.
    Nic,
}

/// Where a rule acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Between the sender and the network: a multicast is still one packet.
    Uplink,
    /// Between the network and a receiver.
    Downlink,
    /// Between a rank and the NIC of its own node.
    Doorstep,
}

/// A packet as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) place: Place,
    pub(crate) way: Way,
    /// `None` for a stranger.
    pub(crate) from: Option<Rank>,
    /// [`Rank::ALL`] for a multicast at the uplink.
    pub(crate) to: Rank,
    pub(crate) bytes: usize,
    /// `None` for bytes that are not a valid packet: then only guards on ranks and length can hold.
    pub(crate) header: Option<&'a Header>,
}

/// A fault and the packets that it affects.
#[derive(Clone)]
#[must_use]
pub struct Rule {
    action: Action,
    place: Place,
    way: Option<Way>,
    kind: Option<Kind>,
    lane: Option<Flags>,
    seq: Option<u32>,
    channel: Option<u8>,
    root: Option<Rank>,
    step: Option<u32>,
    from: Option<Rank>,
    to: Option<Rank>,
    between: Option<(BTreeSet<Rank>, BTreeSet<Rank>, Ways)>,
    /// Only packets longer than this.
    bytes: usize,
    skipped: u64,
    times: u64,
    ppm: u32,
    after: Instant,
    until: Instant,
}

/// The trace contains rules in this form: guards on multicast, steps and length appear only where
/// they are set, so that traces without them stay the same.
impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = formatter.debug_struct("Rule");
        text.field("action", &self.action);
        if (self.place, self.way, self.root) != (Place::Downlink, None, None) {
            text.field("place", &self.place).field("way", &self.way).field("root", &self.root);
        }
        if self.step.is_some() {
            text.field("step", &self.step);
        }
        if self.bytes > 0 {
            text.field("bytes", &self.bytes);
        }
        text.field("kind", &self.kind)
            .field("lane", &self.lane)
            .field("seq", &self.seq)
            .field("channel", &self.channel)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("between", &self.between)
            .field("skipped", &self.skipped)
            .field("times", &self.times)
            .field("ppm", &self.ppm)
            .field("after", &self.after)
            .field("until", &self.until)
            .finish()
    }
}

/// Directions of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways {
    /// Nothing passes either way.
    Both,
    /// Only packets from the first side to the second are lost.
    One,
}

/// The packet is lost.
pub fn drop() -> Rule {
    Rule::new(Action::Drop)
}

/// The packet arrives later by `delay`; packets sent after it may overtake it.
pub fn delay(delay: Duration) -> Rule {
    Rule::new(Action::Delay { least: delay, most: delay })
}

/// The packet arrives later by a random time of at most `most`, so that packets are reordered.
pub fn reorder(most: Duration) -> Rule {
    Rule::new(Action::Delay { least: Duration::ZERO, most })
}

/// The packet arrives twice.
pub fn duplicate() -> Rule {
    Rule::new(Action::Duplicate)
}

/// One to three bits of the packet flip. Flips in the head bypass the UDP checksum here, so that
/// the tag must catch them; the checksum catches flips in user data, which no tag covers.
pub fn corrupt() -> Rule {
    Rule::new(Action::Corrupt)
}

/// No packet passes from a rank of `first` to a rank of `second`, nor in the other direction if
/// `ways` says so.
pub fn partition(first: &[u32], second: &[u32], ways: Ways) -> Rule {
    let side = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect();
    Rule { between: Some((side(first), side(second), ways)), ..drop() }
}

impl Rule {
    fn new(action: Action) -> Self {
        Self {
            action,
            place: Place::Downlink,
            way: None,
            kind: None,
            lane: None,
            seq: None,
            channel: None,
            root: None,
            step: None,
            from: None,
            to: None,
            between: None,
            bytes: 0,
            skipped: 0,
            times: u64::MAX,
            ppm: 1_000_000,
            after: Instant::ZERO,
            until: Instant::from_ns(u64::MAX),
        }
    }

    /// Only packets sent at this time or later.
    pub fn after(self, after: Instant) -> Self {
        Self { after, ..self }
    }

    /// Only packets sent before this time.
    pub fn until(self, until: Instant) -> Self {
        Self { until, ..self }
    }

    /// Time at which the rule ends by itself, if any.
    pub(crate) fn ends(&self) -> Option<Instant> {
        (self.until != Instant::from_ns(u64::MAX)).then_some(self.until)
    }

    /// Acts where packets leave their sender, so that a multicast is affected for all its receivers
    /// together. Guards on the receiver then hold for no multicast.
    pub fn at_uplink(self) -> Self {
        Self { place: Place::Uplink, ..self }
    }

    /// Acts where a rank hands packets to the NIC of its own node, so that a doorbell is lost, late
    /// or duplicated. Bits do not flip there.
    pub fn at_doorstep(self) -> Self {
        Self { place: Place::Doorstep, ..self }
    }

    /// Only packets sent to all ranks.
    pub fn multicast(self) -> Self {
        Self { way: Some(Way::Multicast), ..self }
    }

    /// Only packets sent to one rank.
    pub fn unicast(self) -> Self {
        Self { way: Some(Way::Unicast), ..self }
    }

    /// Only packets of broadcasts of this root: data and the reports on it.
    pub fn root(self, rank: u32) -> Self {
        Self { root: Some(Rank(rank)), ..self }
    }

    /// Only messages of this step of barriers, and requests for them.
    pub fn step(self, step: u32) -> Self {
        Self { step: Some(step), ..self }
    }

    /// Only packets of this kind.
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Only packets with this number, on any lane or stream, and packets of the barrier with this
    /// number.
    pub fn seq(self, seq: u32) -> Self {
        Self { seq: Some(seq), ..self }
    }

    /// Only packets of the bulk lane.
    pub fn bulk(self) -> Self {
        Self { lane: Some(Flags::BULK), ..self }
    }

    /// Only packets of the ordered lane.
    pub fn ordered(self) -> Self {
        Self { lane: Some(Flags::NONE), ..self }
    }

    /// Only packets of this channel.
    pub fn channel(self, channel: u8) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// Only packets that this rank sends.
    pub fn from(self, rank: u32) -> Self {
        Self { from: Some(Rank(rank)), ..self }
    }

    /// Only packets to this rank.
    pub fn to(self, rank: u32) -> Self {
        Self { to: Some(Rank(rank)), ..self }
    }

    /// Only packets longer than `bytes`.
    pub fn longer_than(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Only the packet with this index, from 0, among the packets that match the other guards.
    pub fn nth(self, index: u64) -> Self {
        Self { skipped: index, times: 1, ..self }
    }

    /// Only the first `times` packets that match the other guards.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Only this share of the packets that match the other guards, in parts per million.
    pub fn ppm(self, ppm: u32) -> Self {
        Self { ppm, ..self }
    }

    fn fits(&self, sight: &Sight) -> bool {
        let Sight { place, way, from, to, bytes, header } = *sight;
        let fits_header = |test: &dyn Fn(&Header) -> bool| header.is_some_and(test);
        self.place == place
            && self.way.is_none_or(|wanted| (wanted == Way::Multicast) == (way == Way::Multicast))
            && self.root.is_none_or(|root| fits_header(&|header| root_of(header) == Some(root)))
            && self.from.is_none_or(|rank| from == Some(rank))
            && self.to.is_none_or(|rank| to == rank)
            && bytes > self.bytes
            && self.between.as_ref().is_none_or(|between| separates(between, from, to))
            && self.kind.is_none_or(|kind| fits_header(&|header| header.kind == kind))
            && self.channel.is_none_or(|id| fits_header(&|header| header.channel.0 == id))
            && self.step.is_none_or(|step| fits_header(&|header| step_of(header) == Some(step)))
            && self.lane.is_none_or(|lane| {
                let marks = Flags::BULK.with(Flags::GRANTS).0;
                fits_header(&|header| Flags(header.flags.0 & marks) == lane)
            })
            && self.seq.is_none_or(|seq| fits_header(&|header| number_of(header) == Some(seq)))
    }
}

/// The number of a numbered packet, from 0, or of the barrier that a step belongs to.
pub(super) fn number_of(header: &Header) -> Option<u32> {
    match header.kind {
        Kind::Data | Kind::Grant | Kind::Cast => Some(header.seq.index()),
        Kind::Step | Kind::StepNack | Kind::StepAsk | Kind::StepTell => Some(header.seq.0),
        _ => None,
    }
}

/// The step of a barrier that a packet is about, if any; a doorbell also says how words are
/// combined.
fn step_of(header: &Header) -> Option<u32> {
    let step = header.argument & ((1 << COMBINE_SHIFT) - 1);
    matches!(header.kind, Kind::Step | Kind::StepNack).then_some(step)
}

/// The root of the broadcast that a packet belongs to, if any.
fn root_of(header: &Header) -> Option<Rank> {
    match header.kind {
        Kind::Cast | Kind::CastCoded => Some(Rank(header.expects.0)),
        Kind::CastAck | Kind::CastNack => Some(Rank(header.argument)),
        _ => None,
    }
}

fn separates(
    (first, second, ways): &(BTreeSet<Rank>, BTreeSet<Rank>, Ways),
    from: Option<Rank>,
    to: Rank,
) -> bool {
    let Some(from) = from else { return false };
    first.contains(&from) && second.contains(&to)
        || *ways == Ways::Both && second.contains(&from) && first.contains(&to)
}

/// Keeps a rule in force; the rule ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "the rule ends when its guard is dropped"]
pub struct Guard {
    is_on: Rc<Cell<bool>>,
    hits: Rc<Cell<u64>>,
}

impl Guard {
    /// Number of packets that the rule has acted on.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Ends the rule.
    pub fn heal(self) {}

    /// Leaves the rule in force permanently.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_on.set(false);
    }
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    random: Random,
    is_on: Rc<Cell<bool>>,
    fitting: u64,
    hits: Rc<Cell<u64>>,
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Rules {
    seed: u64,
    count: u64,
    active: Vec<Active>,
}

impl Rules {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, count: 0, active: Vec::new() }
    }

    pub(crate) fn add(&mut self, rule: Rule) -> Guard {
        let is_on = Rc::new(Cell::new(true));
        let hits = Rc::new(Cell::new(0));
        let random = Random::named(self.seed, "rule", self.count);
        self.count += 1;
        self.active.push(Active {
            rule,
            random,
            is_on: is_on.clone(),
            fitting: 0,
            hits: hits.clone(),
        });
        Guard { is_on, hits }
    }

    /// Combined effect of all rules on a packet.
    pub(crate) fn judge(&mut self, now: Instant, sight: &Sight) -> Verdict {
        self.active.retain(|active| active.is_on.get());
        let mut verdict = Verdict::default();
        let is_time = |rule: &Rule| rule.after <= now && now < rule.until;
        for active in self.active.iter_mut().filter(|active| is_time(&active.rule)) {
            if active.acts(sight) {
                active.hits.set(active.hits.get() + 1);
                active.apply(&mut verdict);
            }
            if verdict.is_dropped {
                break;
            }
        }
        verdict
    }
}

impl Active {
    fn acts(&mut self, sight: &Sight) -> bool {
        let Rule { skipped, times, ppm, .. } = self.rule;
        if !self.rule.fits(sight) || ppm < 1_000_000 && !self.random.chance(ppm) {
            return false;
        }
        let index = self.fitting;
        self.fitting += 1;
        index >= skipped && index - skipped < times
    }

    fn apply(&mut self, verdict: &mut Verdict) {
        match self.rule.action {
            Action::Drop => verdict.is_dropped = true,
            Action::Delay { least, most } => {
                let span = (most - least).as_nanos() as u64;
                verdict.delay += least + Duration::from_nanos(self.random.within(0, span));
            }
            Action::Duplicate => verdict.copies += 1,
            Action::Corrupt => verdict.corruptions += self.random.within(1, 3) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_wire::{JobId, Seq};

    fn header(kind: Kind, seq: u32) -> Header {
        Header { job: JobId(1), seq: Seq::nth(seq), ..Header::blank(kind, Rank(0)) }
    }

    fn sight(from: u32, to: Rank, header: &Header) -> Sight<'_> {
        let (place, way) = (Place::Downlink, Way::Unicast);
        Sight { place, way, from: Some(Rank(from)), to, bytes: 100, header: Some(header) }
    }

    fn is_lost(rules: &mut Rules, from: u32, to: u32, header: &Header) -> bool {
        rules.judge(Instant::ZERO, &sight(from, Rank(to), header)).is_dropped
    }

    #[test]
    fn all_conditions_of_a_rule_must_match() {
        let mut rules = Rules::new(1);
        let _loss = rules.add(drop().kind(Kind::Data).seq(3).to(2).times(1));
        assert!(!is_lost(&mut rules, 0, 1, &header(Kind::Data, 3)));
        assert!(!is_lost(&mut rules, 0, 2, &header(Kind::Data, 4)));
        assert!(!is_lost(&mut rules, 0, 2, &header(Kind::Ack, 3)));
        assert!(is_lost(&mut rules, 0, 2, &header(Kind::Data, 3)));
        assert!(!is_lost(&mut rules, 0, 2, &header(Kind::Data, 3)));
    }

    #[test]
    fn rule_ends_with_its_guard() {
        let mut rules = Rules::new(1);
        let cut = rules.add(partition(&[0, 1], &[2], Ways::One));
        assert!(is_lost(&mut rules, 1, 2, &header(Kind::Ack, 0)));
        assert!(!is_lost(&mut rules, 2, 1, &header(Kind::Ack, 0)));
        assert_eq!(cut.hits(), 1);
        cut.heal();
        assert!(!is_lost(&mut rules, 1, 2, &header(Kind::Ack, 0)));
    }

    #[test]
    fn rules_can_match_uplink_way_and_root_of_a_multicast() {
        let mut rules = Rules::new(1);
        let _loss = rules.add(drop().at_uplink().multicast().root(5));
        let cast = Header { expects: Seq(5), ..header(Kind::Cast, 0) };
        let at_uplink =
            Sight { place: Place::Uplink, way: Way::Multicast, ..sight(0, Rank::ALL, &cast) };
        let mut is_lost = |sight: Sight| rules.judge(Instant::ZERO, &sight).is_dropped;
        assert!(is_lost(at_uplink));
        assert!(!is_lost(Sight { way: Way::Unicast, ..at_uplink }));
        assert!(!is_lost(Sight { place: Place::Downlink, to: Rank(1), ..at_uplink }));
        let answer = Header { argument: 5, ..header(Kind::CastAck, 0) };
        assert!(is_lost(Sight { header: Some(&answer), ..at_uplink }));
        let other = Header { argument: 4, ..answer };
        assert!(!is_lost(Sight { header: Some(&other), ..at_uplink }));
    }

    #[test]
    fn step_rule_matches_doorbells_with_and_without_combined_words() {
        let mut rules = Rules::new(1);
        let _loss = rules.add(drop().at_doorstep().step(2));
        let mut is_lost = |argument: u32| {
            let bell = Header { argument, ..header(Kind::Step, 0) };
            let sight = Sight { place: Place::Doorstep, way: Way::Nic, ..sight(0, Rank(1), &bell) };
            rules.judge(Instant::ZERO, &sight).is_dropped
        };
        let arguments = [2, 2 | 5 << COMBINE_SHIFT, 3 | 5 << COMBINE_SHIFT, 5 << COMBINE_SHIFT];
        assert_eq!(arguments.map(&mut is_lost), [true, true, false, false]);
    }

    #[test]
    fn longer_than_rule_spares_packets_of_exactly_that_length() {
        let mut rules = Rules::new(1);
        let _narrow = rules.add(drop().longer_than(100));
        let header = header(Kind::Data, 0);
        let mut is_lost = |bytes: usize| {
            rules.judge(Instant::ZERO, &Sight { bytes, ..sight(0, Rank(1), &header) }).is_dropped
        };
        assert_eq!([99, 100, 101].map(&mut is_lost), [false, false, true]);
    }

    #[test]
    fn dropped_packet_is_not_counted_by_later_rules() {
        let mut rules = Rules::new(1);
        let first = rules.add(drop().times(1));
        let second = rules.add(drop().times(1));
        let lost: Vec<bool> =
            (0..3).map(|seq| is_lost(&mut rules, 0, 1, &header(Kind::Data, seq))).collect();
        assert_eq!(lost, [true, true, false]);
        assert_eq!([first.hits(), second.hits()], [1, 1]);
    }

    #[test]
    fn nth_rule_hits_only_that_occurrence() {
        let mut rules = Rules::new(1);
        let _loss = rules.add(drop().from(0).nth(2));
        let lost: Vec<bool> =
            (0..4).map(|seq| is_lost(&mut rules, 0, 1, &header(Kind::Data, seq))).collect();
        assert_eq!(lost, [false, false, true, false]);
    }
}
