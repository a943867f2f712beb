// SPDX-License-Identifier: MPL-2.0
//! What is done with the planes of a frame: a list of operations, made once for frames of the same layouts and options and
//! executed by either backend.

use crate::filter::frame::{Field, PlaneLayout, Role, SampleLayout};
use crate::filter::{BlurParams, Taps};

/// Which channels are blurred; the others keep their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Luma, grey, red, green and blue.
    pub primary: bool,
    /// Colour difference.
    pub chroma: bool,
    /// Opacity.
    pub alpha: bool,
}

impl Selection {
    /// All channels.
    pub const ALL: Self = Self { primary: true, chroma: true, alpha: true };

    fn contains(self, role: Role) -> bool {
        match role {
            Role::Primary => self.primary,
            Role::Chroma => self.chroma,
            Role::Alpha => self.alpha,
        }
    }
}

/// How alpha affects colour. docs/ARITHMETIC.md has the formulas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AlphaMode {
    /// Not at all: each channel is blurred independently.
    #[default]
    Straight,
    /// Colour is premultiplied by alpha, blurred and unpremultiplied, so that the colour of transparent pixels does not bleed.
    Premultiply,
}

/// How a frame is blurred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The Gaussian.
    pub params: BlurParams,
    /// Which channels are blurred.
    pub planes: Selection,
    /// How alpha affects colour, in frames that have alpha.
    pub alpha: AlphaMode,
}

impl Options {
    /// Whether frames of these planes are left unchanged.
    pub fn is_passthrough(&self, planes: &[PlaneLayout]) -> bool {
        let selected = |layout: &PlaneLayout| layout.roles().iter().any(|role| self.planes.contains(*role));
        self.params.is_passthrough() || !planes.iter().any(selected)
    }
}

impl From<BlurParams> for Options {
    /// All channels, each blurred independently.
    fn from(params: BlurParams) -> Self {
        Self { params, planes: Selection::ALL, alpha: AlphaMode::Straight }
    }
}

/// The taps for one plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneTaps {
    /// Along rows.
    pub rows: Taps,
    /// Along columns.
    pub columns: Taps,
    /// Along rows for the chroma of packed 4:2:2, in pairs of pixels; equal to `rows` for all other layouts.
    pub chroma_rows: Taps,
}

impl PlaneTaps {
    fn new(params: BlurParams, layout: &PlaneLayout) -> Self {
        let [horizontal, vertical] = layout.sigma_scale;
        let chroma = if let SampleLayout::Yuv422 { .. } = layout.sample_layout { horizontal / 2.0 } else { horizontal };
        Self { rows: params.taps(horizontal), columns: params.taps(vertical), chroma_rows: params.taps(chroma) }
    }
}

/// A plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// This plane of the frame that is read.
    Source(usize),
    /// This plane of the frame that is written.
    Destination(usize),
    /// This one of [`Plan::temporaries`].
    Temporary(usize),
}

/// The rows of a plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The plane.
    pub buffer: Buffer,
    /// Its rows.
    pub field: Field,
}

/// Where the alpha of a plane's pixels is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlphaSource {
    /// In this channel of the plane itself.
    Channel(u8),
    /// In a plane of its own.
    Plane {
        /// The rows that belong to the colour plane's.
        view: View,
        /// log2 of the colour plane's subsampling relative to the alpha plane, along x and y.
        subsampling: [u32; 2],
    },
}

