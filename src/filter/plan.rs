// SPDX-License-Identifier: MPL-2.0
//! Plans: what is done with the planes of a frame, as a list of operations. A plan is made once for frames with the same layouts
//! and options. Either backend can execute it.

use std::ops::Range;

use crate::filter::frame::{Field, PlaneLayout, Role, SampleLayout};
use crate::filter::operation::{AlphaSource, Buffer, Channels, Operation, PlaneTaps, Resampling, View};
use crate::filter::wide::AxisBlur;
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
    /// No channel.
    pub const NONE: Self = Self { primary: false, chroma: false, alpha: false };

    fn with_roles(is_selected: impl Fn(Role) -> bool) -> Self {
        let [primary, chroma, alpha] = [Role::Primary, Role::Chroma, Role::Alpha].map(is_selected);
        Self { primary, chroma, alpha }
    }

    /// The channels that these planes have.
    pub fn of(planes: &[PlaneLayout]) -> Self {
        Self::with_roles(|role| planes.iter().any(|layout| layout.roles().contains(&role)))
    }

    /// The channels of either selection.
    pub fn union(self, other: Self) -> Self {
        Self::with_roles(|role| self.contains(role) || other.contains(role))
    }

    /// The names of the channels, as in `luma+chroma`; empty for none.
    pub fn names(self) -> String {
        let names = [(self.primary, "luma"), (self.chroma, "chroma"), (self.alpha, "alpha")];
        names.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect::<Vec<_>>().join("+")
    }

    /// The channels of this selection that are not in the other.
    pub fn without(self, other: Self) -> Self {
        Self::with_roles(|role| self.contains(role) && !other.contains(role))
    }

    /// Whether channels of this role are selected.
    pub fn contains(self, role: Role) -> bool {
        match role {
            Role::Primary => self.primary,
            Role::Chroma => self.chroma,
            Role::Alpha => self.alpha,
        }
    }

    /// A mask whose bit c says that channel c of planes with this layout is not selected.
    pub(super) fn passthrough_mask(self, layout: &PlaneLayout) -> u32 {
        let roles = layout.roles().iter().enumerate();
        roles.map(|(c, role)| u32::from(!self.contains(*role)) << c).sum()
    }
}

/// How alpha affects colour. docs/ARITHMETIC.md has the formulas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AlphaMode {
    /// Alpha does not affect colour: each channel is blurred independently.
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
    /// The channels that are blurred.
    pub planes: Selection,
    /// How alpha affects colour, in frames that have alpha.
    pub alpha: AlphaMode,
}

impl Options {
    /// Whether frames with these planes stay unchanged.
    pub fn is_passthrough(&self, planes: &[PlaneLayout]) -> bool {
        let selected = |layout: &PlaneLayout| layout.roles().iter().any(|role| self.planes.contains(*role));
        self.params.is_passthrough() || !planes.iter().any(selected)
    }

    /// The selected channels of these planes in which the blur can change a sample. It cannot change one if the weight outside of
    /// the centre taps is so small that rounding to the plane's depth keeps every sample.
    pub fn changed(&self, planes: &[PlaneLayout]) -> Selection {
        let is_changed = |layout: &PlaneLayout, role: Role| {
            let scales = [sigma_scale_of_rows(layout, role), layout.sigma_scale[1]];
            let centre: f64 = scales.iter().map(|scale| self.params.centre(*scale)).product();
            (1.0 - centre) * f64::from((1_u32 << layout.depth) - 1) >= 0.5
        };
        let changes = |role| planes.iter().any(|layout| layout.roles().contains(&role) && is_changed(layout, role));
        Selection::with_roles(|role| self.planes.contains(role) && changes(role))
    }
}

impl From<BlurParams> for Options {
    /// Blurs all channels, each independently.
    fn from(params: BlurParams) -> Self {
        Self { params, planes: Selection::ALL, alpha: AlphaMode::Straight }
    }
}

/// How the axes of a plane are blurred.
pub(super) struct PlaneAxes {
    pub rows: AxisBlur,
    pub columns: AxisBlur,
    /// The axis along rows for the chroma of packed 4:2:2. It equals `rows` for all other layouts.
    pub chroma_rows: AxisBlur,
}

impl PlaneAxes {
    /// The axes of a field with this layout.
    pub fn new(params: BlurParams, layout: &PlaneLayout) -> Self {
        let rows = |role| params.axis(sigma_scale_of_rows(layout, role));
        Self { rows: rows(Role::Primary), columns: params.axis(layout.sigma_scale[1]), chroma_rows: rows(Role::Chroma) }
    }
}

/// The σ scale along rows for channels of this role: that of the plane, or half of it for the chroma of packed 4:2:2.
fn sigma_scale_of_rows(layout: &PlaneLayout, role: Role) -> f64 {
    let is_halved = role == Role::Chroma && layout.is_packed_422();
    layout.sigma_scale[0] / f64::from(1 + u8::from(is_halved))
}

