//! The tests on the fake CUDA driver (tests/fake_cuda) that need no process of their own; one runs at a time.
//! `cargo test --test fake_driver FILE` runs those of one file.

mod abandoned;
#[path = "../common/mod.rs"]
mod common;
mod cover_cuda;
mod cuda_without_gpu;
mod in_flight;
mod threads;