/// One step of a plan. All views of an operation have the same number of rows, apart from the alpha plane's.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Copies rows, padding bits included.
    Copy {
        /// Read.
        source: View,
        /// Written.
        destination: View,
    },
    /// Writes colour times alpha, 16 bits a sample, and alpha unchanged. If alpha is in a plane of its own, it becomes the
    /// last channel.
    Premultiply {
        /// Read.
        source: View,
        /// The alpha.
        alpha: AlphaSource,
        /// Written, a temporary.
        premultiplied: View,
    },
    /// Blurs rows, then columns.
    Blur {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// The taps of both passes.
        taps: PlaneTaps,
    },
    /// Divides blurred colour by blurred alpha and writes it at the destination's depth. Where the blurred alpha is 0, the
    /// source's colour is kept.
    Unpremultiply {
        /// Read, a temporary.
        premultiplied: View,
        /// The alpha of the source.
        alpha: AlphaSource,
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Copies single channels back from the source, after all channels were blurred.
    RestoreChannels {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
}

impl Operation {
    /// Rows above and below its own that it reads.
    pub fn row_halo(&self) -> usize {
        if let Self::Blur { taps, .. } = self { taps.columns.radius() } else { 0 }
    }

    /// What it writes.
    pub fn output(&self) -> View {
        match self {
            Self::Premultiply { premultiplied, .. } => *premultiplied,
            Self::Copy { destination, .. }
            | Self::Blur { destination, .. }
            | Self::Unpremultiply { destination, .. }
            | Self::RestoreChannels { destination, .. } => *destination,
        }
    }

    /// The position of its kind in a plan.
    fn stage(&self) -> u8 {
        match self {
            Self::Copy { .. } => 0,
            Self::Premultiply { .. } => 1,
            Self::Blur { .. } => 2,
            Self::Unpremultiply { .. } | Self::RestoreChannels { .. } => 3,
        }
    }

    /// Whether `self` and `other` are of the same stage of a plan, so that neither reads what the other writes.
    pub fn is_independent_of(&self, other: &Self) -> bool {
        self.stage() == other.stage()
    }
}

/// The operations that blur frames of these layouts, in order. Operations of one kind follow each other and are independent of
/// one another, so a backend may execute them together.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    layouts: Vec<PlaneLayout>,
    operations: Vec<Operation>,
    temporaries: Vec<PlaneLayout>,
}

impl Plan {
    /// The plan for frames of these planes.
    pub fn new(options: Options, layouts: &[PlaneLayout]) -> Self {
        let mut plan = Self { layouts: layouts.to_vec(), operations: Vec::new(), temporaries: Vec::new() };
        let has_alpha = |layout: &PlaneLayout| layout.roles().contains(&Role::Alpha);
        let alpha_plane = layouts.iter().position(has_alpha).filter(|_| options.alpha == AlphaMode::Premultiply);
        for (index, layout) in layouts.iter().enumerate() {
            let is_kept = |c: usize| u32::from(!options.planes.contains(layout.roles[c])) << c;
            let passthrough_mask: u32 = (0..layout.roles().len()).map(is_kept).sum();
            let is_copied =
                options.params.is_passthrough() || passthrough_mask.count_ones() == u32::from(layout.channels);
            for field in layout.fields() {
                let source = View { buffer: Buffer::Source(index), field };
                let destination = View { buffer: Buffer::Destination(index), field };
                if is_copied {
                    plan.operations.push(Operation::Copy { source, destination });
                    continue;
                }
                let taps = PlaneTaps::new(options.params, &field.layout);
                match alpha_plane {
                    Some(alpha_plane) => {
                        let alpha = alpha_source(layouts, alpha_plane, &field);
                        plan.blur_premultiplied(source, destination, alpha, taps, passthrough_mask);
                    }
                    None => {
                        plan.operations.push(Operation::Blur { source, destination, taps });
                        if passthrough_mask != 0 {
                            let restore = Operation::RestoreChannels { source, destination, passthrough_mask };
                            plan.operations.push(restore);
                        }
                    }
                }
            }
        }
        plan.operations.sort_by_key(Operation::stage);
        plan
    }

