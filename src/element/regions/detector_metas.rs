// SPDX-License-Identifier: MPL-2.0
//! Reads the detections that detectors attached to a buffer, by GstVideoRegionOfInterestMeta and
//! GstAnalyticsRelationMeta. Metas are never removed.

use super::analytics::{self, Analytics};
use super::mask_buffers::time_of;
use super::settings::RegionSources;
use crate::filter::regions::Area;
use crate::regions::detection::{Detection, Found, Labels, Looked, confidence};
use crate::regions::masks::MaskReader;

/// The assumed duration of a frame whose duration is unknown, in nanoseconds.
const ASSUMED_FRAME: u64 = 40_000_000;

/// Reads the metas of the selected sources in the buffer of a frame. The frame is shown for `interval` nanoseconds, if
/// that is known. Masks cost time, so they are read only for objects that the labels `masked` select. Without `masked`
/// no mask is read.
pub fn read(buffer: &gst::BufferRef, interval: Option<u64>, sources: RegionSources, masked: Option<&Labels>) -> Found {
    let interval = interval.unwrap_or(ASSUMED_FRAME);
    let mut masks = masked.map(|labels| MaskReader::new(labels).of_frame(time_of(buffer), interval));
    let mut found = Found { looked: Looked::NotAsked, detections: Vec::new(), beyond: 0 };
    if sources.intersects(RegionSources::ROI | RegionSources::ANALYTICS) {
        found.looked = Looked::No;
    }
    if sources.contains(RegionSources::ROI) {
        found.detections.extend(buffer.iter_meta().map(|meta| roi_detection(&meta, masks.as_mut())));
        if !found.detections.is_empty() {
            found.looked = Looked::Yes;
        }
    }
    if sources.contains(RegionSources::ANALYTICS) {
        match analytics::read(buffer, masks.as_mut()) {
            Analytics::Absent => (),
            Analytics::Unreadable => found.looked = Looked::Unreadable,
            Analytics::Present(detections) => {
                found.looked = Looked::Yes;
                found.detections.extend(detections);
            }
        }
    }
    found
}

/// The detection of a region of interest. Its params are those of DL Streamer: the confidence and the rotation, in radians, in
/// `detection`, and the number of a tracker in `object_id`; and the mask in the field `sample` of `mask`.
fn roi_detection(
    meta: &gst::MetaRef<gst_video::VideoRegionOfInterestMeta>,
    masks: Option<&mut MaskReader<'_>>,
) -> Detection {
    let (x, y, width, height) = meta.rect();
    // SAFETY: the pointer is to the live meta that `meta` borrows.
    let label = unsafe { (*meta.as_ptr()).roi_type };
    let tracking_id = meta.param("object_id").and_then(|param| param.get::<i32>("id").ok());
    // The meta has no signed corner: producers wrap the one of an object that is partly left of or above the frame.
    let area = Area::from_corner(x.cast_signed().into(), y.cast_signed().into(), width.into(), height.into());
    let rotation = meta.param("detection").and_then(|param| param.get::<f64>("rotation").ok()).unwrap_or(0.0);
    let area = if rotation == 0.0 { area } else { area.around_rotated(rotation) };
    // Not the meta's own method, which has no answer for the quark 0.
    let label = analytics::label_text(label);
    // How the mask lies in a rotated box is not known.
    let mask = masks.filter(|masks| rotation == 0.0 && masks.labels.select(label.as_deref())).and_then(|masks| {
        let sample = meta.param("mask")?.get::<gst::Sample>("sample").ok()?;
        Some((masks.of_sample(&sample, area)?, masks.is_old(time_of(sample.buffer()?))))
    });
    let (mask, has_old_mask) = mask.map_or((None, false), |(mask, is_old)| (Some(mask), is_old));
    Detection {
        label,
        confidence: roi_confidence(meta),
        area,
        certain: rotation.is_finite().then_some(area),
        tracking_id: tracking_id.and_then(|id| u64::try_from(id).ok()),
        mask,
        has_old_mask,
    }
}

