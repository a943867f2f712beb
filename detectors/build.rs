// SPDX-License-Identifier: MPL-2.0
//! Passes the commit and its date to the plugin.

fn main() {
    gst_plugin_version_helper::info();
}
