// SPDX-License-Identifier: MPL-2.0
//! Hands the commit and its date to the plugin description.

fn main() {
    gst_plugin_version_helper::info();
}