/// The confidence in the structure `detection`; without one, the highest of all structures, because classifiers add
/// their own and the object must not count for less than any of them says.
fn roi_confidence(meta: &gst_video::VideoRegionOfInterestMeta) -> Option<f32> {
    let of = |param: &gst::StructureRef| {
        let double = param.get::<f64>("confidence").ok();
        double.or_else(|| param.get::<f32>("confidence").ok().map(f64::from)).and_then(confidence)
    };
    match meta.param("detection") {
        Some(detection) => of(detection),
        None => meta.params().filter_map(of).max_by(f32::total_cmp),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mask_buffers::tests::image_of;
    use super::*;
    use crate::filter::weights::Mask;

    fn buffer_with(label: &str, rect: (u32, u32, u32, u32), params: &[gst::Structure]) -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let mut meta = gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
        params.iter().for_each(|param| meta.add_param(param.clone()));
        buffer
    }

    #[test]
    fn regions_of_interest_are_detections() {
        let buffer = buffer_with("face", (1, 2, 30, u32::MAX), &[]);
        let found = read(&buffer, None, RegionSources::ROI | RegionSources::ANALYTICS, None);
        let area = Area { left: 1.0, top: 2.0, right: 31.0, bottom: 2.0 + f64::from(u32::MAX) };
        let detection = Detection { certain: Some(area), ..Detection::new(Some("face".to_owned()), area) };
        assert_eq!(found, Found { looked: Looked::Yes, detections: vec![detection], beyond: 0 });

        let not_asked = Found { looked: Looked::NotAsked, detections: vec![], beyond: 0 };
        assert_eq!(read(&buffer, None, RegionSources::ZONES, None), not_asked);
        let none = Found { looked: Looked::No, detections: vec![], beyond: 0 };
        assert_eq!(read(&buffer, None, RegionSources::ANALYTICS | RegionSources::ZONES, None), none);
        assert_eq!(read(&gst::Buffer::new(), None, RegionSources::all(), None), none);
    }

    /// DL Streamer's oriented boxes have the box before the rotation about its centre.
    #[test]
    fn a_rotated_region_is_the_box_around_it() {
        gst::init().unwrap();
        let rotated = |angle: f64| {
            let param = gst::Structure::builder("detection").field("confidence", 0.9).field("rotation", angle).build();
            let buffer = buffer_with("plate", (20, 16, 20, 4), &[param]);
            read(&buffer, None, RegionSources::ROI, None).detections.remove(0)
        };
        assert_eq!(rotated(0.0).area, Area::from_corner(20.0, 16.0, 20.0, 4.0));
        let quarter = rotated(std::f64::consts::FRAC_PI_2);
        let expected = Area::from_corner(28.0, 8.0, 4.0, 20.0);
        assert!(quarter.area.edges().iter().zip(expected.edges()).all(|(edge, other)| (edge - other).abs() < 1e-9));
        assert_eq!(quarter.certain, Some(quarter.area));
        assert_eq!(rotated(f64::NAN).certain, None);
        assert!(rotated(f64::NAN).area.top < 8.1);
    }

    #[test]
    fn label_of_quark_0_is_unknown() {
        let mut buffer = buffer_with("face", (0, 0, 8, 8), &[]);
        for meta in buffer.get_mut().unwrap().iter_meta_mut::<gst_video::VideoRegionOfInterestMeta>() {
            let mut meta = meta;
            // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
            unsafe { (*meta.as_mut_ptr()).roi_type = 0 };
        }
        assert_eq!(read(&buffer, None, RegionSources::ROI, None).detections[0].label, None);
    }

    #[test]
    fn params_hold_confidence_and_tracking_id() {
        gst::init().unwrap();
        let confidence = |name: &str, value: f64| gst::Structure::builder(name).field("confidence", value).build();
        let float = gst::Structure::builder("mine").field("confidence", 0.25_f32).build();
        let text = gst::Structure::builder("detection").field("confidence", "high").build();
        let other = gst::Structure::builder("roi/x264enc").field("delta-qp", -0.5).build();
        for (params, expected) in [
            (vec![], None),
            (vec![other.clone()], None),
            (vec![confidence("detection", 0.75)], Some(0.75)),
            (vec![confidence("detection", 0.75), confidence("age", 0.9)], Some(0.75)),
            (vec![other, float.clone()], Some(0.25)),
            (vec![confidence("age", 0.125), float, confidence("gender", 0.5)], Some(0.5)),
            (vec![confidence("detection", f64::NAN)], None),
            (vec![confidence("detection", -1.0)], None),
            (vec![text], None),
        ] {
            let buffer = buffer_with("person", (0, 0, 8, 8), &params);
            assert_eq!(read(&buffer, None, RegionSources::ROI, None).detections[0].confidence, expected, "{params:?}");
        }
        for (id, expected) in [(17, Some(17)), (-1, None)] {
            let param = gst::Structure::builder("object_id").field("id", id).build();
            let buffer = buffer_with("person", (0, 0, 8, 8), &[param]);
            assert_eq!(read(&buffer, None, RegionSources::ROI, None).detections[0].tracking_id, expected);
        }
    }

    /// A buffer with a region of interest, whose mask is what `add` puts into a structure.
    fn buffer_with_mask(
        rect: (u32, u32, u32, u32),
        add: impl FnOnce(gst::structure::Builder) -> gst::structure::Builder,
    ) -> gst::Buffer {
        gst::init().unwrap();
        buffer_with("person", rect, &[add(gst::Structure::builder("mask")).build()])
    }

    fn gray(columns: u32, rows: u32) -> gst::Caps {
        gst::init().unwrap();
        let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8");
        caps.field("width", columns as i32).field("height", rows as i32).build()
    }

    fn sample(caps: Option<&gst::Caps>, bytes: Option<Vec<u8>>) -> gst::Sample {
        gst::init().unwrap();
        let buffer = bytes.map(gst::Buffer::from_mut_slice);
        let builder = gst::Sample::builder();
        let builder = if let Some(buffer) = &buffer { builder.buffer(buffer) } else { builder };
        if let Some(caps) = caps { builder.caps(caps).build() } else { builder.build() }
    }

    /// The detection that is read from a region of interest of 20×10 at (4,2).
    fn mask_of(sample: gst::Sample) -> Option<Mask> {
        let buffer = buffer_with_mask((4, 2, 20, 10), |param| param.field("sample", sample));
        let all = Labels::default();
        let mut found = read(&buffer, None, RegionSources::ROI, Some(&all));
        assert_eq!((found.looked, found.detections.len()), (Looked::Yes, 1));
        let area = Area { left: 4.0, top: 2.0, right: 24.0, bottom: 12.0 };
        assert_eq!((found.detections[0].area, found.detections[0].certain), (area, Some(area)));
        found.detections.remove(0).mask
    }

    #[test]
    fn regions_of_interest_have_masks() {
        let area = Area { left: 4.0, top: 2.0, right: 24.0, bottom: 12.0 };
        let mask = |columns, rows, samples: &[u8]| Mask::new(columns, rows, samples.to_vec(), area);
        // Rows of 4 need no padding; GStreamer pads those of 3 to 4.
        assert_eq!(mask_of(sample(Some(&gray(4, 1)), Some(vec![0, 128, 7, 255]))), mask(4, 1, &[0, 128, 7, 255]));
        assert_eq!(mask_of(sample(Some(&gray(3, 2)), Some((249..=255).collect()))), {
            mask(3, 2, &[249, 250, 251, 253, 254, 255])
        });
        let largest = vec![255; 4096 * 4096];
        assert_eq!(mask_of(sample(Some(&gray(4096, 4096)), Some(largest.clone()))), mask(4096, 4096, &largest));

        // Only where the labels select the object, and not at all without labels.
        let buffer = buffer_with_mask((4, 2, 20, 10), |param| {
            param.field("sample", sample(Some(&gray(4, 1)), Some(vec![255; 4])))
        });
        let has_mask = |labels: Option<&str>| {
            let labels = labels.map(Labels::parse);
            read(&buffer, None, RegionSources::ROI, labels.as_ref()).detections[0].mask.is_some()
        };
        assert_eq!([Some(""), Some("Person"), Some("face"), None].map(has_mask), [true, true, false, false]);
    }

    /// More than one frame older than the frame; the times of both are known.
    #[test]
    fn masks_of_earlier_frames_are_old() {
        gst::init().unwrap();
        const SECOND: u64 = 1_000_000_000;
        let has_old = |frame: Option<u64>, duration: Option<u64>, mask: Option<u64>, byte: u8| {
            let time = |time: Option<u64>| time.map(gst::ClockTime::from_nseconds);
            let mut samples = gst::Buffer::from_mut_slice(vec![byte; 4]);
            samples.get_mut().unwrap().set_pts(time(mask));
            let sample = gst::Sample::builder().buffer(&samples).caps(&gray(4, 1)).build();
            let mut buffer = buffer_with_mask((4, 2, 20, 10), |param| param.field("sample", sample));
            buffer.get_mut().unwrap().set_pts(time(frame));
            let mut found = read(&buffer, duration, RegionSources::ROI, Some(&Labels::default()));
            let detection = found.detections.remove(0);
            assert_eq!(detection.mask.is_some(), byte >= 128);
            detection.has_old_mask
        };
        let frame = 33_333_333;
        for (back, duration, is_old) in [
            (0, Some(frame), false),
            (frame + 1, Some(frame), false),
            (2 * frame, Some(frame), true),
            (SECOND, Some(frame), true),
            (40_000_000, None, false),
            (80_000_000, None, true),
            (80_000_000, Some(50_000_000), true),
            (80_000_000, Some(SECOND / 10), false),
        ] {
            assert_eq!(has_old(Some(SECOND), duration, Some(SECOND - back), 255), is_old, "{back} {duration:?}");
        }
        assert!(!has_old(Some(SECOND), Some(frame), None, 255), "unknown");
        assert!(!has_old(None, Some(frame), Some(0), 255), "unknown");
        assert!(!has_old(Some(SECOND), Some(frame), Some(5 * SECOND), 255), "later");
        assert!(!has_old(Some(0), Some(frame), Some(0), 255) && !has_old(Some(frame), Some(frame), Some(0), 255));
        assert!(!has_old(Some(SECOND), Some(frame), Some(0), 0), "no mask");
        assert!(!has_old(Some(SECOND), Some(u64::MAX - 1), Some(0), 255));
    }

    /// The object is then covered by its box.
    #[test]
    fn masks_that_cannot_be_read_are_none() {
        let full = || Some(vec![255; 64]);
        let other = |format: &str, columns: i32| {
            let caps = gst::Caps::builder("video/x-raw").field("format", format);
            caps.field("width", columns).field("height", 2).build()
        };
        for (sample, why) in [
            (sample(None, full()), "no caps"),
            (sample(Some(&gray(4, 2)), None), "no buffer"),
            (sample(Some(&gray(4, 2)), Some(vec![])), "an empty buffer"),
            (sample(Some(&gray(4, 2)), Some(vec![255; 7])), "a buffer that is too small"),
            (sample(Some(&gray(3, 2)), Some(vec![255; 6])), "rows without padding"),
            (sample(Some(&gray(0, 2)), full()), "no columns"),
            (sample(Some(&gray(4097, 1)), Some(vec![255; 4100])), "too many columns"),
            (sample(Some(&gray(1, 4097)), Some(vec![255; 4 * 4097])), "too many rows"),
            (sample(Some(&other("GRAY16_LE", 4)), full()), "16 bits"),
            (sample(Some(&other("I420", 4)), full()), "another format"),
            (sample(Some(&other("none", 4)), full()), "an unknown format"),
            (sample(Some(&other("GRAY8", -4)), full()), "a negative width"),
            (sample(Some(&gst::Caps::new_any()), full()), "any caps"),
            (sample(Some(&gst::Caps::new_empty()), full()), "empty caps"),
            (sample(Some(&gst::Caps::new_empty_simple("video/x-raw")), full()), "caps without a size"),
            (sample(Some(&gst::Caps::new_empty_simple("audio/x-raw")), full()), "audio"),
            (sample(Some(&gray(4, 2)), Some(vec![0; 8])), "no object"),
            (sample(Some(&gray(4, 2)), Some(vec![127; 8])), "nothing inside of an object"),
        ] {
            assert_eq!(mask_of(sample), None, "{why}");
        }
        type Add = fn(gst::structure::Builder) -> gst::structure::Builder;
        let adds: [Add; 3] =
            [|param| param, |param| param.field("sample", "text"), |param| param.field("sample", None::<gst::Sample>)];
        let all = Labels::default();
        for add in adds {
            let buffer = buffer_with_mask((4, 2, 20, 10), add);
            assert_eq!(read(&buffer, None, RegionSources::ROI, Some(&all)).detections[0].mask, None);
        }
        // The metas that say that a detector found nothing.
        let buffer = buffer_with_mask((0, 0, 0, 0), |param| {
            param.field("sample", sample(Some(&gray(4, 2)), Some(vec![255; 8])))
        });
        assert_eq!(read(&buffer, None, RegionSources::ROI, Some(&all)).detections[0].mask, None);
    }

    /// A sample whose buffer has a GstVideoMeta that says so.
    fn sample_with_meta(caps: &gst::Caps, size: [u32; 2], stride: i32, offset: usize, bytes: Vec<u8>) -> gst::Sample {
        let buffer = image_of(gst_video::VideoFormat::Gray8, size, offset, stride, bytes);
        gst::Sample::builder().buffer(&buffer).caps(caps).build()
    }

    #[test]
    fn rows_of_masks_are_where_the_video_meta_says() {
        let (two, area) = (gray(2, 2), Area { left: 4.0, top: 2.0, right: 24.0, bottom: 12.0 });
        let bytes = || (240..=255).collect::<Vec<u8>>();
        let read = |stride, offset| mask_of(sample_with_meta(&two, [2, 2], stride, offset, bytes()));
        assert_eq!(read(2, 0), Mask::new(2, 2, vec![240, 241, 242, 243], area));
        assert_eq!(read(13, 1), Mask::new(2, 2, vec![241, 242, 254, 255], area));
        for (stride, offset) in [(14, 1), (1, 0), (-2, 4), (2, 13), (2, usize::MAX), (i32::MAX, 0)] {
            assert_eq!(read(stride, offset), None, "{stride} {offset}");
        }
        for size in [[2, 1], [1, 2], [4, 4]] {
            assert_eq!(
                mask_of(sample_with_meta(&two, size, 4, 0, bytes())),
                None,
                "not the size of the caps: {size:?}"
            );
        }
        assert_eq!(mask_of(sample_with_meta(&gray(u16::MAX.into(), 2), [65535, 2], 65535, 0, bytes())), None);
    }

    /// All masks of a frame are limited together.
    #[test]
    fn more_samples_than_four_of_the_largest_masks_are_not_read() {
        let largest = sample(Some(&gray(4096, 4096)), Some(vec![255; 4096 * 4096]));
        let mut buffer = gst::Buffer::new();
        for _ in 0..6 {
            let mut meta = gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "a", (0, 0, 9, 9));
            meta.add_param(gst::Structure::builder("mask").field("sample", &largest).build());
        }
        let all = Labels::default();
        let found = read(&buffer, None, RegionSources::ROI, Some(&all));
        assert_eq!(found.detections.iter().filter(|detection| detection.mask.is_some()).count(), 4);
        assert_eq!(found.detections.len(), 6);
    }

    /// Whatever a producer writes, a detection stays one, and its mask has as many samples as it says.
    #[test]
    fn random_masks_are_read_or_refused() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
        };
        let all = Labels::default();
        let mut masks = 0;
        for _ in 0..2000 {
            let mut side = || [0, 1, 2, 3, 5, 64, 4096, 4097, 32768][random(9) as usize];
            let (caps, size) = (gray(side(), side()), [side(), side()]);
            let size = if random(2) == 0 { [1, 1].map(|_| random(8) as u32) } else { size };
            let caps = if random(2) == 0 { gray(size[0], size[1]) } else { caps };
            let stride = [size[0] as i32, random(100) as i32, -1, i32::MAX, 0][random(5) as usize];
            let offset = [0, random(80) as usize, usize::MAX][random(3) as usize];
            let bytes = vec![random(256) as u8; random(8192) as usize];
            let sample = match random(3) {
                0 => sample(Some(&caps), Some(bytes)),
                1 => sample_with_meta(&caps, size, stride, offset, bytes),
                _ => sample_with_meta(&caps, size, size[0] as i32, 0, bytes),
            };
            let edge = |random: &mut dyn FnMut(u64) -> u64| [0, 7, u32::MAX, 1 << 31][random(4) as usize];
            let rect = (edge(&mut random), edge(&mut random), edge(&mut random), edge(&mut random));
            let buffer = buffer_with_mask(rect, |param| param.field("sample", sample));
            let found = read(&buffer, None, RegionSources::ROI, Some(&all));
            assert_eq!((found.looked, found.detections.len()), (Looked::Yes, 1));
            if let Some(mask) = &found.detections[0].mask {
                assert_eq!(mask.area(), found.detections[0].area);
                assert!(mask.object().is_some());
                masks += 1;
            }
        }
        assert!(masks > 100, "{masks} of 2000 masks were read");
    }
}
