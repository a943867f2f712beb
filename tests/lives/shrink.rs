//! The shortest life that still fails in the same way.

use gst_video::VideoFormat;

use crate::judge::Failure;
use crate::settings::Value;
use crate::steps::{Caps, Frame, Layout, Owner, Samples, Step, has_alpha};

/// Removes steps, and makes those that stay plainer, while the life fails with the same kind.
pub fn shortest(
    mut steps: Vec<Step>,
    mut failure: Failure,
    fails: impl Fn(&[Step]) -> Option<Failure>,
) -> (Vec<Step>, Failure) {
    let kind = failure.kind.clone();
    let mut try_with = |candidate: Vec<Step>, steps: &mut Vec<Step>| match fails(&candidate) {
        Some(other) if other.kind == kind => {
            (*steps, failure) = (candidate, other);
            true
        }
        _ => false,
    };
    loop {
        let mut has_changed = false;
        let mut count = steps.len().div_ceil(2);
        while count > 0 {
            let mut start = steps.len();
            while start > 0 {
                start = start.saturating_sub(count);
                let end = (start + count).min(steps.len());
                let candidate = [&steps[..start], &steps[end..]].concat();
                has_changed |= try_with(candidate, &mut steps);
                start = start.min(steps.len());
            }
            count /= 2;
        }
        for index in 0..steps.len() {
            for variant in 0.. {
                let Some(plainer) = plainer(&steps[index]).into_iter().nth(variant) else { break };
                // As text, because no NaN is equal to itself.
                if format!("{plainer:?}") == format!("{:?}", steps[index]) {
                    continue;
                }
                let mut candidate = steps.clone();
                candidate[index] = plainer;
                has_changed |= try_with(candidate, &mut steps);
            }
        }
        if !has_changed {
            return (steps, failure);
        }
    }
}

/// Steps that do less.
fn plainer(step: &Step) -> Vec<Step> {
    match step {
        Step::Frame(frame) => {
            let boxes = (0..frame.boxes.len()).map(|i| {
                let boxes = frame.boxes.iter().enumerate().filter(|(j, _)| *j != i);
                Frame { boxes: boxes.map(|(_, roi)| roi.clone()).collect(), ..frame.clone() }
            });
            let plain = [
                Frame { layout: Layout::Caps, ..frame.clone() },
                Frame { memories: 1, ..frame.clone() },
                Frame { owner: Owner::Nobody, ..frame.clone() },
                Frame { flags: gst::BufferFlags::empty(), ..frame.clone() },
                Frame { is_interlaced: false, ..frame.clone() },
                Frame { pts: Some(0), ..frame.clone() },
                Frame { duration: Some(40_000_000), ..frame.clone() },
            ];
            let without = (0..frame.boxes.len()).filter(|i| frame.boxes[*i].mask.is_some()).map(|i| {
                let mut frame = frame.clone();
                frame.boxes[i].mask = None;
                frame
            });
            // Not the other way round, so that it ends.
            let alphas = match frame.alpha {
                None | Some(Samples::All(255)) => vec![],
                Some(Samples::All(0)) => vec![Some(Samples::All(255))],
                Some(Samples::All(_)) => vec![Some(Samples::All(255)), Some(Samples::All(0))],
                Some(_) => vec![None, Some(Samples::All(255)), Some(Samples::All(0))],
            };
            let alphas = alphas.into_iter().map(|alpha| Frame { alpha, ..frame.clone() });
            boxes.chain(without).chain(plain).chain(alphas).map(Step::Frame).collect()
        }
        Step::Set("region-sources", Value::Text(sources)) if sources.ends_with("+alpha") => {
            vec![Step::Set("region-sources", Value::Text("alpha"))]
        }
        Step::Caps(caps) => [
            Caps { is_in_cuda: false, ..caps.clone() },
            Caps {
                format: if has_alpha(VideoFormat::from_string(&caps.format)) {
                    "RGBA".to_owned()
                } else {
                    caps.format.clone()
                },
                ..caps.clone()
            },
            Caps { format: if caps.is_in_cuda { "NV12" } else { "GRAY8" }.to_owned(), ..caps.clone() },
            Caps { interlace_mode: "progressive", ..caps.clone() },
            Caps { rate: (25, 1), max_rate: None, ..caps.clone() },
            Caps { size: [16, 8], ..caps.clone() },
        ]
        .into_iter()
        .map(Step::Caps)
        .collect(),
        _ => Vec::new(),
    }
}
