// SPDX-License-Identifier: MPL-2.0
//! Windows: the parts of a frame's planes whose blur is used, if that is not all of it. The last operation on a plane is
//! restricted to its window, those before it are not.

use super::tile_blur::TILE_STEP;
use crate::filter::frame::{Field, PlaneLayout, Region, SampleLayout};
use crate::filter::operation::{Channels, Resampling};
use crate::filter::plane::{Address, HostPlane, HostPlaneMut, PlaneMemory};
use crate::filter::regions::Rect;

/// Windows begin and end at multiples of so many pixels and rows: a multiple of every factor of a level, for pairs of
/// pixels too.
const STEP: u32 = 8;

/// The window of a field, in pixels and in rows of the field, extended to multiples of [`STEP`] within the field.
/// `window` is in pixels and rows of the plane.
pub fn of_field(field: &Field, window: Rect) -> Option<Rect> {
    let PlaneLayout { width, height, .. } = field.layout;
    let step = field.step as u32;
    let edges = |start: u32, end: u32, count: u32| [start / STEP * STEP, end.next_multiple_of(STEP).min(count)];
    let [x, right] = edges(window.x(), window.right(), width);
    let [y, bottom] = edges(window.y() / step, window.bottom().div_ceil(step), height);
    Rect::new(x, y, right.checked_sub(x)?, bottom.checked_sub(y)?)
}

/// The samples of a window in a row of this layout, from a multiple of [`TILE_STEP`] on, and its rows.
pub fn samples(layout: &PlaneLayout, window: Rect) -> Region {
    let sample = |x: u32| match layout.sample_layout {
        SampleLayout::Yuv422 { .. } => x.div_ceil(2) as usize * 4,
        _ => x as usize * usize::from(layout.channels),
    };
    let (x, right) = (sample(window.x()) / TILE_STEP * TILE_STEP, sample(window.right()));
    Region { x, y: window.y() as usize, width: right - x, height: window.height() as usize }
}

/// The interpolation of a window as one of smaller planes: that part of the small plane that the window is computed from,
/// and the window. `source` and `destination` are the planes of the views.
pub fn of_interpolation(
    resampling: &Resampling,
    window: Rect,
    source: HostPlane,
    destination: HostPlaneMut,
) -> (Resampling, HostPlane, HostPlaneMut) {
    let mut part = *resampling;
    let [small, large] = [&mut part.source, &mut part.destination].map(|view| &mut view.field.layout);
    let [across, down] = resampling.factors;
    // Bytes of the larger plane, and pixels of the planes that are resampled: chroma counts in pairs of pixels.
    let (bytes, pixels) = match resampling.channels {
        Channels::All => (window.x() as usize * large.pixel_bytes(), [window.x(), window.width()]),
        Channels::Luma => (window.x() as usize * 2, [window.x(), window.width()]),
        Channels::Chroma => (window.x() as usize * 2, [window.x() / 2, window.width().div_ceil(2)]),
    };
    // Windows begin at multiples of the factors, so that their first sample is interpolated with the taps of phase 0.
    let first = [pixels[0] / across.get(), window.y() / down.get()].map(|index| index as usize);
    let source = within(&source, first[1], first[0] * small.pixel_bytes());
    let destination = within(&destination, window.y() as usize, bytes);
    (small.width, small.height) = (across.decimated(pixels[1]), down.decimated(window.height()));
    (large.width, large.height) = (window.width(), window.height());
    (part, source, destination)
}

/// A plane from a row on, and from a byte of each row on.
fn within<A: Address>(plane: &PlaneMemory<A>, row: usize, bytes: usize) -> PlaneMemory<A> {
    let plane = plane.from_row(row);
    PlaneMemory { address: plane.address.offset_by(bytes), len: plane.len.saturating_sub(bytes), ..plane }
}