/// The operations that blur or cover frames with these layouts, in order. Operations of one stage follow each other and do not
/// depend on each other, so a backend may execute them together.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    layouts: Vec<PlaneLayout>,
    operations: Vec<Operation>,
    temporaries: Vec<PlaneLayout>,
    turns: Vec<Range<usize>>,
}

impl Plan {
    /// The plan that blurs frames with these layouts.
    pub fn new(options: Options, layouts: &[PlaneLayout]) -> Self {
        let mut plan = Self::empty(layouts);
        let has_alpha = |layout: &PlaneLayout| layout.roles().contains(&Role::Alpha);
        let alpha_plane = layouts.iter().position(has_alpha).filter(|_| options.alpha == AlphaMode::Premultiply);
        for (index, layout) in layouts.iter().enumerate() {
            let passthrough_mask = options.planes.passthrough_mask(layout);
            let is_copied =
                options.params.is_passthrough() || passthrough_mask.count_ones() == u32::from(layout.channels);
            for (of_plane, field) in layout.fields().enumerate() {
                let source = View { buffer: Buffer::Source(index), field };
                let destination = View { buffer: Buffer::Destination(index), field };
                if is_copied {
                    plan.operations.push(Operation::Copy { source, destination });
                    continue;
                }
                let axes = PlaneAxes::new(options.params, &field.layout);
                match alpha_plane {
                    Some(alpha_plane) => {
                        let alpha = alpha_source(layouts, alpha_plane, &field, of_plane);
                        plan.blur_premultiplied(source, destination, alpha, &axes, passthrough_mask);
                    }
                    None => {
                        plan.blur(source, destination, &axes);
                        if passthrough_mask != 0 {
                            let restore = Operation::RestoreChannels { source, destination, passthrough_mask };
                            plan.operations.push(restore);
                        }
                    }
                }
            }
        }
        plan.sort();
        plan
    }

