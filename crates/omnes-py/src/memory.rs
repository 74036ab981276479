//! Python objects with the buffer protocol, as bytes.

use omnes::ElementType;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ptr::NonNull;

/// The memory of an object, which does not move as long as this value lives.
pub(crate) struct Memory {
    buffer: PyUntypedBuffer,
    /// Format of an element, as the object says; the buffer holds plain bytes if the object is one
    /// number.
    format: String,
    element_bytes: usize,
}

/// Location of bytes, independent of the interpreter's lock.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a place is an address and a length; the code that turns it into memory is responsible.
unsafe impl Send for Place {}
// SAFETY: as for `Send`.
unsafe impl Sync for Place {}

impl Memory {
    /// The memory of `object`, to be read: bytes, bytearray, memoryview, array, NumPy array, ….
    ///
    /// # Errors
    /// `TypeError` if it has no buffer, or one of Python objects; `ValueError` if its bytes are not
    /// contiguous, or have no address.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A view knows its strides even if the object leaves them out, as those of ctypes do.
        let view = PyMemoryView::from(object).map_err(|error| without_buffer(object, error))?;
        let format: String = view.getattr("format")?.extract()?;
        check_values(&format)?;
        let element_bytes = view.getattr("itemsize")?.extract()?;
        let is_one_number = view.getattr("ndim")?.extract::<usize>()? == 0;
        // Without dimensions it has no shape, which PyO3 requires.
        let bytes =
            if is_one_number { view.call_method1("cast", ("B",))? } else { view.into_any() };
        let buffer = PyUntypedBuffer::get(&bytes)?;
        if !buffer.is_c_contiguous() {
            let reason = "the buffer's elements are not one behind the other in C order: copy it, \
                          as with numpy.ascontiguousarray(), and use the copy";
            return Err(PyValueError::new_err(reason));
        }
        if buffer.buf_ptr().is_null() && buffer.len_bytes() != 0 {
            return Err(PyValueError::new_err("the buffer has a length, but no memory"));
        }
        Ok(Self { buffer, format, element_bytes })
    }

    /// As [`Self::of`], to be written.
    ///
    /// # Errors
    /// As [`Self::of`]; `TypeError` if the object is read-only.
    pub(crate) fn to_write(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::of(object)?;
        if memory.buffer.readonly() {
            let kind = object.get_type().name()?;
            let reason = format!("received data need a writable buffer, but {kind} is read-only");
            return Err(PyTypeError::new_err(reason));
        }
        Ok(memory)
    }

    /// The type of its numbers.
    ///
    /// # Errors
    /// `TypeError` if reductions do not support its elements, or they are not numbers.
    pub(crate) fn element(&self) -> PyResult<ElementType> {
        let format = self.format.as_str();
        // A format that names the byte order explicitly is accepted if that is the native one.
        let native = if cfg!(target_endian = "little") { ['@', '=', '<'] } else { ['@', '=', '>'] };
        let letter = format.strip_prefix(native).unwrap_or(format);
        let element = match (letter, self.element_bytes) {
            ("b" | "h" | "i" | "l" | "q" | "n", 1) => ElementType::I8,
            ("b" | "h" | "i" | "l" | "q" | "n", 2) => ElementType::I16,
            ("b" | "h" | "i" | "l" | "q" | "n", 4) => ElementType::I32,
            ("b" | "h" | "i" | "l" | "q" | "n", 8) => ElementType::I64,
            ("B" | "H" | "I" | "L" | "Q" | "N", 1) => ElementType::U8,
            ("B" | "H" | "I" | "L" | "Q" | "N", 2) => ElementType::U16,
            ("B" | "H" | "I" | "L" | "Q" | "N", 4) => ElementType::U32,
            ("B" | "H" | "I" | "L" | "Q" | "N", 8) => ElementType::U64,
            ("f", 4) => ElementType::F32,
            ("d", 8) => ElementType::F64,
            _ => {
                let reason = format!(
                    "reductions take integers of 1 to 8 bytes and floats of 4 or 8, but the buffer \
                     has elements of format `{format}`"
                );
                return Err(PyTypeError::new_err(reason));
            }
        };
        Ok(element)
    }

    pub(crate) fn place(&self) -> Place {
        let base = NonNull::new(self.buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling());
        Place { base, bytes: self.buffer.len_bytes() }
    }
}

/// The exception for an object that has no buffer.
fn without_buffer(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    let Ok(kind) = object.get_type().name() else { return error };
    if !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let is_tensor = object.hasattr("data_ptr").unwrap_or(false);
    let way_out = if is_tensor { ": omnes.torch is for tensors" } else { "" };
    PyTypeError::new_err(format!(
        "an object with a buffer is needed, such as a bytearray or a NumPy array, and {kind} has \
         none{way_out}"
    ))
}

/// Rejects elements that are, or contain, Python objects: their addresses would be sent.
fn check_values(format: &str) -> PyResult<()> {
    // Every second part is the name of a field.
    if format.split(':').step_by(2).any(|part| part.contains('O')) {
        let reason = format!(
            "the buffer holds Python objects (format `{format}`), which exist in this process \
             only: send what pickle.dumps() returns for them"
        );
        return Err(PyTypeError::new_err(reason));
    }
    Ok(())
}

impl Place {
    /// No memory at all.
    pub(crate) const NOWHERE: Self = Self { base: NonNull::dangling(), bytes: 0 };

    /// Rejects memory that overlaps with `other`.
    pub(crate) fn check_apart_from(self, other: Self) -> PyResult<()> {
        let (own, others) = (self.base.addr().get(), other.base.addr().get());
        let is_some = self.bytes > 0 && other.bytes > 0;
        if is_some && own < others + other.bytes && others < own + self.bytes {
            return Err(PyValueError::new_err("the two buffers overlap: one is read, one written"));
        }
        Ok(())
    }

    pub(crate) fn base(self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// The bytes, to be read or written later.
    pub(crate) fn memory(self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.base, self.bytes)
    }

    /// The bytes to be read.
    ///
    /// # Safety
    /// The [`Memory`] lives during `'a`, and nobody writes to it.
    pub(crate) unsafe fn data<'a>(self) -> &'a [u8] {
        // SAFETY: the exporter of a buffer guarantees address and length, and the caller the rest.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    /// The bytes to be written.
    ///
    /// # Safety
    /// The [`Memory`] is writable, lives during `'a`, and nobody else uses it.
    pub(crate) unsafe fn buffer<'a>(self) -> &'a mut [u8] {
        // SAFETY: the exporter of a buffer guarantees address and length, and the caller the rest.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}
