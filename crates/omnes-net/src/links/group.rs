//! The sockets of the job's multicast group, and the membership in it.

use super::Links;
use crate::multicast::{Group, HeardFor, Membership};
use crate::socket::UdpSocket;
use omnes_wire::Instant;

/// The job's group, and the indices of its sockets.
pub(super) struct GroupLink {
    pub(super) receiver: usize,
    pub(super) sender: usize,
    /// `None` once the rank has left the group.
    pub(super) membership: Option<Membership>,
}

impl Links {
    /// The socket at which packets to the multicast group arrive.
    pub(crate) fn group_socket(&self) -> Option<&UdpSocket> {
        Some(&self.sockets[self.group.as_ref()?.receiver])
    }

    /// Adds the sockets of the job's group.
    pub(crate) fn add_group(&mut self, group: Group) {
        let Group { receiver, sender, membership } = group;
        let first = self.sockets.len();
        self.sockets.extend([receiver, sender]);
        let membership = Some(membership);
        self.group = Some(GroupLink { receiver: first, sender: first + 1, membership });
    }

    /// Receives the group's packets from now on, because this rank leads its node in a
    /// communicator.
    pub(crate) fn hear_group_for(&mut self, reason: HeardFor) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.hear_for(reason, &self.sockets[group.receiver]);
        }
    }

    /// Ends a reason to receive the group's packets.
    pub(crate) fn forget_in_group(&mut self, reason: HeardFor) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.forget(reason, &self.sockets[group.receiver]);
        }
    }

    /// Renews the membership report if that is due, so that switches do not forget it.
    pub(crate) fn renew_membership(&mut self, now: Instant) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = &mut group.membership {
            membership.renew(now, &self.sockets[group.receiver]);
        }
    }

    /// Leaves the group: no packets arrive by it any more.
    pub(crate) fn leave_group(&mut self) {
        let Some(group) = &mut self.group else { return };
        if let Some(membership) = group.membership.take() {
            // The rank is not a member any more in any case.
            let _ = membership.leave(&self.sockets[group.receiver]);
        }
    }
}
