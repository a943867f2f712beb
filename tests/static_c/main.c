// SPDX-License-Identifier: MPL-2.0
// A program that links the plugin statically and blurs one frame. Fails if a byte is not that of the Gaussian.
#include <gst/app/gstappsink.h>
#include <gst/app/gstappsrc.h>
#include <gst/gst.h>

GST_PLUGIN_STATIC_DECLARE(cudagaussblur);

enum { WIDTH = 16 };

int main(int argc, char **argv) {
    gst_init(&argc, &argv);
    GST_PLUGIN_STATIC_REGISTER(cudagaussblur);

    GstPlugin *plugin = gst_registry_find_plugin(gst_registry_get(), "cudagaussblur");
    if (!plugin || gst_plugin_get_filename(plugin)) {
        g_printerr("the plugin is %s\n", plugin ? gst_plugin_get_filename(plugin) : "not registered");
        return 1;
    }
    gst_object_unref(plugin);

    GError *error = NULL;
    GstElement *pipeline = gst_parse_launch(
        "appsrc name=src caps=video/x-raw,format=GRAY8,width=16,height=1,framerate=1/1 ! "
        "cudagaussblur backend=cpu sigma=1 ! appsink name=sink", &error);
    if (error) {
        g_printerr("%s\n", error->message);
        return 1;
    }
    GstElement *src = gst_bin_get_by_name(GST_BIN(pipeline), "src");
    GstElement *sink = gst_bin_get_by_name(GST_BIN(pipeline), "sink");

    // Black, then white. The sums of the taps on either side of the edge are 0.3005 and 0.6995 of 255.
    guint8 edge[WIDTH] = {[WIDTH / 2 ... WIDTH - 1] = 255};
    const guint8 blurred[WIDTH] = {0, 0, 0, 0, 0, 1, 15, 77, 178, 240, 254, 255, 255, 255, 255, 255};
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    gst_app_src_push_buffer(GST_APP_SRC(src), gst_buffer_new_memdup(edge, sizeof edge));
    gst_app_src_end_of_stream(GST_APP_SRC(src));
    GstSample *sample = gst_app_sink_pull_sample(GST_APP_SINK(sink));
    if (!sample) {
        g_printerr("no frame arrived\n");
        return 1;
    }
    guint8 frame[WIDTH] = {0};
    gst_buffer_extract(gst_sample_get_buffer(sample), 0, frame, sizeof frame);
    int failed = 0;
    for (int i = 0; i < WIDTH; i++) {
        if (frame[i] != blurred[i]) {
            g_printerr("pixel %d is %d instead of %d\n", i, frame[i], blurred[i]);
            failed = 1;
        }
    }
    gst_sample_unref(sample);
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(src);
    gst_object_unref(sink);
    gst_object_unref(pipeline);
    if (!failed) g_print("the static plugin blurred a frame\n");
    return failed;
}
