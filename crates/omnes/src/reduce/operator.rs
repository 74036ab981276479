//! Combines two elements into one: types of numbers and the operations on them.

use crate::communicator::Bytes;
use crate::error::Error;
use omnes_net::Combiner;
use std::fmt;
use std::str::FromStr;

/// Operation of a reduction. All are commutative. Sums and products of integers wrap around;
/// minimum and maximum are NaN if any element is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReduceOp {
    /// `a + b`
    Sum,
    /// `a * b`
    Product,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Bitwise and; for integers only.
    And,
    /// Bitwise or; for integers only.
    Or,
    /// Bitwise exclusive or; for integers only.
    Xor,
}

impl ReduceOp {
    /// All operations, with their names.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Sum, "sum"),
        (Self::Product, "product"),
        (Self::Min, "min"),
        (Self::Max, "max"),
        (Self::And, "and"),
        (Self::Or, "or"),
        (Self::Xor, "xor"),
    ];
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.into_iter().find(|(op, _)| op == self);
        formatter.write_str(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for ReduceOp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Self::ALL.into_iter().find(|(_, name)| *name == text);
        named.map(|(op, _)| op).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, name)| *name).collect();
            Error::Reduction { reason: format!("`{text}` is none of {}", names.join(", ")) }
        })
    }
}

/// The type of the elements of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementType {
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

mod sealed {
    /// Every bit pattern is a valid number, so a buffer of them can be used as bytes.
    pub trait Sealed: bytemuck::Pod {}
}

/// A numeric type that can be reduced.
pub trait Element: sealed::Sealed {
    /// The corresponding [`ElementType`].
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($variant:ident $type:ident $combiner:ident),*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const TYPE: ElementType = ElementType::$variant;
            }
        )*

        impl ElementType {
            /// All element types.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Bytes of an element.
            pub fn bytes(self) -> usize {
                match self {
                    $(Self::$variant => size_of::<$type>(),)*
                }
            }

            fn combiner(self, op: ReduceOp) -> Option<Combiner> {
                match self {
                    $(Self::$variant => $combiner!($type, op),)*
                }
            }
        }

        impl fmt::Display for ElementType {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(match self {
                    $(Self::$variant => stringify!($type),)*
                })
            }
        }
    };
}

/// Combines the elements of two buffers, which may be unaligned.
fn each<const BYTES: usize>(
    into: &mut [u8],
    from: &[u8],
    combine: impl Fn([u8; BYTES], [u8; BYTES]) -> [u8; BYTES],
) {
    let (into, from) = (into.as_chunks_mut().0, from.as_chunks().0);
    for (into, from) in into.iter_mut().zip(from) {
        *into = combine(*into, *from);
    }
}

macro_rules! loop_of {
    ($type:ident, $combine:expr) => {
        |into: &mut [u8], from: &[u8]| {
            let combine: fn($type, $type) -> $type = $combine;
            each(into, from, |a, b| {
                combine($type::from_ne_bytes(a), $type::from_ne_bytes(b)).to_ne_bytes()
            })
        }
    };
}

macro_rules! integer {
    ($type:ident, $op:expr) => {
        Some(match $op {
            ReduceOp::Sum => loop_of!($type, $type::wrapping_add),
            ReduceOp::Product => loop_of!($type, $type::wrapping_mul),
            ReduceOp::Min => loop_of!($type, Ord::min),
            ReduceOp::Max => loop_of!($type, Ord::max),
            ReduceOp::And => loop_of!($type, |a, b| a & b),
            ReduceOp::Or => loop_of!($type, |a, b| a | b),
            ReduceOp::Xor => loop_of!($type, |a, b| a ^ b),
        })
    };
}

macro_rules! float {
    ($type:ident, $op:expr) => {
        match $op {
            ReduceOp::Sum => Some(loop_of!($type, |a, b| a + b)),
            ReduceOp::Product => Some(loop_of!($type, |a, b| a * b)),
            ReduceOp::Min => Some(loop_of!($type, |a, b| if a < b || a.is_nan() { a } else { b })),
            ReduceOp::Max => Some(loop_of!($type, |a, b| if a > b || a.is_nan() { a } else { b })),
            ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
        }
    };
}

elements!(
    I8 i8 integer,
    I16 i16 integer,
    I32 i32 integer,
    I64 i64 integer,
    U8 u8 integer,
    U16 u16 integer,
    U32 u32 integer,
    U64 u64 integer,
    F32 f32 float,
    F64 f64 float
);

/// How the elements of two buffers are combined into the first.
#[derive(Clone, Copy)]
pub(crate) struct Combine<'a> {
    /// Bytes of an element; buffers are only divided between elements.
    pub(crate) element_bytes: usize,
    apply: &'a dyn Fn(&mut [u8], &[u8]),
}

