//! Up to four numbers of every rank, combined in the packets of a barrier, whose steps carry words:
//! no rank sends a message of its own, and if the kernel NIC makes the steps, no host is woken
//! before the results are available.
//!
//! Numbers become words of 64 bits: integers unchanged, f32 as f64, and for minima and maxima
//! floats as integers of the same order.

use super::operator::{ElementType, ReduceOp};
use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_proto::collective::{Combine, Contribution};
use omnes_wire::{CARRIED_MAX, Words};

/// How a number is converted to a word, and a result to a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// An integer in the low bits; the high bits repeat its sign, if it has one.
    Integer { is_signed: bool },
    /// As `Integer`, with the highest bit inverted, so that unsigned integers are in the order of
    /// signed ones.
    Turned,
    /// The bits of an f64.
    Float,
    /// The bits of an f64 as an integer that is in the order of floats. NaNs are at either end.
    Ordered,
}

/// Numbers of a type for an operation, as words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packing {
    element: ElementType,
    op: ReduceOp,
    form: Form,
    combine: Combine,
}

impl Packing {
    /// For elements of a type; `None` if the NIC does not support the operation.
    pub(super) fn of(element: ElementType, op: ReduceOp) -> Option<Self> {
        use ElementType as T;
        let is_order = matches!(op, ReduceOp::Min | ReduceOp::Max);
        let form = match element {
            T::F32 | T::F64 if is_order => Form::Ordered,
            T::F32 | T::F64 => Form::Float,
            T::U64 if is_order => Form::Turned,
            T::I8 | T::I16 | T::I32 | T::I64 => Form::Integer { is_signed: true },
            T::U8 | T::U16 | T::U32 | T::U64 => Form::Integer { is_signed: false },
        };
        let combine = match (op, form) {
            (ReduceOp::Sum, Form::Float) => Combine::SumF64,
            (_, Form::Float) => return None,
            (ReduceOp::Sum, _) => Combine::Sum,
            (ReduceOp::Product, _) => Combine::Product,
            (ReduceOp::Min, _) => Combine::Min,
            (ReduceOp::Max, _) => Combine::Max,
            (ReduceOp::And, _) => Combine::And,
            (ReduceOp::Or, _) => Combine::Or,
            (ReduceOp::Xor, _) => Combine::Xor,
        };
        Some(Self { element, op, form, combine })
    }

    /// Converts numbers, at most [`CARRIED_MAX`], to words.
    fn pack(self, numbers: &[u8]) -> Contribution {
        let numbers = numbers.chunks_exact(self.element.bytes());
        let mut words = [0; CARRIED_MAX];
        let count = numbers.len().min(CARRIED_MAX);
        words.iter_mut().zip(numbers).for_each(|(word, number)| *word = self.word(number));
        Contribution::new(self.combine, &words[..count])
    }

    /// Converts words to numbers.
    fn unpack(self, words: &Words, numbers: &mut [u8]) {
        let numbers = numbers.chunks_exact_mut(self.element.bytes());
        let pairs = numbers.zip(words.as_slice());
        pairs.for_each(|(number, word)| self.set_number(*word, number));
    }

    /// Converts a number to a word.
    fn word(self, number: &[u8]) -> u64 {
        match self.form {
            Form::Integer { is_signed } => widened(number, is_signed),
            Form::Turned => widened(number, false) ^ 1 << 63,
            Form::Float => self.float(number).to_bits(),
            Form::Ordered => {
                let float = self.float(number);
                match (float.is_nan(), self.op) {
                    (true, ReduceOp::Min) => i64::MIN as u64,
                    (true, _) => i64::MAX as u64,
                    (false, _) => turned_if_negative(float.to_bits()),
                }
            }
        }
    }

    /// Converts a word to a number.
    fn set_number(self, word: u64, number: &mut [u8]) {
        match self.form {
            Form::Integer { .. } => narrow(word, number),
            Form::Turned => narrow(word ^ 1 << 63, number),
            Form::Float => self.set_float(f64::from_bits(word), number),
            Form::Ordered => {
                let float = f64::from_bits(turned_if_negative(word));
                self.set_float(if float.is_nan() { f64::NAN } else { float }, number);
            }
        }
    }

    fn float(self, number: &[u8]) -> f64 {
        match *number {
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]).into(),
            _ => number.first_chunk().copied().map_or(f64::NAN, f64::from_ne_bytes),
        }
    }

    fn set_float(self, float: f64, number: &mut [u8]) {
        match self.element {
            ElementType::F32 => number.copy_from_slice(&(float as f32).to_ne_bytes()),
            _ => number.copy_from_slice(&float.to_ne_bytes()),
        }
    }
}

/// Puts the bits of negative floats, which grow as the floats fall, in the order of integers; and
/// back.
fn turned_if_negative(bits: u64) -> u64 {
    bits ^ ((bits as i64 >> 63) as u64 >> 1)
}

/// The integer of these bytes, extended with its sign if it has one.
fn widened(number: &[u8], is_signed: bool) -> u64 {
    let mut bytes = [0; 8];
    let (length, free) = (number.len(), 64 - 8 * number.len() as u32);
    if cfg!(target_endian = "big") {
        bytes[8 - length..].copy_from_slice(number)
    } else {
        bytes[..length].copy_from_slice(number)
    }
    let word = u64::from_ne_bytes(bytes) << free;
    if is_signed { (word as i64 >> free) as u64 } else { word >> free }
}

