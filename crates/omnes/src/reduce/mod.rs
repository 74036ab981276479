//! Reductions: combine the data of all ranks.
//!
//! | module | what it does |
//! |---|---|
//! | `operator` | numbers, and the operations on them |
//! | `choice` | which algorithm is used if the caller has not named one |
//! | `words` | up to four numbers: in the packets of a barrier |
//! | `tree` | short data: up a tree to one rank, and out by a broadcast |
//! | `blocks` | long data: each rank reduces a block of its own, which then goes to all |
//! | `scan` | prefixes: each rank gets the data of itself and those before it, in order of ranks |
//!
//! Guarantees: all ranks get the same bits, and the same again in each run with the same ranks,
//! nodes and settings, also for floats: the order of combination depends only on these, never on
//! the order of arrival. If ranks outnumber cores and data are long, the network's figures
//! ([`tune`](crate::tune)) count among the settings; if ranks have cores of their own, the
//! availability of multicast does. A sum of up to four f32 may differ from the same sum among more
//! elements: it is computed as f64.
//!
//! Cost for N ranks and S bytes: for up to four numbers a barrier; up a tree N - 1 messages of S
//! bytes and a broadcast; in blocks each rank sends and receives S (N - 1) / N bytes to reduce, and
//! the results are distributed by one broadcast per rank, S bytes in all, if multicast works,
//! otherwise around a ring, again S (N - 1) / N bytes. Long blocks go around the ring both times
//! over slow links, and if ranks with cores of their own share nodes: each node's link then carries
//! at most 2 S in each direction, but up a tree S for every child of its leader. For scans see
//! `scan`.

mod blocks;
mod choice;
mod operator;
mod scan;
mod tree;
mod words;

pub use choice::{ReduceAlgorithm, ReduceAlgorithmError};
pub use operator::{Element, ElementType, ReduceOp};

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::compare::Call;
use crate::error::Error;
pub(crate) use blocks::Blocks;
pub(crate) use operator::Combine;
use std::ops::Range;

/// The rank at which short data of all ranks are combined or gathered.
pub(crate) const MEETING_RANK: u32 = 0;

