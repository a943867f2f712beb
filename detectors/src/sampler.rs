// SPDX-License-Identifier: MPL-2.0
//! Reads a small picture straight out of a frame: only the samples that it needs, and of these the upper 8 bits. A luma, RGB or grey
//! sample is the mean of four of the frame.

use gst_video::{VideoColorMatrix, VideoColorRange, VideoFormatFlags, VideoInfo};

/// Where the samples of a component lie in a frame's bytes: a place is the sum of its row's and its column's entry. If a sample is
/// read once, both entries are the same.
struct Places<'a> {
    data: &'a [u8],
    columns: Vec<[isize; 2]>,
    rows: Vec<[isize; 2]>,
    /// Where the upper 8 bits of a sample of more than 8 begin. Such a sample has two bytes, the lower one first.
    shift: Option<u32>,
}

impl Places<'_> {
    fn sample(&self, row: isize, column: isize) -> u8 {
        let place = (row + column) as usize;
        match self.shift {
            None => self.data[place],
            Some(shift) => (u16::from_le_bytes([self.data[place], self.data[place + 1]]) >> shift) as u8,
        }
    }

    fn mean(&self, rows: [isize; 2], x: usize) -> f32 {
        let sum = rows.iter().flat_map(|row| self.columns[x].map(|column| u32::from(self.sample(*row, column))));
        sum.sum::<u32>() as f32 * 0.25
    }
}

/// A function that writes a row of the small picture of this size: red, green and blue of each pixel, whole numbers from 0 to 255.
///
/// `data` has the frame's bytes, `planes` the offset and the stride of each plane. The picture that the caps describe begins at the
/// column and row `corner`. `None` if a sample would lie outside of the bytes.
pub fn sampler<'a>(
    info: &VideoInfo,
    data: &'a [u8],
    planes: &[(usize, i32)],
    corner: [u32; 2],
    searched: [usize; 2],
) -> Option<impl Fn(usize, &mut [f32]) + Sync + use<'a>> {
    let format = info.format_info();
    let is_yuv = format.flags().contains(VideoFormatFlags::YUV);
    let full = [info.width() as usize, info.height() as usize];
    let components = (0..if format.n_components() < 3 { 1 } else { 3 }).map(|c| {
        let (offset, stride) = *planes.get(format.plane()[c] as usize)?;
        let start = isize::try_from(offset).ok()?.checked_add(format.poffset()[c] as isize)?;
        // Eighths of a sample of the small picture.
        let shares = if full == searched || is_yuv && c > 0 { [4, 4] } else { [2, 6] };
        let places = |axis: usize, sub: u32, step: isize, start: isize| {
            let place = |i: usize, share| {
                let sample = (8 * i + share) * full[axis] / (8 * searched[axis]) + corner[axis] as usize;
                ((sample >> sub) as isize).checked_mul(step)?.checked_add(start)
            };
            (0..searched[axis]).map(|i| Some([place(i, shares[0])?, place(i, shares[1])?])).collect::<Option<Vec<_>>>()
        };
        let columns = places(0, format.w_sub()[c], format.pixel_stride()[c] as isize, 0)?;
        let rows = places(1, format.h_sub()[c], stride as isize, start)?;
        let depth = format.depth()[c];
        let shift = (depth > 8).then(|| format.shift()[c] + depth - 8);
        let after = usize::from(shift.is_some());
        // Places ascend or descend, so that all lie between those of the corners.
        let ends = |places: &[[isize; 2]]| Some([places.first()?[0], places.last()?[1]]);
        let (row_ends, column_ends) = (ends(&rows)?, ends(&columns)?);
        let is_inside = |row: isize, column: isize| {
            usize::try_from(row.checked_add(column)?).ok()?.checked_add(after).filter(|end| *end < data.len()).map(drop)
        };
        for row in row_ends {
            column_ends.iter().try_for_each(|column| is_inside(row, *column))?;
        }
        Some(Places { data, columns, rows, shift })
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
        for (x, output) in output.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let mean = |c: usize| components[c].mean(components[c].rows[y], x);
            let rgb = if is_yuv {
                let one =
                    |c: usize| f32::from(components[c].sample(components[c].rows[y][0], components[c].columns[x][0]));
                let (luma, u, v) = ((mean(0) - black) * luma, one(1) - 128., one(2) - 128.);
                [luma + a * v, luma + b * u + c * v, luma + d * u]
            } else if is_grey {
                [mean(0); 3]
            } else {
                [mean(0), mean(1), mean(2)]
            };
            // The network has learnt from bytes.
            *output = rgb.map(|value| f32::from(value as u8));
        }
    })
}
