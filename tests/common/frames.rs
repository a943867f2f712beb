//! The oracle for a whole frame: splits its planes into channels and fields and blurs each by the plane oracle.

use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout, Split};
use gstcudagaussblur::filter::plan::{AlphaMode, Options};

use super::cases::axis;
use super::oracle::{Image, pixels};

/// One channel of one field of a plane: the position of its samples in the plane, and their meaning.
#[derive(Debug, Clone)]
pub struct Component {
    /// Samples per row of the plane, rows from one row of this field to the next, and the field's first row.
    row_samples: usize,
    row_step: usize,
    first_row: usize,
    /// The channel's first sample in a row, and the distance to its next one.
    offset: usize,
    step: usize,
    pub width: usize,
    pub height: usize,
    pub depth: u32,
    pub role: Role,
    pub scale: [f64; 2],
    /// Which of the fields or views of the plane it is.
    pub field: usize,
    /// Columns and rows of the plane before it.
    pub before: [usize; 2],
}

/// The channels of a plane, field by field.
pub fn components(layout: &PlaneLayout) -> Vec<Component> {
    let channels = usize::from(layout.channels);
    let (width, height) = (layout.width as usize, layout.height as usize);
    // First column and row, rows from one to the next, width and height.
    let parts = match layout.split {
        Split::Whole => vec![([0, 0], 1, [width, height])],
        Split::SideBySide => [0, width / 2].map(|x| ([x, 0], 1, [width / 2, height])).to_vec(),
        Split::TopBottom => [0, height / 2].map(|y| ([0, y], 1, [width, height / 2])).to_vec(),
        Split::Fields | Split::Rows => {
            [0, 1].map(|y| ([0, y], 2, [width, (height + 1 - y) / 2])).into_iter().take(height).collect()
        }
    };
    let mut components = Vec::new();
    for (field, (before, row_step, [width, height])) in parts.into_iter().enumerate() {
        for c in 0..channels {
            let [across, down] = layout.sigma_scale;
            let is_half = layout.split == Split::Fields;
            let pair = if layout.is_packed_422() { 2 } else { 1 };
            let mut component = Component {
                row_samples: layout.row_samples(),
                row_step,
                first_row: before[1],
                offset: before[0] / pair * channels + c,
                step: channels,
                width,
                height,
                depth: if layout.sample_layout == SampleLayout::Packed1010102 && c == 3 {
                    2
                } else {
                    u32::from(layout.depth)
                },
                role: layout.roles[c],
                scale: [across, if is_half { down / 2.0 } else { down }],
                field,
                before,
            };
            if let SampleLayout::Yuv422 { luma } = layout.sample_layout {
                match (c % 2 == usize::from(luma), c < 2) {
                    (true, true) => component.step = 2,
                    // The pair's second luma sample is part of the channel that starts with the first.
                    (true, false) => continue,
                    (false, _) => {
                        component.width = component.width.div_ceil(2);
                        component.scale[0] /= 2.0;
                    }
                }
            }
            components.push(component);
        }
    }
    components
}

impl Component {
    /// The index in the plane of the sample at (x, y).
    pub fn index(&self, x: usize, y: usize) -> usize {
        (self.first_row + y * self.row_step) * self.row_samples + self.offset + x * self.step
    }

    /// Whether the rows have one luma sample more than the picture, as odd rows of packed 4:2:2 do. It gets the blur of the
    /// position just beyond the edge.
    pub fn has_surplus(&self) -> bool {
        self.step == 2 && self.before[0] == 0 && self.offset + self.width * 2 < self.row_samples && self.width % 2 == 1
    }

    fn image(&self, plane: &[u16]) -> Image {
        let (width, height) = (self.width, self.height);
        let mut samples = Vec::with_capacity(width * height);
        // Of an iterator over both, optimised, valgrind says that it branches on what is not initialised.
        for y in 0..height {
            samples.extend((0..width).map(|x| plane[self.index(x, y)]));
        }
        Image { width, height, channels: 1, depth: self.depth, samples }
    }
}

/// Blurs a frame. `planes` holds the samples of each plane in memory order, without row padding and unused bits.
pub fn frame(options: &Options, components: &[Vec<Component>], planes: &[Vec<u16>]) -> Vec<Vec<u16>> {
    let mut blurred = planes.to_vec();
    for (plane, component) in components.iter().enumerate().flat_map(|(i, all)| all.iter().map(move |one| (i, one))) {
        let selected = match component.role {
            Role::Primary => options.planes.primary,
            Role::Chroma => options.planes.chroma,
            Role::Alpha => options.planes.alpha,
        };
        let mut image = component.image(&planes[plane]);
        if component.has_surplus() && selected {
            image = image.one_wider();
        }
        let alpha = components.iter().zip(planes).find_map(|(all, plane)| {
            let is_alpha = |other: &&Component| other.role == Role::Alpha && other.field == component.field;
            all.iter().find(is_alpha).map(|alpha| (alpha, alpha.image(plane)))
        });
        let axes = component.scale.map(|scale| axis(&options.params, scale));
        let out = match alpha.filter(|_| options.alpha == AlphaMode::Premultiply) {
            _ if !selected => image.clone(),
            None => image.blurred(&axes[0], &axes[1]),
            Some((alpha, over)) => {
                let over =
                    over.wide().under([0, 1].map(|axis| (alpha.scale[axis] / component.scale[axis]) as usize), &image);
                image.weighted(&over, component.role == Role::Alpha, &axes)
            }
        };
        for (y, x, _) in pixels(out.width, out.height, 1) {
            blurred[plane][component.index(x, y)] = out.samples[y * out.width + x];
        }
    }
    blurred
}
