// SPDX-License-Identifier: MPL-2.0
//! Reads a small picture directly from a frame. It reads only the samples that it needs, and only their upper 8 bits. A luma, RGB
//! or grey sample of the small picture is the mean of four samples of the frame, unless both pictures have the same size.

use gst_video::{VideoColorMatrix, VideoColorRange, VideoFormatFlags, VideoInfo};

/// The places in a frame's bytes of the samples of one component. A place is the sum of an entry of its row and an entry of its
/// column. If only one sample is read, both entries are equal.
struct Places<'a> {
    data: &'a [u8],
    columns: Vec<[usize; 2]>,
    rows: Vec<[usize; 2]>,
    /// The position of the upper 8 bits in a sample of more than 8 bits. Such a sample has two bytes, the least significant one
    /// first.
    shift: Option<u32>,
    is_mean: bool,
}

impl Places<'_> {
    /// Writes a row of samples. Each is a sample of the frame, or the mean of four samples.
    fn read(&self, y: usize, output: &mut [f32]) {
        let [above, below] = self.rows[y].map(|start| &self.data[start..]);
        match self.shift {
            None => self.mean(above, below, |row, column| row[column], output),
            Some(shift) => {
                let upper = |row: &[u8], column| (u16::from_le_bytes([row[column], row[column + 1]]) >> shift) as u8;
                self.mean(above, below, upper, output);
            }
        }
    }

    #[inline(always)]
    fn mean(&self, above: &[u8], below: &[u8], sample: impl Fn(&[u8], usize) -> u8, output: &mut [f32]) {
        let read = |row, column| u32::from(sample(row, column));
        for (output, [left, right]) in output.iter_mut().zip(&self.columns) {
            *output = if self.is_mean {
                (read(above, *left) + read(above, *right) + read(below, *left) + read(below, *right)) as f32 * 0.25
            } else {
                read(above, *left) as f32
            };
        }
    }
}

/// Returns a function that writes a row of a small picture of this size: red, green and blue of each pixel, whole numbers from 0
/// to 255.
///
/// `data` has the bytes of the frame, and `planes` the offset and the stride of each plane. The picture that the caps describe
/// begins in the frame at the column and row `corner`. The small picture shows the part `part` of it: column, row, width and
/// height. Returns `None` if a sample would lie outside of the bytes.
pub fn sampler<'a>(
    info: &VideoInfo,
    data: &'a [u8],
    planes: &[(usize, i32)],
    corner: [u32; 2],
    part: [u32; 4],
    size: [usize; 2],
) -> Option<impl Fn(usize, &mut [f32]) + Sync + use<'a>> {
    let format = info.format_info();
    let is_yuv = format.flags().contains(VideoFormatFlags::YUV);
    let first = [0, 1].map(|axis| corner[axis] as usize + part[axis] as usize);
    let full = [part[2] as usize, part[3] as usize];
    let components = (0..if format.n_components() < 3 { 1 } else { 3 }).map(|c| {
        let (offset, stride) = *planes.get(format.plane()[c] as usize)?;
        let start = isize::try_from(offset).ok()?.checked_add(format.poffset()[c] as isize)?;
        // The places at which the frame is read, in eighths of a sample of the small picture. If two samples of the frame are
        // equally near to a place, both are read, so that the small picture is not shifted.
        let shares = if full == size || is_yuv && c > 0 { [4, 4] } else { [2, 6] };
        let places = |axis: usize, sub: u32, step: isize, start: isize| {
            let place = |sample: usize| usize::try_from((sample as isize).checked_mul(step)?.checked_add(start)?).ok();
            let last = (first[axis] + full[axis] - 1) >> sub;
            let samples = |i: usize| {
                let [before, after] = shares.map(|share| (8 * i + share) * full[axis] + 8 * size[axis] * first[axis]);
                let one = (8 * size[axis]) << sub;
                Some([place(before.div_ceil(one) - 1)?, place((after / one).min(last))?])
            };
            (0..size[axis]).map(samples).collect::<Option<Vec<_>>>()
        };
        let columns = places(0, format.w_sub()[c], format.pixel_stride()[c] as isize, 0)?;
        let rows = places(1, format.h_sub()[c], stride as isize, start)?;
        let depth = format.depth()[c];
        let shift = (depth > 8).then(|| format.shift()[c] + depth - 8);
        let after = usize::from(shift.is_some());
        // Places ascend or descend, so all of them lie between the places of the corners.
        let ends = |places: &[[usize; 2]]| Some([places.first()?[0], places.last()?[1]]);
        let (row_ends, column_ends) = (ends(&rows)?, ends(&columns)?);
        let is_inside = |row: usize, column: usize| {
            row.checked_add(column)?.checked_add(after).filter(|end| *end < data.len()).map(drop)
        };
        for row in row_ends {
            column_ends.iter().try_for_each(|column| is_inside(row, *column))?;
        }
        let is_mean = columns.iter().chain(&rows).any(|[one, other]| one != other);
        Some(Places { data, columns, rows, shift, is_mean })
    });
    let components = components.collect::<Option<Vec<_>>>()?;

    let (colorimetry, is_grey) = (info.colorimetry(), components.len() == 1);
    let is_bt709 = colorimetry.matrix() == VideoColorMatrix::Bt709;
    let (red, blue): (f64, f64) = if is_bt709 { (0.2126, 0.0722) } else { (0.299, 0.114) };
    let is_full = colorimetry.range() == VideoColorRange::Range0_255;
    let (black, luma, chroma) = if is_full { (0., 1., 1.) } else { (16., 255. / 219., 255. / 224.) };
    // R = Y + a V, G = Y + b U + c V, B = Y + d U.
    let green = 1. - red - blue;
    let factors = [2. * (1. - red), -2. * (1. - blue) * blue / green, -2. * (1. - red) * red / green, 2. * (1. - blue)];
    let ([a, b, c, d], luma) = (factors.map(|factor| (chroma * factor) as f32), luma as f32);
    Some(move |y: usize, output: &mut [f32]| {
        let width = output.len() / 3;
        let mut rows = vec![0.; components.len() * width];
        for (places, row) in components.iter().zip(rows.chunks_exact_mut(width)) {
            places.read(y, row);
        }
        for (x, output) in output.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let one = |c: usize| rows[c * width + x];
            let rgb = if is_yuv {
                let (luma, u, v) = ((one(0) - black) * luma, one(1) - 128., one(2) - 128.);
                [luma + a * v, luma + b * u + c * v, luma + d * u]
            } else if is_grey {
                [one(0); 3]
            } else {
                [one(0), one(1), one(2)]
            };
            // The network was trained with whole numbers.
            *output = rgb.map(|value| f32::from(value as u8));
        }
    })
}
