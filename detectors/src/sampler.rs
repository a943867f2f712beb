// SPDX-License-Identifier: MPL-2.0
//! Reads a small picture directly from a frame. It reads only the samples that it needs, and only their upper 8 bits. A luma, RGB
//! or grey sample of the small picture is the mean of four samples of the frame, or of sixteen if the small picture has a third of
//! the size or less, unless both pictures have the same size. Fewer samples would not average the noise of a dim picture.

use gst_video::{VideoColorMatrix, VideoColorRange, VideoFormatFlags, VideoInfo};

/// The places in a frame's bytes of the samples of one component. A place is the sum of an entry of its row and an entry of its
/// column.
struct Places<'a> {
    data: &'a [u8],
    /// For each sample of the small picture, `count` entries.
    columns: Vec<usize>,
    rows: Vec<usize>,
    count: usize,
    /// The position of the upper 8 bits in a sample of more than 8 bits. Such a sample has two bytes, the least significant one
    /// first.
    shift: Option<u32>,
}

impl Places<'_> {
    /// Writes a row of samples. Each is a sample of the frame, or the mean of several samples.
    fn read(&self, y: usize, output: &mut [f32]) {
        match self.count {
            1 => self.means::<1>(y, output),
            2 => self.means::<2>(y, output),
            _ => self.means::<4>(y, output),
        }
    }

    fn means<const N: usize>(&self, y: usize, output: &mut [f32]) {
        let rows = self.rows.as_chunks::<N>().0[y].map(|start| &self.data[start..]);
        match self.shift {
            None => self.mean(rows, |row, column| row[column], output),
            Some(shift) => {
                let upper = |row: &[u8], column| (u16::from_le_bytes([row[column], row[column + 1]]) >> shift) as u8;
                self.mean(rows, upper, output);
            }
        }
    }

    #[inline(always)]
    fn mean<const N: usize>(&self, rows: [&[u8]; N], sample: impl Fn(&[u8], usize) -> u8, output: &mut [f32]) {
        for (output, columns) in output.iter_mut().zip(self.columns.as_chunks::<N>().0) {
            let sum = |row| columns.iter().map(|column| u32::from(sample(row, *column))).sum::<u32>();
            *output = rows.iter().map(|row| sum(row)).sum::<u32>() as f32 / (N * N) as f32;
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
        let shares: &[usize] = match (0..2).map(|axis| full[axis] / size[axis]).min()? {
            _ if full == size || is_yuv && c > 0 => &[4, 4],
            0..3 => &[2, 6],
            _ => &[1, 3, 5, 7],
        };
        let places = |axis: usize, sub: u32, step: isize, start: isize| {
            let place = |sample: usize| usize::try_from((sample as isize).checked_mul(step)?.checked_add(start)?).ok();
            let last = (first[axis] + full[axis] - 1) >> sub;
            let one = (8 * size[axis]) << sub;
            let sample = |i: usize, number: usize| {
                let at = (8 * i + shares[number]) * full[axis] + 8 * size[axis] * first[axis];
                place(if 2 * number < shares.len() { at.div_ceil(one) - 1 } else { (at / one).min(last) })
            };
            (0..size[axis] * shares.len())
                .map(|i| sample(i / shares.len(), i % shares.len()))
                .collect::<Option<Vec<_>>>()
        };
        let mut columns = places(0, format.w_sub()[c], format.pixel_stride()[c] as isize, 0)?;
        let mut rows = places(1, format.h_sub()[c], stride as isize, start)?;
        let mut count = shares.len();
        if columns.chunks(count).chain(rows.chunks(count)).all(|same| same.iter().all(|place| *place == same[0])) {
            columns = columns.into_iter().step_by(count).collect();
            rows = rows.into_iter().step_by(count).collect();
            count = 1;
        }
        let depth = format.depth()[c];
        let shift = (depth > 8).then(|| format.shift()[c] + depth - 8);
        let after = usize::from(shift.is_some());
        // Places ascend or descend, so all of them lie between the places of the corners.
        let ends = |places: &[usize]| Some([*places.first()?, *places.last()?]);
        let (row_ends, column_ends) = (ends(&rows)?, ends(&columns)?);
        let is_inside = |row: usize, column: usize| {
            row.checked_add(column)?.checked_add(after).filter(|end| *end < data.len()).map(drop)
        };
        for row in row_ends {
            column_ends.iter().try_for_each(|column| is_inside(row, *column))?;
        }
        Some(Places { data, columns, rows, count, shift })
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