impl Communicator {
    /// Reduces the `data` of all ranks element by element; afterwards all ranks have the same
    /// result, bit for bit. Floats, too, have the same bits in every run with the same ranks,
    /// nodes, settings and network measurements. `data` must have the same length on all ranks.
    ///
    /// ```no_run
    /// // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let mut sums = [f64::from(world.rank()), 1.0];
    /// world.allreduce(&mut sums, omnes::ReduceOp::Sum)?;
    /// assert_eq!(sums[1], f64::from(world.size()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Reduction`] for bitwise operations on floats, [`Error::PeerFailed`],
    /// [`Error::PeerLeft`], [`Error::CollectivesBroken`].
    ///
    /// If lengths differ between ranks, usually at least one rank gets [`Error::Truncated`] or
    /// [`Error::LengthMismatch`], which ends the collectives of this communicator. But the length
    /// selects the algorithm, so ranks with different lengths may also block until one leaves, for
    /// example if some have up to four numbers and others more. If some ranks pass one number and
    /// others enter a barrier, or use another operation or type, the call succeeds with meaningless
    /// results. With [`Config::compare_calls`](crate::Config::compare_calls) all of these are
    /// [`Error::CallMismatch`].
    pub fn allreduce<T: Element>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.allreduce_as(bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::allreduce`], with the given algorithm, which must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::allreduce`]; [`Error::Algorithm`] for a tree with invalid parameters.
    pub fn allreduce_with<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        algorithm: ReduceAlgorithm,
    ) -> Result<(), Error> {
        self.allreduce_as_with(bytemuck::cast_slice_mut(data), T::TYPE, op, algorithm)
    }

    /// As [`Self::allreduce`], for elements whose type is only known at run time. Bytes at the end
    /// of `data` that do not fill an element are left unchanged.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    pub fn allreduce_as(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.begin(Call::of(Collective::Allreduce).combining(data.len(), element, op))?;
        if self.allreduce_words(data, element, op)? {
            return Ok(());
        }
        element.with_combine(op, |combine| {
            let data = combine.whole_elements(data);
            self.allreduced(data, combine, self.usual_reduce(data.len()))
        })
    }

    /// As [`Self::allreduce_as`], with the given algorithm, which must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::allreduce_with`].
    pub fn allreduce_as_with(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
        algorithm: ReduceAlgorithm,
    ) -> Result<(), Error> {
        self.begin(Call::of(Collective::Allreduce).combining(data.len(), element, op))?;
        if algorithm == ReduceAlgorithm::Words {
            let reason = "`words` is for one to four numbers, not for products of floats, needs \
                          barriers by counter or gather-broadcast, and does without encryption";
            return if self.allreduce_words(data, element, op)? {
                Ok(())
            } else {
                Err(Error::Reduction { reason: reason.to_owned() })
            };
        }
        element.with_combine(op, |combine| self.allreduced(data, combine, algorithm))
    }

    /// As [`Self::allreduce`], with a function that combines the elements of two buffers of equal
    /// length into the first. An element has `element_bytes` bytes, at least 1; buffers are only
    /// divided between elements. The function must be commutative and associative and the same on
    /// all ranks, and must not use this communicator.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    ///
    /// # Panics
    /// If `element_bytes` is 0.
    pub fn allreduce_by(
        &self,
        data: &mut [u8],
        element_bytes: usize,
        combine: &dyn Fn(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        assert!(element_bytes > 0, "an element of a reduction has a byte at least");
        self.begin(Call::of(Collective::Allreduce).with_bytes(data.len()))?;
        let combine = Combine::by(element_bytes, combine);
        let data = combine.whole_elements(data);
        self.allreduced(data, &combine, self.usual_reduce(data.len()))
    }

    /// Reduces the `data` of all ranks element by element into the `data` of `root`. On the other
    /// ranks `data` is used as scratch space, and its contents are undefined afterwards.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`] for a root that does not exist; otherwise as [`Self::allreduce`].
    pub fn reduce<T: Element>(&self, root: u32, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.reduce_as(root, bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::reduce`], for elements whose type is only known at run time.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn reduce_as(
        &self,
        root: u32,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        let call = Call::of(Collective::Reduce).combining(data.len(), element, op);
        self.begin(call.with_root(root))?;
        element.with_combine(op, |combine| self.reduced(root, data, combine))
    }

    /// As [`Self::reduce`], with a function; see [`Self::allreduce_by`].
    ///
    /// # Errors
    /// As [`Self::reduce`].
    ///
    /// # Panics
    /// If `element_bytes` is 0.
    pub fn reduce_by(
        &self,
        root: u32,
        data: &mut [u8],
        element_bytes: usize,
        combine: &dyn Fn(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        assert!(element_bytes > 0, "an element of a reduction has a byte at least");
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Reduce).with_bytes(data.len()).with_root(root))?;
        self.reduced(root, data, &Combine::by(element_bytes, combine))
    }

    /// Reduces the `data` of all ranks element by element; each rank gets a block of the result.
    /// The elements of `data` in the range returned hold this rank's block, all others are
    /// unchanged. Blocks follow each other in order of ranks; if they cannot all be equal, the
    /// first ones have one element more.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    pub fn reduce_scatter<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<Range<usize>, Error> {
        let range = self.reduce_scatter_as(bytemuck::cast_slice_mut(data), T::TYPE, op)?;
        Ok(range.start / T::TYPE.bytes()..range.end / T::TYPE.bytes())
    }

    /// As [`Self::reduce_scatter`], for elements whose type is only known at run time; the range is
    /// in bytes.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    pub fn reduce_scatter_as(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<Range<usize>, Error> {
        self.begin(Call::of(Collective::ReduceScatter).combining(data.len(), element, op))?;
        element.with_combine(op, |combine| {
            self.run_collective(Collective::ReduceScatter, || self.reduce_scattered(data, combine))
        })
    }

    fn allreduced(
        &self,
        data: &mut [u8],
        combine: &Combine<'_>,
        algorithm: ReduceAlgorithm,
    ) -> Result<(), Error> {
        let data = combine.whole_elements(data);
        self.run_collective(Collective::Allreduce, || match algorithm {
            ReduceAlgorithm::Tree(tree) => {
                self.reduce_up(tree, MEETING_RANK, data, combine)?;
                self.broadcast(MEETING_RANK, data, self.usual_bcast(data.len()))
            }
            ReduceAlgorithm::Blocks => self.allreduce_blocks(data, combine),
            ReduceAlgorithm::Ring => self.allreduce_ring(data, combine),
            ReduceAlgorithm::Words => unreachable!("words have no function of their own"),
        })
    }

    fn reduced(&self, root: u32, data: &mut [u8], combine: &Combine<'_>) -> Result<(), Error> {
        let data = combine.whole_elements(data);
        self.run_collective(Collective::Reduce, || match self.usual_reduce(data.len()) {
            ReduceAlgorithm::Tree(tree) => self.reduce_up(tree, root, data, combine),
            ReduceAlgorithm::Blocks | ReduceAlgorithm::Ring => {
                self.reduce_blocks(root, data, combine)
            }
            ReduceAlgorithm::Words => {
                unreachable!("they are chosen for allreduces of few numbers alone")
            }
        })
    }
}