    /// A plan without operations for frames with these layouts.
    pub(super) fn empty(layouts: &[PlaneLayout]) -> Self {
        Self { layouts: layouts.to_vec(), operations: Vec::new(), temporaries: Vec::new(), turns: Vec::new() }
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Sorts the operations by their stages.
    pub(super) fn sort(&mut self) {
        self.operations.sort_by_key(Operation::stage);
    }

    /// Adds a temporary with this layout. Returns the view of all of its rows.
    pub(super) fn add_temporary(&mut self, layout: PlaneLayout) -> View {
        self.temporaries.push(layout);
        View { buffer: Buffer::Temporary(self.temporaries.len() - 1), field: Field::whole(layout) }
    }

    /// Records that the last `count` temporaries belong to one Gaussian of a cover.
    pub(super) fn close_turn(&mut self, count: usize) {
        self.turns.push(self.temporaries.len() - count..self.temporaries.len());
    }

    /// Adds a temporary of 16-bit samples with this width, height and number of channels. The other values are those of `like`.
    fn temporary(&mut self, like: &PlaneLayout, (width, height): (u32, u32), channels: u8) -> View {
        let (depth, sample_layout) = (16, SampleLayout::LsbAligned);
        self.add_temporary(PlaneLayout { width, height, channels, depth, sample_layout, ..*like })
    }

    /// Adds the operations that blur a plane, with each axis in its form. Luma and chroma of packed 4:2:2 are blurred as separate
    /// planes if either needs a level.
    fn blur(&mut self, source: View, destination: View, axes: &PlaneAxes) {
        let PlaneAxes { rows, columns, chroma_rows } = axes;
        let needs_level = |rows: &AxisBlur| !rows.levels().is_empty() || !columns.levels().is_empty();
        let is_packed = source.field.layout.is_packed_422();
        if !is_packed && needs_level(rows) {
            return self.blur_wide(source, destination, Channels::All, rows, columns);
        }
        if is_packed && needs_level(chroma_rows) {
            self.blur_wide(source, destination, Channels::Chroma, chroma_rows, columns);
        } else {
            // Luma that is blurred in the wide form is written after this operation.
            let luma = if needs_level(rows) { Taps::identity() } else { rows.taps.clone() };
            let taps = PlaneTaps { rows: luma, columns: columns.taps.clone(), chroma_rows: chroma_rows.taps.clone() };
            self.operations.push(Operation::Blur { source, destination, taps });
        }
        if is_packed && needs_level(rows) {
            self.blur_wide(source, destination, Channels::Luma, rows, columns);
        }
    }

    /// Adds the operations that decimate a plane level by level, blur the smallest plane, and interpolate it level by level.
    fn blur_wide(&mut self, source: View, destination: View, channels: Channels, rows: &AxisBlur, columns: &AxisBlur) {
        let full = source.field.layout;
        let PlaneLayout { mut width, mut height, channels: channel_count, .. } = channels.part_of(&full);
        let mut planes = vec![source];
        let levels = rows.levels().len().max(columns.levels().len());
        let resampling = |level: usize, source, destination| Resampling {
            source,
            destination,
            factors: [rows.factor(level), columns.factor(level)],
            channels: if level == 0 { channels } else { Channels::All },
            level: level as u8,
        };
        for level in 0..levels {
            (width, height) = (rows.factor(level).decimated(width), columns.factor(level).decimated(height));
            let small = self.temporary(&full, (width, height), channel_count);
            self.operations.push(Operation::Decimate(resampling(level, planes[level], small)));
            planes.push(small);
        }
        let mut blurred = self.temporary(&full, (width, height), channel_count);
        let [rows_taps, columns_taps] = [rows, columns].map(|axis| axis.taps.clone());
        let taps = PlaneTaps { chroma_rows: rows_taps.clone(), rows: rows_taps, columns: columns_taps };
        self.operations.push(Operation::Blur { source: planes[levels], destination: blurred, taps });
        for level in (0..levels).rev() {
            let PlaneLayout { width, height, .. } = planes[level].field.layout;
            let larger = match level {
                0 => destination,
                _ => self.temporary(&full, (width, height), channel_count),
            };
            self.operations.push(Operation::Interpolate(resampling(level, blurred, larger)));
            blurred = larger;
        }
    }

    fn blur_premultiplied(
        &mut self,
        source: View,
        destination: View,
        alpha: AlphaSource,
        axes: &PlaneAxes,
        passthrough_mask: u32,
    ) {
        let layout = source.field.layout;
        let channels = layout.channels + u8::from(matches!(alpha, AlphaSource::Plane { .. }));
        let [premultiplied, blurred] =
            [(); 2].map(|()| self.temporary(&layout, (layout.width, layout.height), channels));
        self.operations.push(Operation::Premultiply { source, alpha, premultiplied });
        self.blur(premultiplied, blurred, axes);
        let unpremultiply =
            Operation::Unpremultiply { premultiplied: blurred, alpha, source, destination, passthrough_mask };
        self.operations.push(unpremultiply);
    }

    /// The layouts of the frames that the plan is for.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// The operations, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The layouts of the temporaries: the planes that operations need besides those of the frames.
    pub fn temporaries(&self) -> &[PlaneLayout] {
        &self.temporaries
    }

    /// For each Gaussian of a cover, the indices of its temporaries. If a backend computes the Gaussians one after the other,
    /// they can share the memory of all temporaries except those that are written to the frame at the end.
    pub fn turns(&self) -> &[Range<usize>] {
        &self.turns
    }

    /// Whether a frame can be processed in bands of rows. This requires that every operation computes its first rows from the
    /// first rows of its source.
    pub fn can_be_banded(&self) -> bool {
        use Operation::{Blur, Copy, Decimate, Interpolate};
        let is_by_rows =
            |operation: &Operation| matches!(operation, Copy { .. } | Blur { .. } | Decimate(_) | Interpolate(_));
        self.operations.iter().all(is_by_rows)
    }

    /// Whether the plan has a blur.
    pub fn blurs(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Operation::Blur { .. }))
    }

    /// Whether the plan blurs an axis in the wide form.
    pub fn is_wide(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Operation::Decimate(_)))
    }
}

