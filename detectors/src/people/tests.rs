//! Compares the boxes in which people are searched, and the mask, with the comments of `people`.

use super::*;

const GRID: [usize; 2] = [100, 60];

#[test]
fn the_box_of_a_person_is_a_multiple_of_the_face() {
    let sides = |centre, face| Person::new(centre, face, None).sides(GRID);
    assert_eq!(sides([50., 30.], 4.), [40, 26, 60, 54]);
    // At the edges of the picture. The lower edge makes the box lower until it is a square, which then moves up.
    assert_eq!(sides([3., 2.], 4.), [0, 0, 20, 28]);
    assert_eq!(sides([50., 40.], 4.), [40, 36, 60, 60]);
    assert_eq!(sides([98., 58.], 4.), [80, 40, 100, 60]);
    assert_eq!(sides([-50., 300.], 4.), [0, 40, 20, 60]);
    // The largest face that does not fill the picture, and the smallest one that does.
    let fills = FILLS * 60.;
    assert_eq!(sides([50., 30.], fills), [17, 0, 83, 60]);
    assert_eq!(sides([50., 30.], fills + 0.01), [0, 0, 100, 60]);
    assert_eq!(sides([50., 30.], 0.01), [50, 30, 51, 31]);
    for i in 0..4000 {
        let (face, centre) = (0.005 * f64::from(i), [f64::from(i * 7 % 140) - 20., f64::from(i * 11 % 100) - 20.]);
        let [left, top, right, bottom] = sides(centre, face);
        assert!(left < right && right <= 100 && top < bottom && bottom <= 60, "{centre:?}, {face}");
    }
}

#[test]
fn faces_near_each_other_are_one_persons() {
    let face = Person::new([50., 30.], 4., None);
    let reach = SAME * 4.;
    for (dx, dy, is_same) in [
        (0., 0., true),
        (reach, -reach, true),
        (reach + 0.01, 0., false),
        (0., reach + 0.01, false),
        (-reach - 0.01, 0., false),
        (0., -reach - 0.01, false),
    ] {
        // The height of the smaller face is used.
        let large = Person::new([50. + dx, 30. + dy], 40., None);
        assert_eq!([large.is_same(&face), face.is_same(&large)], [is_same; 2], "{dx}, {dy}");
    }
}

#[test]
fn boxes_are_those_of_faces_and_of_all_if_no_face_was_found_for_long() {
    let at = |x: f64, face: f64, milliseconds| {
        Person::new([x, 20.], face, Some(gst::ClockTime::from_mseconds(milliseconds)))
    };
    let now = Some(gst::ClockTime::from_mseconds(2000));
    let whole = [0, 0, 100, 60];
    let sides = |faces: &[Person], followed: &[Person]| -> Vec<_> {
        boxes(faces.to_vec(), followed, GRID, now).into_iter().map(|(sides, people)| (sides, people.len())).collect()
    };
    let (face, near, far, old) = (at(20., 4., 2000), at(22., 4., 1500), at(70., 4., 1500), at(70., 4., 999));
    let of = |person: &Person| (person.sides(GRID), 1);
    assert_eq!(sides(&[], &[]), [(whole, 0)]);
    assert_eq!(sides(std::slice::from_ref(&face), &[near.clone(), far.clone()]), [of(&face), of(&far)]);
    // People who are followed at the same place are one person.
    assert_eq!(sides(&[], &[near.clone(), face.clone(), far.clone()]), [of(&near), of(&far)]);
    // No face was found for more than a second, or the time is unknown.
    assert_eq!(sides(&[], std::slice::from_ref(&old)), [(whole, 0), of(&old)]);
    assert_eq!(sides(std::slice::from_ref(&face), std::slice::from_ref(&old)), [of(&face), of(&old)]);
    assert_eq!(boxes(vec![face.clone()], &[], GRID, None)[0].0, whole);
    // A person who fills the picture is in the box of the whole picture.
    assert_eq!(sides(&[at(50., 30., 2000), face.clone()], &[]), [(whole, 1), of(&face)]);
    // If there are many people, the boxes are those of the largest faces and the whole picture.
    let many: Vec<_> = (0..MOST + 1).map(|i| at(if i == 0 { 2. } else { 60. }, 1. + i as f64 / 1000., 2000)).collect();
    let found = sides(&many, &[]);
    assert!(found[0].0 == whole && found.iter().map(|(_, people)| people).sum::<usize>() == MOST, "{found:?}");
    assert!(found.iter().all(|(sides, _)| *sides == whole || sides[0] > 20), "{found:?}");
}

/// A picture of zeros with a square of three by three samples that have this value.
fn spot(size: [usize; 2], [left, top]: [usize; 2], value: f32) -> Image {
    let mut image = Image::new(size, 0.);
    (top..top + 3).for_each(|y| image.row_mut(y)[left..left + 3].fill(value));
    image
}

