//! Receive queues of the firmware in the kernel.

use super::{Kernel, Opened, bytes, bytes_of, inner_map, lock, mapped};
use crate::error::NicError;
use crate::plan::QueuePlan;
use libbpf_rs::{MapCore, MapFlags};
use omnes_firmware::slot::{QUEUE_PORTS_MAX, Queue, QueueKey, SLOTS_MAX};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// What must be undone to close a queue.
pub(super) struct OpenedQueue {
    keys: Vec<QueueKey>,
    map: Arc<OwnedFd>,
}

impl Kernel {
    /// Opens a receive queue; returns its number, which is never a slot's. Packets find the queue
    /// at every interface that the firmware is attached to, and go to the sockets until its owner
    /// reports that it polls the queue ([`crate::Queue::set_sleeping`]), which may be late.
    ///
    /// # Errors
    /// [`NicError::Plan`] for an invalid plan, [`NicError::Taken`], [`NicError::QueuesFull`],
    /// [`NicError::System`].
    pub fn open_queue(&self, plan: &QueuePlan) -> Result<u32, NicError> {
        plan.check()?;
        let keys = keys(plan);
        let map = inner_map(c"nic_queue", size_of::<Queue>(), 1, libbpf_sys::BPF_F_MMAPABLE)?;
        crate::Queue::map(map.as_fd())?.set_sleeping(true);
        let value = map.as_raw_fd().to_ne_bytes();
        let queue = OpenedQueue { keys: keys.clone(), map: Arc::new(map) };
        let number = reserve(&mut lock(&self.opened), plan, queue)?;
        let entered = self.enter(&keys, &value);
        if entered.is_err() {
            self.close(number);
        }
        entered.map(|()| number)
    }

    /// Closes those of `numbers` that are queues, in one change: packets go to the sockets. Each
    /// queue must be closed by one thread only.
    pub(crate) fn close_queues(&self, numbers: impl IntoIterator<Item = u32> + Clone) {
        let opened = lock(&self.opened);
        let queues = numbers.clone().into_iter().filter_map(|number| opened.queues.get(&number));
        let keys: Vec<QueueKey> = queues.flat_map(|queue| queue.keys.iter().copied()).collect();
        drop(opened);
        if keys.is_empty() {
            return;
        }
        let map = self.map("nic_queues");
        let all = bytes_of(&keys);
        if map.delete_batch(all, keys.len() as u32, MapFlags::ANY, MapFlags::ANY).is_err() {
            // A missing key needs no removal.
            for key in &keys {
                let _ = map.delete(bytes(key));
            }
        }
        // Up to here no other queue could have the keys.
        let mut opened = lock(&self.opened);
        for number in numbers {
            opened.queues.remove(&number);
        }
    }

    /// Lets packets find a queue. The kernel waits some milliseconds after each change of this map
    /// until its processors have seen it, so keys that belong together are one change if the kernel
    /// allows.
    fn enter(&self, keys: &[QueueKey], value: &[u8]) -> Result<(), NicError> {
        let (map, values) = (self.map("nic_queues"), value.repeat(keys.len()));
        let count = keys.len() as u32;
        let all = bytes_of(keys);
        if map.update_batch(all, &values, count, MapFlags::ANY, MapFlags::ANY).is_ok() {
            return Ok(());
        }
        keys.iter().try_for_each(|key| self.update("nic_queues", bytes(key), value))
    }

    /// The map that holds a queue, for [`crate::Queue::map`] here or in another process.
    pub fn queue(&self, number: u32) -> Option<Arc<OwnedFd>> {
        lock(&self.opened).queues.get(&number).map(|queue| Arc::clone(&queue.map))
    }
}

/// Reserves a number for a queue that is being opened.
fn reserve(opened: &mut Opened, plan: &QueuePlan, queue: OpenedQueue) -> Result<u32, NicError> {
    let queues = &mut opened.queues;
    let taken = |key: &&QueueKey| queues.values().any(|other| other.keys.contains(key));
    if let Some(key) = queue.keys.iter().find(taken) {
        let (job, port) = (plan.job, u16::from_be(key.port));
        return Err(NicError::Taken { job, communicator: 0, port });
    }
    let limit = QUEUE_PORTS_MAX;
    let others = queues.values().map(|queue| queue.keys.len()).sum::<usize>();
    if queue.keys.len() + others > limit {
        return Err(NicError::QueuesFull { limit });
    }
    let number = (SLOTS_MAX..).find(|number| !queues.contains_key(number));
    let number = number.expect("there are more numbers than memory for queues");
    queues.insert(number, queue);
    Ok(number)
}

/// The addresses by which packets find the queue; each once.
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
