//! Communicators of ranks that can already exchange data, and leaving their jobs.

use crate::arguments;
use crate::communicator::{OmnesComm, Origin, number};
use crate::failure::{Failure, SUCCESS, guard};
use omnes::{Communicator, Config, Error, Exchange, Jobs, WhileWaiting};
use std::ffi::{c_int, c_void};

/// `omnes_exchange.allgather` of the header.
type Allgather = unsafe extern "C" fn(
    context: *mut c_void,
    mine: *const c_void,
    all: *mut c_void,
    bytes: usize,
) -> c_int;

/// `struct omnes_exchange` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OmnesExchange {
    /// Length of this struct in bytes, in the caller's version of the header.
    pub struct_bytes: usize,
    /// The caller's rank.
    pub rank: c_int,
    /// Number of ranks.
    pub size: c_int,
    /// Gathers `bytes` bytes of every rank.
    pub allgather: Option<Allgather>,
    /// Passed to `allgather`.
    pub context: *mut c_void,
    /// Called by blocking calls while they wait.
    pub while_waiting: Option<unsafe extern "C" fn()>,
}

/// Ranks whose exchange is a C function.
struct Ranks {
    rank: u32,
    size: u32,
    allgather: Allgather,
    context: *mut c_void,
}

impl Ranks {
    fn new(exchange: &OmnesExchange) -> Result<Self, Failure> {
        let OmnesExchange { rank, size, allgather, context, .. } = *exchange;
        let size = u32::try_from(size).ok().filter(|size| *size > 0);
        let size = size.ok_or_else(|| {
            Failure::argument(format!("size is {}, it must be at least 1", exchange.size))
        })?;
        let rank = arguments::rank(rank, size, "rank")?;
        let allgather = allgather.ok_or_else(|| Failure::argument("allgather is NULL"))?;
        Ok(Self { rank, size, allgather, context })
    }
}

/// Returns the caller's struct, if its length is that of this version of the library.
///
/// # Safety
///
/// `ranks` is NULL or valid for reads of its first field, and of as many bytes as this field says,
/// during `'a`.
unsafe fn checked<'a>(ranks: *const OmnesExchange) -> Result<&'a OmnesExchange, Failure> {
    let expected = size_of::<OmnesExchange>();
    if ranks.is_null() {
        return Err(Failure::argument("ranks is NULL"));
    }
    // SAFETY: not NULL; validity is promised by our caller.
    match unsafe { (&raw const (*ranks).struct_bytes).read() } {
        // SAFETY: the struct has the length that we assume, so our caller's promise covers it.
        bytes if bytes == expected => Ok(unsafe { &*ranks }),
        bytes => Err(Failure::argument(format!(
            "struct_bytes is {bytes}, must be sizeof(omnes_exchange), which is {expected} here: \
             fill it in, and compile with the header of this library"
        ))),
    }
}

impl Exchange for Ranks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let bytes = (self.size as usize).saturating_mul(own.len());
        let mut all = Vec::new();
        all.try_reserve_exact(bytes).map_err(|_| Error::ExchangeFailed {
            reason: format!("cannot allocate {bytes} bytes for {} ranks", self.size),
        })?;
        all.resize(bytes, 0);
        // SAFETY: a function of this type, called with its own context, `own.len()` bytes to read
        // and `size` times as many to write, as the header says.
        let result = unsafe {
            (self.allgather)(self.context, own.as_ptr().cast(), all.as_mut_ptr().cast(), own.len())
        };
        match result {
            0 => Ok(all),
            code => Err(Error::ExchangeFailed { reason: format!("allgather returned {code}") }),
        }
    }
}

/// Adds to a new job's configuration the settings that do not come from the environment.
fn adjust(config: &mut Config, exchange: &OmnesExchange) {
    config.while_waiting = exchange.while_waiting.map(|while_waiting| {
        // SAFETY: a function of this type, called on the threads of waiting calls.
        WhileWaiting::new(move || unsafe { while_waiting() })
    });
}

/// See `omnes_comm_exchange` in the header.
///
/// # Safety
///
/// `ranks` is NULL or valid for reads of as many bytes as its first field says, and its functions
/// have the types given in the header; `comm` is NULL or valid for the write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_comm_exchange(
    ranks: *const OmnesExchange,
    comm: *mut *mut OmnesComm,
) -> c_int {
    guard(|| {
        // SAFETY: as our caller promises.
        let place = unsafe { arguments::place(comm, "comm") }?;
        place.write(std::ptr::null_mut());
        // SAFETY: as our caller promises.
        let exchange = unsafe { checked(ranks) }?;
        let ranks = Ranks::new(exchange)?;
        let made = Communicator::from_exchange(&ranks, |config| adjust(config, exchange))?;
        place.write(OmnesComm::into_handle(made, Origin::Other));
        Ok(SUCCESS)
    })
}

/// See `omnes_comm_nodes` in the header.
///
/// # Safety
///
/// `comm` is NULL or a handle that is not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omnes_comm_nodes(comm: *const OmnesComm) -> c_int {
    // SAFETY: as our caller promises.
    guard(|| number(unsafe { arguments::comm(comm) }?.communicator.node_count()))
}

/// See `omnes_leave` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn omnes_leave() -> c_int {
    guard(|| {
        Jobs::of_process().leave()?;
        Ok(SUCCESS)
    })
}