#[test]
fn the_box_follows_what_the_model_finds() {
    let sides = [30, 20, 50, 40];
    let person = Person::new([40., 25.], 4., None);
    let first = person.clone().follow(&spot([20, 20], [5, 5], 0.9), sides, None).unwrap();
    assert_eq!((first.centre, first.face), ([40., 25.], 4.));
    let moved = |place, sides| first.clone().follow(&spot([20, 20], place, 0.8), sides, None).unwrap();
    let near = |person: &Person, centre: [f64; 2]| (0..2).all(|axis| (person.centre[axis] - centre[axis]).abs() < 1e-6);
    let second = moved([7, 4], sides);
    assert!(near(&second, [42., 24.]), "{:?}", second.centre);
    // The face moves relative to the previous search, not to the first one.
    let third = second.follow(&spot([20, 20], [8, 8], 0.7), sides, None).unwrap();
    assert!(near(&third, [43., 28.]), "{:?}", third.centre);
    // The box has moved.
    let fourth = moved([5, 5], [33, 18, 53, 38]);
    assert!(near(&fourth, [43., 23.]), "{:?}", fourth.centre);
    // `LOST` is the lowest value that counts as a person.
    assert!(person.clone().follow(&spot([20, 20], [5, 5], LOST), sides, None).is_some());
    assert_eq!(person.clone().follow(&spot([20, 20], [5, 5], LOST - 0.001), sides, None), None);
    assert_eq!(person.follow(&Image::new([20, 20], 0.), sides, None), None);
    // Who is behind something is searched for during a second. Meanwhile the whole picture is searched, too.
    let at = |milliseconds| Some(gst::ClockTime::from_mseconds(milliseconds));
    let third = Person { seen_at: at(1500), found_at: at(1000), ..third };
    let behind = |now| third.clone().follow(&spot([20, 20], [5, 5], LOST - 0.001), sides, now);
    assert_eq!(behind(at(2001)), None);
    let lost = behind(at(2000)).unwrap();
    assert!(lost.centre == third.centre && !lost.is_seen(at(2000)));
    let whole = boxes(Vec::new(), std::slice::from_ref(&lost), GRID, at(2000));
    assert_eq!(whole.iter().map(|(_, people)| people.len()).collect::<Vec<_>>(), [0, 1]);
    let again = lost.follow(&spot([20, 20], [9, 8], 0.7), sides, at(2001)).unwrap();
    assert!(near(&again, [44., 28.]) && again.is_seen(at(2500)) && !again.is_seen(at(2501)), "{:?}", again.centre);
    assert!(again.follow(&Image::new([20, 20], 0.), sides, at(3001)).is_some(), "it was found at 2001 ms");
}

#[test]
fn the_mask_has_a_sample_for_each_cell() {
    for (picture, size, coarse) in [
        ([1280, 720], [320, 180], [160, 90]),
        ([512, 300], [512, 300], [256, 150]),
        ([513, 301], [256, 150], [128, 75]),
        ([300, 1025], [75, 256], [38, 128]),
        ([16, 16], [16, 16], [8, 8]),
        ([5000, 16], [312, 2], [156, 1]),
        ([32767, 16], [511, 2], [256, 1]),
    ] {
        let mask = Mask::new(picture);
        assert_eq!((mask.size, mask.coarse), (size, coarse), "{picture:?}");
    }
}

/// A guide of 64x48 samples with some structure. Samples for which `changed` is true are brighter by `brighter`.
fn guide(brighter: f32, changed: impl Fn(usize, usize) -> bool) -> [Image; 3] {
    [1, 2, 3].map(|colour| {
        let mut plane = Image::new([64, 48], 0.);
        for y in 0..48 {
            for (x, value) in plane.row_mut(y).iter_mut().enumerate() {
                *value = ((x * 7 + y * 13) * colour % 64) as f32 / 128. + if changed(x, y) { brighter } else { 0. };
            }
        }
        plane
    })
}

#[track_caller]
fn assert_near(found: &Image, expected: &Image, is_there: impl Fn(usize, usize) -> bool) {
    assert_eq!(found.size(), expected.size());
    let places = (0..found.height).flat_map(|y| (0..found.width).map(move |x| (x, y)));
    for (x, y) in places.filter(|(x, y)| is_there(*x, *y)) {
        let [found, expected] = [found, expected].map(|image| image.row(y)[x]);
        assert!((found - expected).abs() < 1e-4, "{x}, {y}: {found}, not {expected}");
    }
}

/// Mixes two pictures. `share` is the share of `after`.
fn mixed(before: &Image, after: &Image, share: f32) -> Image {
    before.with(after, |before, after| before + share * (after - before))
}