    fn blur_premultiplied(
        &mut self,
        source: View,
        destination: View,
        alpha: AlphaSource,
        taps: PlaneTaps,
        passthrough_mask: u32,
    ) {
        let layout = source.field.layout;
        let channels = layout.channels + u8::from(matches!(alpha, AlphaSource::Plane { .. }));
        let layout = PlaneLayout { channels, depth: 16, sample_layout: SampleLayout::LsbAligned, ..layout };
        let [premultiplied, blurred] = [(); 2].map(|()| {
            self.temporaries.push(layout);
            let field = Field { layout, first_row: 0, step: 1 };
            View { buffer: Buffer::Temporary(self.temporaries.len() - 1), field }
        });
        self.operations.extend([
            Operation::Premultiply { source, alpha, premultiplied },
            Operation::Blur { source: premultiplied, destination: blurred, taps },
            Operation::Unpremultiply { premultiplied: blurred, alpha, source, destination, passthrough_mask },
        ]);
    }

    /// The layouts of the frames that it is for.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// The operations, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The planes that operations need beside those of the frames.
    pub fn temporaries(&self) -> &[PlaneLayout] {
        &self.temporaries
    }

    /// Whether a frame can be processed in bands of rows: every operation writes the destination once, from source rows within
    /// its halo.
    pub fn can_be_banded(&self) -> bool {
        self.operations.iter().all(|operation| matches!(operation, Operation::Copy { .. } | Operation::Blur { .. }))
            && self.temporaries.is_empty()
    }
}

