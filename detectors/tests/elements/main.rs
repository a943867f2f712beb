// SPDX-License-Identifier: MPL-2.0
//! The networks and the elements with their models. Without the models, which `scripts/models people` downloads, the tests are ignored.

mod centerface;
mod common;
mod layers;
mod selfiesegmentation;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Trial};

fn main() {
    let folder = std::env::var_os("CUDAGAUSSBLUR_MODELS").filter(|folder| !folder.is_empty());
    let folder =
        folder.map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/models")), PathBuf::from);
    // selfiesegmentation looks for its second model nowhere else.
    // SAFETY: the process has one thread.
    unsafe { std::env::set_var("CUDAGAUSSBLUR_MODELS", &folder) };
    macro_rules! trials {
        ($path:expr, $has_model:expr, $($test:path),* $(,)?) => {
            vec![$({
                let path: &Path = $path;
                let path = path.to_owned();
                // Both elements have tests of the same names.
                let (module, name) = stringify!($test).rsplit_once("::").expect("a test is in a module");
                let run = move || {
                    $test(&path);
                    Ok(())
                };
                Trial::test(format!("{}::{}", module.trim(), name.trim()), run).with_ignored_flag(!$has_model)
            }),*]
        };
    }
    let model = folder.join("centerface.onnx");
    let has_faces = model.exists();
    let faces = trials![
        &model,
        has_faces,
        layers::layers_of_centerface_are_as_onnx_runtime_has_them,
        layers::division_of_the_work_changes_no_bit,
        centerface::faces_are_found_in_every_format_and_size,
        centerface::the_picture_is_where_a_crop_meta_says,
        centerface::one_frame_in_so_many_is_searched_and_four_a_second,
        centerface::a_frame_after_a_new_face_is_searched,
        centerface::small_faces_are_found_at_twice_the_size_and_around_their_place,
        centerface::small_faces_of_a_crowd_and_in_motion_are_found_in_every_search,
        centerface::frames_that_others_hold_are_neither_copied_nor_changed,
        centerface::the_latency_grows_by_the_time_of_searches_once_a_second_at_most,
        centerface::pictures_among_the_tags_are_dropped,
        centerface::properties_have_ranges,
        centerface::a_frame_that_is_too_short_ends_the_stream_with_an_error,
        centerface::searches_that_take_too_long_are_warned_of,
    ];
    let has_people = ["selfie_segmentation_landscape.tflite", "selfie_segmentation.tflite"]
        .iter()
        .all(|name| folder.join(name).exists());
    let people = trials![
        &folder,
        has_people,
        layers::layers_of_segmentation_are_as_litert_has_them,
        layers::division_of_the_work_changes_no_bit_of_segmentation,
        selfiesegmentation::a_person_is_found_in_every_format_and_size,
        selfiesegmentation::the_picture_is_where_a_crop_meta_says,
        selfiesegmentation::one_frame_in_so_many_is_searched_and_four_a_second,
        selfiesegmentation::frames_that_others_hold_are_neither_copied_nor_changed,
        selfiesegmentation::two_small_persons_are_found_by_their_faces,
        selfiesegmentation::the_box_follows_the_mask_when_faces_are_not_found,
        selfiesegmentation::regions_without_a_label_are_no_faces,
        selfiesegmentation::a_false_face_hides_nobody_for_more_than_a_second,
        selfiesegmentation::people_are_followed_through_lost_frames,
        selfiesegmentation::frames_without_faces_are_counted,
        selfiesegmentation::the_latency_grows_by_the_time_of_searches_once_a_second_at_most,
        selfiesegmentation::pictures_among_the_tags_are_dropped,
        selfiesegmentation::properties_have_ranges,
        selfiesegmentation::a_frame_that_is_too_short_ends_the_stream_with_an_error,
        selfiesegmentation::searches_that_take_too_long_are_warned_of,
    ];
    libtest_mimic::run(&Arguments::from_args(), faces.into_iter().chain(people).collect()).exit();
}