#[test]
fn masks_are_averaged_where_nothing_changes() {
    let everywhere = |_: usize, _: usize| true;
    let still = guide(0., everywhere);
    let coarse = still.each_ref().map(|plane| plane.scaled([32, 24]));
    let [first, second] = [spot([32, 24], [10, 10], 1.), spot([32, 24], [20, 5], 1.)];
    for smooth in [0., 0.75] {
        let mut mask = Mask::new([64, 48]);
        let before = mask.next(&still, &first, smooth).clone();
        assert_near(&before, &fitted(&first, &still, &coarse), everywhere);
        assert_eq!(mask.confidence, first);
        // The new result has the share 1 - smooth, in the models' average and in the mask.
        let after = mask.next(&still, &second, smooth).clone();
        let confidence = mixed(&first, &second, 1. - smooth);
        assert_near(&mask.confidence, &confidence, everywhere);
        let fitted_now = fitted(&confidence, &still, &coarse);
        assert_near(&after, &mixed(&before, &fitted_now, 1. - smooth), everywhere);
        // A change of the light affects all samples alike.
        let light = guide(0.2, everywhere);
        let light_coarse = light.each_ref().map(|plane| plane.scaled([32, 24]));
        let lit = mask.next(&light, &confidence, smooth);
        assert_near(lit, &mixed(&after, &fitted(&confidence, &light, &light_coarse), 1. - smooth), everywhere);
    }
}

#[test]
fn masks_are_new_where_the_picture_changes() {
    let still = guide(0., |_, _| true);
    // Less than half of the picture changes, so the median is that of the rest.
    let moved = guide(2. * MOVED, |x, _| x < 16);
    let noisy = guide(STILL, |x, _| x < 16);
    let halfway = guide((STILL + MOVED) / 2., |x, _| x < 16);
    let [first, second] = [Image::new([32, 24], 0.2), Image::new([32, 24], 0.9)];
    let share_of = |guide: &[Image; 3]| {
        let mut mask = Mask::new([64, 48]);
        mask.next(&still, &first, 0.75);
        mask.next(guide, &second, 0.75);
        mask.confidence.clone().map(|value| (value - 0.2) / 0.7)
    };
    let [all, quarter] = [1., 0.25].map(|share| Image::new([32, 24], share));
    // Eight columns change. Two columns beside them are near enough to count as changed, too.
    let share = share_of(&moved);
    assert_near(&share, &all, |x, _| x < 10);
    assert_near(&share, &quarter, |x, _| x > 10);
    assert_near(&share_of(&noisy), &quarter, |_, _| true);
    assert_near(&share_of(&halfway), &Image::new([32, 24], 0.5), |x, _| x < 10);
    // A sample of the mask is as new as its place on the coarse grid.
    let mut mask = Mask::new([64, 48]);
    let before = mask.next(&still, &first, 0.75).clone();
    let after = mask.next(&moved, &second, 0.75).clone();
    let coarse = moved.each_ref().map(|plane| plane.scaled([32, 24]));
    let now = fitted(&mask.confidence, &moved, &coarse);
    assert_near(&after, &now, |x, _| x < 18);
    assert_near(&after, &mixed(&before, &now, 0.25), |x, _| x > 22);
}

#[test]
fn samples_are_those_of_the_box_around_the_person() {
    let mut mask = spot([12, 10], [4, 5], 0.25);
    mask.row_mut(6)[5] = 0.75;
    mask.row_mut(5)[5] = 0.5;
    mask.row_mut(5)[3] = 0.125;
    mask.row_mut(4)[4] = -0.5;
    mask.row_mut(7)[7] = 0.2499;
    let (sides, samples) = samples(&mask, 0.25).unwrap();
    // The box has the person's samples and one sample around them.
    assert_eq!(sides, [3, 4, 8, 9]);
    let expected =
        [[0, 0, 0, 0, 0], [64, 128, 191, 128, 0], [0, 128, 255, 128, 0], [0, 128, 128, 128, 127], [0, 0, 0, 0, 0]];
    assert_eq!(samples, expected.concat());
    // At the edges of the picture.
    let sides_of = |left, top| super::samples(&spot([12, 10], [left, top], 1.5), 0.25).unwrap();
    assert_eq!(sides_of(0, 0).0, [0, 0, 4, 4]);
    assert_eq!(sides_of(9, 7).0, [8, 6, 12, 10]);
    assert!(sides_of(0, 0).1.iter().all(|sample| [0, 255].contains(sample)));
    let all = super::samples(&Image::new([12, 10], 1.), 0.25).unwrap();
    assert_eq!((all.0, all.1.len()), ([0, 0, 12, 10], 120));
    // Nobody is in the picture, because no sample reaches the threshold.
    assert_eq!(super::samples(&Image::new([12, 10], 0.2499), 0.25), None);
    assert_eq!(super::samples(&Image::new([12, 10], 0.), 0.), None);
    assert_eq!(super::samples(&Image::new([12, 10], 0.001), 0.).unwrap().1[0], 128);
}