/// Where the alpha for a field is, if this plane holds the frame's alpha.
fn alpha_source(layouts: &[PlaneLayout], alpha_plane: usize, field: &Field) -> AlphaSource {
    if let Some(channel) = field.layout.roles().iter().position(|role| *role == Role::Alpha) {
        return AlphaSource::Channel(channel as u8);
    }
    let twin = layouts[alpha_plane].fields().nth(field.first_row);
    let twin = twin.expect("the alpha plane has as many fields as the others");
    let ratio = |axis: usize| twin.layout.sigma_scale[axis] / field.layout.sigma_scale[axis];
    AlphaSource::Plane {
        view: View { buffer: Buffer::Source(alpha_plane), field: twin },
        subsampling: [0, 1].map(|axis| ratio(axis).log2().round() as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sigma: f64) -> Options {
        BlurParams::new(sigma, 0).unwrap().into()
    }

    /// The radius along rows of every blur, `None` for a copy.
    fn row_radii(options: Options, planes: &[PlaneLayout]) -> Vec<Option<usize>> {
        let mut radii = vec![None; planes.len()];
        for operation in Plan::new(options, planes).operations() {
            if let Operation::Blur { destination: View { buffer: Buffer::Destination(plane), .. }, taps, .. } =
                operation
            {
                radii[*plane] = Some(taps.rows.radius());
            }
        }
        radii
    }

    fn mask(options: Options, planes: &[PlaneLayout]) -> Option<u32> {
        Plan::new(options, planes).operations().iter().find_map(|operation| match operation {
            Operation::RestoreChannels { passthrough_mask, .. } => Some(*passthrough_mask),
            _ => None,
        })
    }

    fn plane(roles: &[Role], scale: f64) -> PlaneLayout {
        let side = (64.0 * scale) as u32;
        let mut layout = PlaneLayout { sigma_scale: [scale; 2], ..PlaneLayout::new(side, side, roles.len() as u8, 8) };
        layout.roles[..roles.len()].copy_from_slice(roles);
        layout
    }

    #[test]
    fn chroma_is_blurred_by_its_own_scale() {
        let planes = [plane(&[Role::Primary], 1.0), plane(&[Role::Chroma; 2], 0.5)];
        assert_eq!(row_radii(options(4.0), &planes), [Some(16), Some(8)]);
        let pairs = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 1 }, ..PlaneLayout::new(9, 9, 4, 8) };
        let plan = Plan::new(options(4.0), &[pairs]);
        let [Operation::Blur { taps, .. }] = plan.operations() else { panic!("{plan:?}") };
        assert_eq!([&taps.rows, &taps.chroma_rows, &taps.columns].map(Taps::radius), [16, 8, 16]);
    }

    #[test]
    fn channels_that_are_not_selected_keep_their_values() {
        let only = |primary, chroma, alpha| Options { planes: Selection { primary, chroma, alpha }, ..options(4.0) };
        let planes = [plane(&[Role::Primary], 1.0), plane(&[Role::Chroma; 2], 0.5)];
        assert_eq!(row_radii(only(true, false, true), &planes), [Some(16), None]);
        assert_eq!(row_radii(only(false, true, true), &planes), [None, Some(8)]);
        assert_eq!(row_radii(options(0.0), &planes), [None, None]);
        let rgba = [plane(&[Role::Primary, Role::Primary, Role::Primary, Role::Alpha], 1.0)];
        assert_eq!(mask(only(true, true, false), &rgba), Some(0b1000));
        assert_eq!(mask(only(false, true, true), &rgba), Some(0b0111));
        let alpha_alone = only(false, false, true);
        assert!(alpha_alone.is_passthrough(&planes) && !alpha_alone.is_passthrough(&rgba));
        assert!(options(0.0).is_passthrough(&rgba) && !options(4.0).is_passthrough(&planes));
    }

    /// The alpha source and the premultiplied layout of every plane.
    fn premultiplies(planes: &[PlaneLayout]) -> Vec<(AlphaSource, PlaneLayout)> {
        let options = Options { alpha: AlphaMode::Premultiply, ..options(4.0) };
        let premultiply = |operation: &Operation| match operation {
            Operation::Premultiply { alpha, premultiplied, .. } => Some((*alpha, premultiplied.field.layout)),
            _ => None,
        };
        Plan::new(options, planes).operations().iter().filter_map(premultiply).collect()
    }

    #[test]
    fn alpha_is_found_in_a_channel_or_in_its_own_plane() {
        let rgba = [plane(&[Role::Alpha, Role::Primary, Role::Primary, Role::Primary], 1.0)];
        let (alpha, layout) = premultiplies(&rgba)[0];
        assert_eq!((alpha, layout.channels, layout.depth), (AlphaSource::Channel(0), 4, 16));
        let planar = [plane(&[Role::Primary], 1.0), plane(&[Role::Chroma], 0.5), plane(&[Role::Alpha], 1.0)];
        let all = premultiplies(&planar);
        let apart = |alpha: AlphaSource, expected: [u32; 2]| {
            matches!(alpha, AlphaSource::Plane { view, subsampling }
                if view.buffer == Buffer::Source(2) && subsampling == expected)
        };
        assert!(apart(all[0].0, [0, 0]) && apart(all[1].0, [1, 1]), "{all:?}");
        assert_eq!(all[1].1.channels, 2);
        assert_eq!(all[2].0, AlphaSource::Channel(0));
        assert!(premultiplies(&[plane(&[Role::Primary; 3], 1.0)]).is_empty());
    }

    /// Backends execute runs of one kind together.
    #[test]
    fn an_operation_reads_only_what_earlier_kinds_wrote() {
        let planar = [plane(&[Role::Primary], 1.0), plane(&[Role::Chroma], 0.5), plane(&[Role::Alpha], 1.0)];
        let selection = Selection { primary: true, chroma: false, alpha: true };
        let options = Options { alpha: AlphaMode::Premultiply, planes: selection, ..options(4.0) };
        let plan = Plan::new(options, &planar);
        assert!(plan.operations().is_sorted_by_key(Operation::stage), "{plan:?}");
        assert!(!plan.can_be_banded() && Plan::new(BlurParams::new(4.0, 0).unwrap().into(), &planar).can_be_banded());
        let written: Vec<_> = plan.operations().iter().map(|operation| operation.output().buffer).collect();
        assert!((1..written.len()).all(|i| !written[..i].contains(&written[i])), "{written:?}");
    }
}