/// The low bytes of a word.
fn narrow(word: u64, number: &mut [u8]) {
    let (bytes, length) = (word.to_ne_bytes(), number.len());
    number.copy_from_slice(if cfg!(target_endian = "big") {
        &bytes[8 - length..]
    } else {
        &bytes[..length]
    });
}

impl Communicator {
    /// Combines the numbers of every rank in a barrier. Returns false, without effect, if there are
    /// none or more than four, words do not support the operation, or barriers here do not combine
    /// words. The same on all ranks.
    pub(super) fn allreduce_words(
        &self,
        data: &mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<bool, Error> {
        let count = data.len() / element.bytes();
        if !(1..=CARRIED_MAX).contains(&count) || !self.combines_words() {
            return Ok(false);
        }
        let Some(packing) = Packing::of(element, op) else { return Ok(false) };
        let own = packing.pack(data);
        let results = self.run_collective(Collective::Allreduce, || {
            let results = self.combine_in_barrier(own)?;
            let bytes = |count| (count * element.bytes()) as u64;
            match results.as_slice().len() {
                came if came == count => Ok(results),
                // The length of another rank of this node, which has contributed on behalf of the
                // node.
                came => {
                    Err(Error::LengthMismatch { received: bytes(came), expected: bytes(count) })
                }
            }
        })?;
        packing.unpack(&results, data);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::operator::Element;
    use super::*;

    /// The combination of two numbers by words; `None` if words do not support the operation.
    fn combined<T: Element>(op: ReduceOp, a: T, b: T) -> Option<T> {
        let packing = Packing::of(T::TYPE, op)?;
        let pack = |number: T| packing.pack(bytemuck::bytes_of(&[number; 3]));
        let mut results = [a; 3];
        let both = pack(a).with([pack(b).words()]).words();
        assert_eq!(both.as_slice().len(), 3);
        packing.unpack(&both, bytemuck::bytes_of_mut(&mut results));
        let [first, rest @ ..] = results;
        let bytes = |number: &T| bytemuck::bytes_of(number).to_vec();
        assert!(rest.iter().all(|other| bytes(other) == bytes(&first)));
        Some(first)
    }

    /// The combination by the operation itself.
    fn expected<T: Element>(op: ReduceOp, a: T, b: T) -> T {
        let mut result = a;
        let apply = |combine: &super::super::operator::Combine<'_>| {
            combine.apply(bytemuck::bytes_of_mut(&mut result), bytemuck::bytes_of(&b));
            Ok(())
        };
        T::TYPE.with_combine(op, apply).unwrap();
        result
    }

    fn check_integers<T: Element + PartialEq + std::fmt::Debug>(numbers: &[T]) {
        for (op, _) in ReduceOp::ALL {
            for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
                assert_eq!(combined(op, a, b), Some(expected(op, a, b)), "{a:?} {op} {b:?}");
            }
        }
    }

    #[test]
    fn integers_of_all_sizes_reduce_as_with_native_arithmetic() {
        check_integers(&[0i8, 1, -1, 7, i8::MAX, i8::MIN]);
        check_integers(&[0i16, 1, -1, 300, i16::MAX, i16::MIN]);
        check_integers(&[0i32, 1, -1, 70_000, i32::MAX, i32::MIN]);
        check_integers(&[0i64, 1, -1, 1 << 40, i64::MAX, i64::MIN]);
        check_integers(&[0u8, 1, 7, 128, u8::MAX]);
        check_integers(&[0u16, 1, 1 << 15, u16::MAX]);
        check_integers(&[0u32, 1, 1 << 31, u32::MAX]);
        check_integers(&[0u64, 1, 1 << 63, u64::MAX, 12]);
    }

    #[test]
    fn float_sums_minima_and_maxima_match_native_results() {
        let numbers = [0.0, 1.5, -1.5, 1e30, -1e30, f64::INFINITY, f64::NEG_INFINITY, 5e-324];
        for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
            for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
                let (made, expected) = (combined(op, a, b).unwrap(), expected(op, a, b));
                assert!(made == expected || made.is_nan() && expected.is_nan(), "{a} {op} {b}");
                let (a, b) = (a as f32, b as f32);
                let (made, expected) = (combined(op, a, b).unwrap(), self::expected(op, a, b));
                assert!(made == expected || made.is_nan() && expected.is_nan(), "{a} {op} {b}");
            }
        }
        assert_eq!(combined(ReduceOp::Product, 2.0, 3.0), None);
        assert_eq!(combined(ReduceOp::Xor, 2.0f32, 3.0), None);
        // Negative zero is the smaller one, whichever operand it is; its sum with 0 is 0.
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            let bits = |op| combined::<f64>(op, a, b).unwrap().to_bits();
            assert_eq!(bits(ReduceOp::Min), (-0.0f64).to_bits());
            assert_eq!([bits(ReduceOp::Max), bits(ReduceOp::Sum)], [0, 0]);
        }
    }

    #[test]
    fn nan_stays_whichever_side_it_is_on() {
        for nan in [f64::NAN, -f64::NAN] {
            for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
                assert!(combined(op, nan, 1.0).unwrap().is_nan(), "{op}");
                assert!(combined(op, f64::NEG_INFINITY, nan).unwrap().is_nan(), "{op}");
                assert!(combined(op, nan as f32, f32::INFINITY).unwrap().is_nan(), "{op}");
            }
        }
    }
}
