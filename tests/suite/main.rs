//! The tests that need no process of their own. As one program, they are compiled with tests/common once, and those of
//! different files run at the same time. `cargo test --test suite FILE` runs the tests of one file.

#[path = "../common/mod.rs"]
mod common;
mod cover;
mod covering;
mod documentation;
mod exactness;
mod floating_point;
mod formats;
mod live;
mod look_ahead;
mod mosaic;

mod pipelines;
mod regions;
mod soft_cover;
mod stereo;
mod tracks;
mod uncertain;
mod warnings;

// Shell scripts, Python programs that they start, and plugin files.
#[cfg(unix)]
mod centerface;
#[cfg(unix)]
mod examples;
#[cfg(unix)]
mod hide;
#[cfg(unix)]
mod python;
#[cfg(unix)]
mod readme;
#[cfg(unix)]
mod scripts;
