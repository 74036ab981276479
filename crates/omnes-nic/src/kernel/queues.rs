//! Receive queues of the firmware in the kernel.

use super::{Kernel, bytes, bytes_of, inner_map, mapped};
use crate::error::NicError;
use crate::plan::QueuePlan;
use libbpf_rs::{MapCore, MapFlags};
use omnes_firmware::slot::{QUEUE_PORTS_MAX, Queue, QueueKey, SLOTS_MAX};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What must be undone when a queue is closed.
pub(super) struct OpenedQueue {
    keys: Vec<QueueKey>,
    map: OwnedFd,
}

impl Kernel {
    /// Opens a receive queue; its number, which is no slot's. Packets find it at every interface
    /// that the firmware is attached to, and go to the sockets until its owner says that it looks
    /// at the queue ([`crate::Queue::set_sleeping`]), which may be late.
    ///
    /// # Errors
    /// [`NicError::Plan`] for a plan that makes no sense, [`NicError::Taken`],
    /// [`NicError::QueuesFull`], [`NicError::System`].
    pub fn open_queue(&mut self, plan: &QueuePlan) -> Result<u32, NicError> {
        plan.check()?;
        let keys = keys(plan);
        let taken = |key: &&QueueKey| self.queues.values().any(|queue| queue.keys.contains(key));
        if let Some(key) = keys.iter().find(taken) {
            let (job, port) = (plan.job, u16::from_be(key.port));
            return Err(NicError::Taken { job, communicator: 0, port });
        }
        let limit = QUEUE_PORTS_MAX;
        if keys.len() + self.queues.values().map(|queue| queue.keys.len()).sum::<usize>() > limit {
            return Err(NicError::QueuesFull { limit });
        }
        let map = inner_map(c"nic_queue", size_of::<Queue>(), 1, libbpf_sys::BPF_F_MMAPABLE)?;
        let number = (SLOTS_MAX..).find(|number| !self.queues.contains_key(number));
        let number = number.expect("there are more numbers than memory for queues");
        crate::Queue::map(map.as_fd())?.set_sleeping(true);
        let value = map.as_raw_fd().to_ne_bytes();
        self.queues.insert(number, OpenedQueue { keys: keys.clone(), map });
        let entered = self.enter(&keys, &value);
        if entered.is_err() {
            self.close(number);
        }
        entered.map(|()| number)
    }

    /// Closes those of `numbers` that are queues, at once: packets go to the sockets.
    pub(crate) fn close_queues(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let opened = numbers.into_iter().filter_map(|number| self.queues.remove(&number));
        let keys: Vec<QueueKey> = opened.flat_map(|opened| opened.keys).collect();
        if keys.is_empty() {
            return;
        }
        let map = self.map("nic_queues");
        let all = bytes_of(&keys);
        if map.delete_batch(all, keys.len() as u32, MapFlags::ANY, MapFlags::ANY).is_err() {
            // What is not there needs no removal.
            for key in &keys {
                let _ = map.delete(bytes(key));
            }
        }
    }

    /// Lets packets find a queue. The kernel waits some milliseconds after each change of this map,
    /// for its processors to have seen it, so what belongs together is one change, where it can.
    fn enter(&self, keys: &[QueueKey], value: &[u8]) -> Result<(), NicError> {
        let (map, values) = (self.map("nic_queues"), value.repeat(keys.len()));
        let count = keys.len() as u32;
        let all = bytes_of(keys);
        if map.update_batch(all, &values, count, MapFlags::ANY, MapFlags::ANY).is_ok() {
            return Ok(());
        }
        keys.iter().try_for_each(|key| self.update("nic_queues", bytes(key), value))
    }

    /// The map behind a queue, for [`crate::Queue::map`] here or in another process.
    pub fn queue(&self, number: u32) -> Option<BorrowedFd<'_>> {
        self.queues.get(&number).map(|queue| queue.map.as_fd())
    }
}

/// By which addresses packets find the queue; each once.
pub(super) fn keys(plan: &QueuePlan) -> Vec<QueueKey> {
    let key = |socket: &SocketAddr| QueueKey {
        job: plan.job.to_be(),
        address: mapped(socket.ip()),
        port: socket.port().to_be(),
        reserved: 0,
    };
    let mut keys: Vec<QueueKey> = Vec::new();
    for key in plan.sockets.iter().chain(&plan.group).map(key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
