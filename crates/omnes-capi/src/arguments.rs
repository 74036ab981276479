//! Checks C pointers and numbers, and converts them to references and types.

use crate::communicator::OmnesComm;
use crate::failure::Failure;
use omnes::{Source, Tag};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Wildcard rank and tag, and absent color, as in the header.
pub(crate) const ANY: c_int = -1;

/// Returns the communicator behind a handle.
///
/// # Safety
///
/// `comm` is NULL or a handle of this library that is not freed during `'a`.
pub(crate) unsafe fn comm<'a>(comm: *const OmnesComm) -> Result<&'a OmnesComm, Failure> {
    // SAFETY: required of our caller, too.
    unsafe { comm.as_ref() }.ok_or_else(|| Failure::argument("comm is NULL"))
}

/// Returns the place for a result; `name` is the parameter's name.
///
/// # Safety
///
/// `place` is NULL or valid for writes of a `T` during `'a`, by this call alone; it need not hold
/// a valid `T` unless the result is read, which the `MaybeUninit` prevents.
pub(crate) unsafe fn place<'a, T>(
    place: *mut T,
    name: &str,
) -> Result<&'a mut std::mem::MaybeUninit<T>, Failure> {
    // SAFETY: required of our caller, too.
    unsafe { optional_place(place) }.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// Returns the place for an optional result.
///
/// # Safety
///
/// As for [`place`].
pub(crate) unsafe fn optional_place<'a, T>(
    place: *mut T,
) -> Option<&'a mut std::mem::MaybeUninit<T>> {
    // SAFETY: required of our caller, too; MaybeUninit<T> has the layout of T.
    unsafe { place.cast::<std::mem::MaybeUninit<T>>().as_mut() }
}

/// Returns data to read; `name` is the parameter's name.
///
/// # Safety
///
/// `data` is NULL, or valid for reads of `bytes` bytes that nobody writes during `'a`.
pub(crate) unsafe fn data<'a>(
    data: *const c_void,
    bytes: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    check_length(data, bytes, name)?;
    if bytes == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL and not above isize::MAX, as checked; our caller promises the remaining
    // conditions. C memory counts as initialized, because the compiler cannot see who wrote it.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) })
}

/// Returns memory that is not accessed yet; `name` is the parameter's name.
pub(crate) fn memory(
    base: *const c_void,
    bytes: usize,
    name: &str,
) -> Result<NonNull<[u8]>, Failure> {
    check_length(base, bytes, name)?;
    let base = NonNull::new(base.cast_mut().cast()).unwrap_or(NonNull::dangling());
    Ok(NonNull::slice_from_raw_parts(base, bytes))
}

/// Returns a buffer to fill; `name` is the parameter's name.
///
/// # Safety
///
/// `buffer` is NULL, or valid for reads and writes of `bytes` bytes that nobody else accesses
/// during `'a`.
pub(crate) unsafe fn buffer<'a>(
    buffer: *mut c_void,
    bytes: usize,
    name: &str,
) -> Result<&'a mut [u8], Failure> {
    check_length(buffer, bytes, name)?;
    if bytes == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `data`, and our caller promises exclusive access.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), bytes) })
}

/// Returns the lengths of parts, one per rank; `name` is the parameter's name.
///
/// # Safety
///
/// `lengths` is NULL, or valid for reads of `ranks` lengths that nobody writes during `'a`.
pub(crate) unsafe fn lengths<'a>(
    lengths: *const usize,
    ranks: usize,
    name: &str,
) -> Result<&'a [usize], Failure> {
    check_length(lengths.cast(), ranks * size_of::<usize>(), name)?;
    if ranks == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL and not above isize::MAX, as checked; our caller promises the remaining
    // conditions.
    Ok(unsafe { std::slice::from_raw_parts(lengths, ranks) })
}

fn check_length(pointer: *const c_void, bytes: usize, name: &str) -> Result<(), Failure> {
    if bytes == 0 {
        return Ok(());
    }
    if pointer.is_null() {
        let reason = format!("{name} is NULL, but {bytes} bytes are needed there");
        return Err(Failure::argument(reason));
    }
    if isize::try_from(bytes).is_err() {
        let limit = isize::MAX;
        let reason = format!("{name} would have {bytes} bytes, at most {limit} are possible");
        return Err(Failure::argument(reason));
    }
    Ok(())
}

