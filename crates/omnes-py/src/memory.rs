//! Objects of Python that have a buffer, as bytes.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ptr::NonNull;

/// Memory of an object, which stays where it is for as long as this lives.
pub(crate) struct Memory {
    buffer: PyUntypedBuffer,
}

/// Where bytes are, without the interpreter's lock.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a place is an address and a length; whoever makes memory of it answers for that.
unsafe impl Send for Place {}
// SAFETY: the same.
unsafe impl Sync for Place {}

impl Memory {
    /// The memory of `object` to be read: bytes, bytearray, memoryview, array, NumPy array, ….
    ///
    /// # Errors
    /// `TypeError` if it has no buffer, `ValueError` if its bytes are not one behind the other, or
    /// nowhere.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A view knows its strides also where the object leaves them out, as those of ctypes do.
        let buffer = PyUntypedBuffer::get(PyMemoryView::from(object)?.as_any())?;
        if !buffer.is_c_contiguous() {
            let reason = "the buffer's bytes are not one behind the other: copy it, as with \
                          numpy.ascontiguousarray(), and broadcast or receive into the copy";
            return Err(PyValueError::new_err(reason));
        }
        if buffer.buf_ptr().is_null() && buffer.len_bytes() != 0 {
            return Err(PyValueError::new_err("the buffer has a length, but no memory"));
        }
        Ok(Self { buffer })
    }

    /// The same, to be written.
    ///
    /// # Errors
    /// As [`Self::of`]; `TypeError` if it is read-only.
    pub(crate) fn to_write(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::of(object)?;
        if memory.buffer.readonly() {
            let kind = object.get_type().name()?;
            let reason = format!("what comes in needs a writable buffer, and {kind} is read-only");
            return Err(PyTypeError::new_err(reason));
        }
        Ok(memory)
    }

    pub(crate) fn place(&self) -> Place {
        let base = NonNull::new(self.buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling());
        Place { base, bytes: self.buffer.len_bytes() }
    }
}

impl Place {
    pub(crate) fn base(self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// The bytes to be read.
    ///
    /// # Safety
    /// The [`Memory`] lives during `'a`, and nobody writes to it.
    pub(crate) unsafe fn data<'a>(self) -> &'a [u8] {
        // SAFETY: the exporter of a buffer answers for address and length; the rest is promised.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// The bytes to be written.
    ///
    /// # Safety
    /// The [`Memory`] is writable, lives during `'a`, and nobody else uses it.
    pub(crate) unsafe fn buffer<'a>(self) -> &'a mut [u8] {
        // SAFETY: the exporter of a buffer answers for address and length; the rest is promised.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}
