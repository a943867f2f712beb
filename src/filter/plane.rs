// SPDX-License-Identifier: MPL-2.0
//! The memory of one plane on the host or on a device: address, row pitch and length. Only this file computes the addresses of
//! rows.

/// An address that can be moved by bytes: a host pointer, or a device address.
pub trait Address: Copy {
    /// The address `bytes` further on.
    fn offset_by(self, bytes: usize) -> Self;
}

impl Address for *const u8 {
    fn offset_by(self, bytes: usize) -> Self {
        self.wrapping_add(bytes)
    }
}

impl Address for *mut u8 {
    fn offset_by(self, bytes: usize) -> Self {
        self.wrapping_add(bytes)
    }
}

impl Address for u64 {
    fn offset_by(self, bytes: usize) -> Self {
        self.wrapping_add(bytes as u64)
    }
}

/// The memory of the rows of a plane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneMemory<A> {
    /// The address of the first sample.
    pub address: A,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Bytes from `address` to the end of the plane.
    pub len: usize,
}

/// A plane in host memory that is read.
pub type HostPlane = PlaneMemory<*const u8>;
/// A plane in host memory that is written.
pub type HostPlaneMut = PlaneMemory<*mut u8>;
/// A plane in device memory; the address is the driver's `CUdeviceptr`.
pub type DevicePlane = PlaneMemory<u64>;

impl<A: Address> PlaneMemory<A> {
    /// The address of row `y`.
    pub fn row(&self, y: usize) -> A {
        self.address.offset_by(y * self.pitch)
    }

    /// The plane from row `y` on.
    pub fn from_row(&self, y: usize) -> Self {
        Self { address: self.row(y), len: self.len.saturating_sub(y * self.pitch), ..*self }
    }

    /// The plane from a byte of each row on.
    pub fn from_byte(&self, byte: usize) -> Self {
        Self { address: self.address.offset_by(byte), len: self.len.saturating_sub(byte), ..*self }
    }

    /// Every `step`th row from `first` on, as a plane.
    pub fn every(&self, first: usize, step: usize) -> Self {
        Self { pitch: self.pitch * step, ..self.from_row(first) }
    }
}

impl HostPlaneMut {
    /// The same plane with a read-only pointer.
    pub fn as_const(&self) -> HostPlane {
        HostPlane { address: self.address.cast_const(), pitch: self.pitch, len: self.len }
    }
}

/// Copies `rows` rows of `row_bytes` bytes. The bytes between rows are neither read nor written.
///
/// # Safety
/// Both planes hold the rows and do not overlap. During the call, nobody else writes the rows of `from` or accesses the rows of
/// `to`.
pub unsafe fn copy_rows(from: &HostPlane, to: &HostPlaneMut, row_bytes: usize, rows: usize) {
    let dense = from.pitch == row_bytes && to.pitch == row_bytes;
    let (row_bytes, rows) = if dense { (row_bytes * rows, 1) } else { (row_bytes, rows) };
    debug_assert!(rows == 0 || (rows - 1) * from.pitch + row_bytes <= from.len, "{from:?} ends before row {rows}");
    debug_assert!(rows == 0 || (rows - 1) * to.pitch + row_bytes <= to.len, "{to:?} ends before row {rows}");
    for y in 0..rows {
        // SAFETY: the caller guarantees that both planes hold row `y`, do not overlap, and are not accessed by anybody else.
        unsafe { from.row(y).copy_to_nonoverlapping(to.row(y), row_bytes) };
    }
}