/// Where the alpha of `field` is stored, if the plane `alpha_plane` has the alpha of the frame. `of_plane` is the index of the
/// field among the fields of its plane.
fn alpha_source(layouts: &[PlaneLayout], alpha_plane: usize, field: &Field, of_plane: usize) -> AlphaSource {
    if let Some(channel) = field.layout.roles().iter().position(|role| *role == Role::Alpha) {
        return AlphaSource::Channel(channel as u8);
    }
    let twin = layouts[alpha_plane].fields().nth(of_plane);
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
    use crate::filter::Factor;
    use crate::filter::frame::Split;

    fn options(sigma: f64) -> Options {
        BlurParams::new(sigma, 0).unwrap().into()
    }

    /// For each plane, the radius along rows of its blur; `None` if it is copied.
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
        assert_eq!(row_radii(options(3.0), &planes), [Some(12), Some(6)]);
        let pairs = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 1 }, ..PlaneLayout::new(9, 9, 4, 8) };
        let plan = Plan::new(options(3.0), &[pairs]);
        let [Operation::Blur { taps, .. }] = plan.operations() else { panic!("{plan:?}") };
        assert_eq!([&taps.rows, &taps.chroma_rows, &taps.columns].map(Taps::radius), [12, 6, 12]);
    }

    #[test]
    fn channels_that_are_not_selected_keep_their_values() {
        let only = |primary, chroma, alpha| Options { planes: Selection { primary, chroma, alpha }, ..options(3.0) };
        let planes = [plane(&[Role::Primary], 1.0), plane(&[Role::Chroma; 2], 0.5)];
        assert_eq!(row_radii(only(true, false, true), &planes), [Some(12), None]);
        assert_eq!(row_radii(only(false, true, true), &planes), [None, Some(6)]);
        assert_eq!(row_radii(options(0.0), &planes), [None, None]);
        let rgba = [plane(&[Role::Primary, Role::Primary, Role::Primary, Role::Alpha], 1.0)];
        assert_eq!(mask(only(true, true, false), &rgba), Some(0b1000));
        assert_eq!(mask(only(false, true, true), &rgba), Some(0b0111));
        let alpha_alone = only(false, false, true);
        assert!(alpha_alone.is_passthrough(&planes) && !alpha_alone.is_passthrough(&rgba));
        assert!(options(0.0).is_passthrough(&rgba) && !only(true, false, false).is_passthrough(&planes));
    }

    /// For each premultiplied plane, the source of its alpha and the layout of the premultiplied plane.
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

    /// Backends execute operations of one stage together.
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

    /// The operations of a plan as text, with the planes that they read and write.
    fn steps(options: Options, planes: &[PlaneLayout]) -> Vec<String> {
        let name = |buffer| match buffer {
            Buffer::Source(index) => format!("s{index}"),
            Buffer::Destination(index) => format!("d{index}"),
            Buffer::Temporary(index) => format!("t{index}"),
        };
        let step = |operation: &Operation| {
            let [from, to] = [operation.source(), operation.output()].map(|view| name(view.buffer));
            let of = |resampling: &Resampling| {
                let ([x, y], part) = (resampling.factors.map(Factor::get), resampling.channels);
                format!("{x}x{y} {part:?}").replace(" All", "")
            };
            match operation {
                Operation::Decimate(resampling) => format!("{from} down {} {to}", of(resampling)),
                Operation::Interpolate(resampling) => format!("{from} up {} {to}", of(resampling)),
                Operation::Blur { taps, .. } => {
                    format!("{from} blur {:?} {to}", [&taps.rows, &taps.columns, &taps.chroma_rows].map(Taps::radius))
                }
                _ => format!("{from} other {to}"),
            }
        };
        Plan::new(options, planes).operations().iter().map(step).collect()
    }

    #[test]
    fn wide_blurs_go_down_and_up_the_levels() {
        let rgba = [PlaneLayout::new(100, 50, 4, 8)];
        assert_eq!(
            steps(options(40.0), &rgba),
            ["s0 down 4x4 t0", "t0 down 4x4 t1", "t1 blur [9, 9, 9] t2", "t2 up 4x4 t3", "t3 up 4x4 d0"]
        );
        let plan = Plan::new(options(40.0), &rgba);
        let sizes: Vec<_> = plan.temporaries().iter().map(|t| (t.width, t.height, t.channels, t.depth)).collect();
        assert_eq!(sizes, [(32, 20, 4, 16), (15, 12, 4, 16), (15, 12, 4, 16), (32, 20, 4, 16)]);
        assert!(plan.is_wide() && plan.can_be_banded());
    }

    #[test]
    fn each_axis_chooses_its_form() {
        // The vertical σ of a field is half of the plane's.
        let fields = [PlaneLayout { split: Split::Fields, ..PlaneLayout::new(64, 64, 1, 8) }];
        let steps_of_a_field = |sigma| steps(options(sigma), &fields).len() / 2;
        assert_eq!([3.0, 5.0, 10.0].map(steps_of_a_field), [1, 3, 3]);
        assert!(steps(options(5.0), &fields)[0].contains("down 2x1"));
        // The horizontal σ of the chroma of packed 4:2:2 is half of luma's.
        let packed = |split| {
            let sample_layout = SampleLayout::Yuv422 { luma: 0 };
            [PlaneLayout { sample_layout, split, ..PlaneLayout::new(65, 64, 4, 8) }]
        };
        assert_eq!(
            steps(options(5.0), &packed(Split::Whole)),
            [
                "s0 down 1x2 Chroma t0",
                "s0 down 2x2 Luma t2",
                "t0 blur [10, 9, 10] t1",
                "t2 blur [9, 9, 9] t3",
                "t1 up 1x2 Chroma d0",
                "t3 up 2x2 Luma d0"
            ]
        );
        // Chroma is blurred directly. Luma is blurred in the wide form, and written over the luma of the direct blur.
        assert_eq!(steps(options(5.0), &packed(Split::Fields))[..2], ["s0 down 2x1 Luma t0", "s0 down 2x1 Luma t2"]);
        assert!(steps(options(5.0), &packed(Split::Fields)).contains(&"s0 blur [0, 10, 10] d0".to_owned()));
    }
}
