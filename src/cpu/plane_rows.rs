// SPDX-License-Identifier: MPL-2.0
//! The rows of planes that a task reads and writes, as slices.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

use super::plain::Plain;
use crate::filter::plane::{HostPlane, HostPlaneMut};

/// The rows of a plane that is read.
#[derive(Clone, Copy)]
pub struct SourceRows<'a> {
    plane: HostPlane,
    row_bytes: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> SourceRows<'a> {
    /// # Safety
    /// For `'a`, the plane holds `row_bytes` bytes of every row that [`SourceRows::row`] is called for, and nobody writes them.
    pub unsafe fn new(plane: HostPlane, row_bytes: usize) -> Self {
        Self { plane, row_bytes, memory: PhantomData }
    }

    /// Row `y`.
    #[inline(always)]
    pub fn row<T: Plain>(&self, y: usize) -> &'a [T] {
        let address = self.plane.row(y);
        assert!(address.cast::<T>().is_aligned());
        // SAFETY: the plane holds these bytes and nobody writes them, as the caller of `new` guarantees. The address is aligned,
        // and every bit pattern is valid for `T`.
        unsafe { std::slice::from_raw_parts(address.cast(), self.row_bytes / size_of::<T>()) }
    }
}

/// A rectangle of a plane that is written.
pub struct DestinationRows<'a> {
    plane: HostPlaneMut,
    bytes: Range<usize>,
    memory: PhantomData<&'a mut [u8]>,
}

impl DestinationRows<'_> {
    /// # Safety
    /// For `'a`, the plane holds these bytes of every row that [`DestinationRows::row`] and [`DestinationRows::cells`] are called
    /// for. Nobody else accesses those that the first returns, and those that are read or written in what the second returns.
    pub unsafe fn new(plane: HostPlaneMut, bytes: Range<usize>) -> Self {
        Self { plane, bytes, memory: PhantomData }
    }

    /// The rectangle's bytes of row `y`.
    #[inline(always)]
    pub fn row<T: Plain>(&mut self, y: usize) -> &mut [T] {
        let address = self.plane.row(y).wrapping_add(self.bytes.start);
        assert!(address.cast::<T>().is_aligned());
        // SAFETY: the plane holds these bytes and nobody else accesses them, as the caller of `new` guarantees; `self` is
        // borrowed mutably. The address is aligned, and every bit pattern is valid for `T`.
        unsafe { std::slice::from_raw_parts_mut(address.cast(), self.bytes.len() / size_of::<T>()) }
    }

    /// As [`DestinationRows::row`], where others may access some of the bytes.
    #[inline(always)]
    pub fn cells(&mut self, y: usize) -> &[Cell<u8>] {
        let address = self.plane.row(y).wrapping_add(self.bytes.start);
        // SAFETY: the plane holds these bytes, and nobody else accesses those that are read or written here, as the caller of
        // `new` guarantees. Cells may be shared.
        unsafe { std::slice::from_raw_parts(address.cast(), self.bytes.len()) }
    }
}
