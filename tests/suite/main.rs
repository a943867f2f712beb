//! The tests that need no process of their own. As one program, they are compiled with tests/common once, and those of
//! different files run at the same time. `cargo test --test suite FILE` runs the tests of one file.

#[path = "../common/mod.rs"]
mod common;
mod cover;
mod covering;
mod documentation;
mod exactness;
mod examples;
mod floating_point;
mod formats;
mod hide;
mod look_ahead;
mod mosaic;
mod notices;
mod python;
mod readme;
mod regions;
mod scipy_reference;
mod scripts;
mod soft_cover;
mod tracks;
mod uncertain;
