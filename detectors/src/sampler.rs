// SPDX-License-Identifier: MPL-2.0
//! Reads a small picture straight out of a frame: only the samples that it needs. A luma, RGB or grey sample is the mean of four of
//! the frame.

use gst_video::{VideoFormatFlags, VideoFrameRef, VideoInfo, prelude::*};

/// Where the samples of a component lie: the byte in a row, and the row. If a sample is read once, both places are the same.
struct Places {
    columns: Vec<[usize; 2]>,
    rows: Vec<[usize; 2]>,
}

/// Reads pictures of one size from frames of one format.
pub struct Sampler {
    info: VideoInfo,
    searched: [usize; 2],
    corner: [usize; 2],
    is_yuv: bool,
    /// One for grey frames, else three.
    components: Vec<Places>,
    black: f32,
    luma: f32,
    /// What red, green and blue get of U and V: red of V, green of U and V, blue of U.
    chroma: [f32; 4],
}

impl Sampler {
    /// For frames whose picture begins at the column and row `corner`, and small pictures of the size `searched`.
    pub fn new(info: &VideoInfo, corner: [usize; 2], searched: [usize; 2]) -> Self {
        let format = info.format_info();
        let is_yuv = format.flags().contains(VideoFormatFlags::YUV);
        let colorimetry = info.colorimetry();
        let is_bt709 = colorimetry.matrix() == gst_video::VideoColorMatrix::Bt709;
        let (red, blue): (f64, f64) = if is_bt709 { (0.2126, 0.0722) } else { (0.299, 0.114) };
        let is_full = colorimetry.range() == gst_video::VideoColorRange::Range0_255;
        let (black, luma, chroma) = if is_full { (0., 1., 1.) } else { (16., 255. / 219., 255. / 224.) };
        // R = Y + a V, G = Y + b U + c V, B = Y + d U.
        let green = 1. - red - blue;
        let factors =
            [2. * (1. - red), -2. * (1. - blue) * blue / green, -2. * (1. - red) * red / green, 2. * (1. - blue)];
        let full = [info.width() as usize, info.height() as usize];
        let components = (0..if format.n_components() < 3 { 1 } else { 3 }).map(|c| {
            // Eighths of a sample of the small picture.
            let shares = if full == searched || is_yuv && c > 0 { [4, 4] } else { [2, 6] };
            let places = |axis: usize, sub: u32, step: usize| {
                let place =
                    |i, share| (((8 * i + share) * full[axis] / (8 * searched[axis]) + corner[axis]) >> sub) * step;
                (0..searched[axis]).map(|i| shares.map(|share| place(i, share))).collect()
            };
            Places {
                columns: places(0, format.w_sub()[c], format.pixel_stride()[c] as usize),
                rows: places(1, format.h_sub()[c], 1),
            }
        });
        let components = components.collect();
        let chroma = factors.map(|factor| (chroma * factor) as f32);
        Self { info: info.clone(), searched, corner, is_yuv, components, black, luma: luma as f32, chroma }
    }

    /// Whether it was made for this.
    pub fn is_for(&self, corner: [usize; 2], searched: [usize; 2]) -> bool {
        (self.corner, self.searched) == (corner, searched)
    }

    /// A function that writes a row of the small picture: red, green and blue of each pixel, whole numbers from 0 to 255. `None` if the
    /// frame is smaller than its caps say.
    pub fn rows<'a>(
        &'a self,
        frame: &'a VideoFrameRef<&gst::BufferRef>,
    ) -> Option<impl Fn(usize, &mut [f32]) + Sync + 'a> {
        let has = |axis: usize, side: u32, picture: u32| side as usize >= self.corner[axis] + picture as usize;
        if frame.format() != self.info.format()
            || !has(0, frame.width(), self.info.width())
            || !has(1, frame.height(), self.info.height())
        {
            return None;
        }
        let planes =
            (0..self.components.len() as u32).map(|c| Some((frame.comp_data(c).ok()?, frame.comp_stride(c) as usize)));
        let planes = planes.collect::<Option<Vec<_>>>()?;
        Some(move |y: usize, output: &mut [f32]| {
            // A grey sample is all three.
            let component = |c: usize| c.min(planes.len() - 1);
            let rows: [_; 3] = std::array::from_fn(|c| {
                let (data, stride) = planes[component(c)];
                self.components[component(c)].rows[y].map(|row| &data[row * stride..])
            });
            let mean = |c: usize, x: usize| {
                let [left, right] = self.components[component(c)].columns[x];
                let [upper, lower] = rows[c];
                let sum =
                    u32::from(upper[left]) + u32::from(upper[right]) + u32::from(lower[left]) + u32::from(lower[right]);
                sum as f32 * 0.25
            };
            let one = |c: usize, x: usize| f32::from(rows[c][0][self.components[c].columns[x][0]]) - 128.;
            for (x, output) in output.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                let rgb = if self.is_yuv {
                    let luma = (mean(0, x) - self.black) * self.luma;
                    let ([a, b, c, d], u, v) = (self.chroma, one(1, x), one(2, x));
                    [luma + a * v, luma + b * u + c * v, luma + d * u]
                } else {
                    [mean(0, x), mean(1, x), mean(2, x)]
                };
                // The network has learnt from bytes.
                *output = rgb.map(|value| f32::from(value as u8));
            }
        })
    }
}