/// Converts a rank in `0..size`; `name` is the parameter's name.
pub(crate) fn rank(rank: c_int, size: u32, name: &str) -> Result<u32, Failure> {
    u32::try_from(rank)
        .ok()
        .filter(|rank| *rank < size)
        .ok_or_else(|| Failure::argument(format!("{name} is {rank}, ranks are 0 to {}", size - 1)))
}

/// Converts a sender: a rank in `0..size`, or any.
pub(crate) fn source(from: c_int, size: u32) -> Result<Source, Failure> {
    if from == ANY { Ok(Source::Any) } else { rank(from, size, "from").map(Source::Rank) }
}

/// Converts a tag to send with.
pub(crate) fn tag(tag: c_int) -> Result<u32, Failure> {
    u32::try_from(tag)
        .map_err(|_| Failure::argument(format!("tag is {tag}, tags are 0 to {}", c_int::MAX)))
}

/// Converts a tag to receive, or any.
pub(crate) fn wanted_tag(wanted: c_int) -> Result<Tag, Failure> {
    if wanted == ANY { Ok(Tag::Any) } else { tag(wanted).map(Tag::Is) }
}

/// Converts a color, or none.
pub(crate) fn color(color: c_int) -> Result<Option<u32>, Failure> {
    if color == ANY {
        return Ok(None);
    }
    u32::try_from(color).map(Some).map_err(|_| {
        Failure::argument(format!("color is {color}, colors are 0 to {} or -1", c_int::MAX))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_outside_the_communicator_are_rejected() {
        assert_eq!(rank(0, 1, "to").unwrap(), 0);
        assert_eq!(rank(3, 4, "to").unwrap(), 3);
        for wrong in [-2, -1, 4, c_int::MAX, c_int::MIN] {
            assert!(rank(wrong, 4, "to").is_err(), "{wrong}");
        }
    }

    #[test]
    fn minus_one_is_a_wildcard_and_other_negative_values_are_rejected() {
        assert!(matches!(source(-1, 4), Ok(Source::Any)));
        assert!(matches!(source(2, 4), Ok(Source::Rank(2))));
        assert!(source(-2, 4).is_err());
        assert!(matches!(wanted_tag(-1), Ok(Tag::Any)));
        assert!(matches!(wanted_tag(c_int::MAX), Ok(Tag::Is(0x7fff_ffff))));
        assert!(wanted_tag(c_int::MIN).is_err());
        assert_eq!(color(-1).unwrap(), None);
        assert_eq!(color(0).unwrap(), Some(0));
        assert!(color(-2).is_err());
    }

    #[test]
    fn null_data_is_accepted_only_with_zero_length() {
        // SAFETY: NULL is allowed in each of these calls, and nothing else is passed.
        unsafe {
            assert_eq!(data(std::ptr::null(), 0, "data").unwrap(), &[] as &[u8]);
            let refused = data(std::ptr::null(), 80, "data").unwrap_err();
            let refused = format!("{refused:?}");
            assert!(refused.contains("data is NULL, but 80 bytes are needed there"), "{refused}");
            assert!(buffer(std::ptr::null_mut(), 0, "data").unwrap().is_empty());
            assert!(buffer(std::ptr::null_mut(), 1, "data").is_err());
        }
    }

    #[test]
    fn null_lengths_are_accepted_only_for_zero_ranks() {
        // SAFETY: NULL is allowed in each of these calls.
        unsafe {
            assert!(lengths(std::ptr::null(), 0, "lengths").unwrap().is_empty());
            assert!(lengths(std::ptr::null(), 2, "lengths").is_err());
        }
    }

    #[test]
    fn lengths_above_isize_max_are_rejected() {
        let mut byte = 0_u8;
        let pointer = std::ptr::from_mut(&mut byte).cast();
        // SAFETY: rejected before a slice is created.
        assert!(unsafe { buffer(pointer, usize::MAX, "data") }.is_err());
        // SAFETY: rejected before a slice is created.
        assert!(unsafe { data(pointer, isize::MAX as usize + 1, "data") }.is_err());
    }
}