impl<'a> Combine<'a> {
    /// Combines by a function, for elements of `element_bytes` bytes, which is not 0.
    pub(crate) fn by(element_bytes: usize, apply: &'a dyn Fn(&mut [u8], &[u8])) -> Self {
        Self { element_bytes, apply }
    }

    /// `data` without bytes at the end that do not fill an element.
    pub(crate) fn whole_elements<'data>(&self, data: &'data mut [u8]) -> &'data mut [u8] {
        let bytes = data.len() / self.element_bytes * self.element_bytes;
        &mut data[..bytes]
    }

    pub(crate) fn apply(&self, into: &mut [u8], from: &[u8]) {
        (self.apply)(into, from);
    }
}

impl ElementType {
    /// Calls `reduce` with the operation `op` for elements of this type.
    ///
    /// # Errors
    /// [`Error::Reduction`] if the operation does not apply to them; any error of `reduce`.
    pub(crate) fn with_combine<T>(
        self,
        op: ReduceOp,
        reduce: impl FnOnce(&Combine<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        reduce(&Combine::by(self.bytes(), &self.combiner_of(op)?))
    }

    /// The operation `op` for elements of this type.
    ///
    /// # Errors
    /// [`Error::Reduction`] if the operation does not apply to them.
    pub(crate) fn combiner_of(self, op: ReduceOp) -> Result<Combiner, Error> {
        let none = || Error::Reduction { reason: format!("{op} is not for elements of {self}") };
        self.combiner(op).ok_or_else(none)
    }

    /// `data` without bytes at the end that do not fill an element.
    pub(crate) fn whole(self, data: Bytes) -> Bytes {
        data.part(0..data.length / self.bytes() * self.bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn combined<T: Element>(op: ReduceOp, into: &[T], from: &[T]) -> Vec<T> {
        let mut into = into.to_vec();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut into);
        let apply = |combine: &Combine<'_>| {
            combine.apply(bytes, bytemuck::cast_slice(from));
            Ok(())
        };
        T::TYPE.with_combine(op, apply).unwrap();
        into
    }

    #[test]
    fn integer_arithmetic_wraps_and_bitwise_operations_apply() {
        let (a, b) = ([i8::MAX, -128, 12], [1, -1, 10]);
        assert_eq!(combined(ReduceOp::Sum, &a, &b), [i8::MIN, 127, 22]);
        assert_eq!(combined(ReduceOp::Product, &a, &b), [127, -128, 120]);
        assert_eq!(combined(ReduceOp::Min, &a, &b), [1, -128, 10]);
        assert_eq!(combined(ReduceOp::Max, &a, &b), [127, -1, 12]);
        assert_eq!(combined(ReduceOp::And, &a, &b), [1, -128, 8]);
        assert_eq!(combined(ReduceOp::Or, &a, &b), [127, -1, 14]);
        assert_eq!(combined(ReduceOp::Xor, &[3u64], &[5]), [6]);
        assert_eq!(combined(ReduceOp::Max, &[u32::MAX], &[0]), [u32::MAX]);
    }

    #[test]
    fn nan_stays_whichever_side_it_is_on() {
        for op in [ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum, ReduceOp::Product] {
            let both = combined(op, &[f64::NAN, 1.0, 2.0], &[1.0, f64::NAN, 2.0]);
            assert!(both[0].is_nan() && both[1].is_nan() && !both[2].is_nan(), "{op}: {both:?}");
        }
        assert_eq!(combined(ReduceOp::Min, &[1.5f32, -0.5], &[-2.0, 3.0]), [-2.0, -0.5]);
        assert_eq!(combined(ReduceOp::Max, &[1.5f32, -0.5], &[-2.0, 3.0]), [1.5, 3.0]);
    }

    #[test]
    fn bitwise_operation_on_floats_is_rejected_naming_both() {
        let refused = ElementType::F32.with_combine(ReduceOp::Xor, |_| Ok(())).unwrap_err();
        assert_eq!(refused.to_string(), "reduction: xor is not for elements of f32");
    }

    #[test]
    fn reduction_operations_round_trip_as_text() {
        for (op, name) in ReduceOp::ALL {
            assert_eq!(name.parse::<ReduceOp>().unwrap(), op);
            assert_eq!(op.to_string(), name);
        }
        let error = "avg".parse::<ReduceOp>().unwrap_err().to_string();
        assert!(error.contains("`avg` is none of sum, product, min"), "{error}");
    }

    #[test]
    fn buffers_need_not_be_aligned() {
        let mut into = [0u8; 9];
        into[1..].copy_from_slice(&2.5f64.to_ne_bytes());
        let mut from = [0u8; 11];
        from[3..].copy_from_slice(&0.5f64.to_ne_bytes());
        let apply = |combine: &Combine<'_>| {
            combine.apply(&mut into[1..], &from[3..]);
            Ok(())
        };
        ElementType::F64.with_combine(ReduceOp::Sum, apply).unwrap();
        assert_eq!(into[1..], 3.0f64.to_ne_bytes());
    }
}
