//! Links and switches between the hosts, by number.

/// What a link ends at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Switch(u32),
    Host(u32),
}

/// See the module header.
pub(super) struct Fabric {
    hosts: u32,
}

impl Fabric {
    pub(super) fn new(hosts: u32) -> Self {
        Self { hosts }
    }

    /// Number of links.
    pub(super) fn links(&self) -> u32 {
        2 * self.hosts
    }

    /// The link that a host sends on.
    pub(super) fn uplink(&self, host: u32) -> u32 {
        host
    }

    /// Where a link ends.
    pub(super) fn end(&self, link: u32) -> Place {
        match link.checked_sub(self.hosts) {
            None => Place::Switch(0),
            Some(host) => Place::Host(host),
        }
    }

    /// The link by which a packet of the flow leaves a switch.
    pub(super) fn next(&self, _switch: u32, to: u32, _flow: u32) -> u32 {
        self.hosts + to
    }

    /// The links by which copies of a packet to all leave a switch.
    pub(super) fn multicast(&self, _switch: u32, came_by: u32, _flow: u32, links: &mut Vec<u32>) {
        links.extend((0..self.hosts).filter(|host| *host != came_by).map(|host| self.hosts + host));
    }
}
