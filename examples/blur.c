// SPDX-License-Identifier: MPL-2.0
// cudagaussblur in a C program: plays a file or a test pattern in a window, or writes it as MP4, without sound. Sigma
// changes every 30 frames.
//
//     cc -Wall -Wextra -o blur examples/blur.c $(pkg-config --cflags --libs gstreamer-1.0)
//     ./blur [FILE [RESULT]]
//
// Needs, on Debian and Ubuntu: gcc pkg-config libgstreamer1.0-dev gstreamer1.0-plugins-base gstreamer1.0-plugins-good
// gstreamer1.0-plugins-ugly (x264enc) gstreamer1.0-libav (decoders); and the plugin, installed or in GST_PLUGIN_PATH.

#include <stdlib.h>
#include <gst/gst.h>

static gboolean
is_available (const char *element, const char *package)
{
  g_autoptr (GstElementFactory) factory = gst_element_factory_find (element);
  if (!factory)
    g_printerr ("GStreamer does not find %s: install %s\n", element, package);
  return factory != NULL;
}

// Called on the streaming thread for each frame, before it is blurred. Properties can be set from any thread; the next frame uses
// the new value.
static GstPadProbeReturn
change_sigma (GstPad *pad, GstPadProbeInfo *info, gpointer blur)
{
  static const double sigmas[] = { 0, 2, 4, 8, 16 };
  static guint frame;

  (void) pad;
  (void) info;
  if (frame % 30 == 0) {
    double sigma = sigmas[frame / 30 % G_N_ELEMENTS (sigmas)];
    g_object_set (blur, "sigma", sigma, NULL);
    g_print ("frame %u: sigma %g\n", frame, sigma);
  }
  frame++;
  return GST_PAD_PROBE_OK;
}

// Waits for the end of the stream and prints warnings and errors. Returns FALSE after an error.
static gboolean
wait_for_end (GstElement *pipeline, const char *name)
{
  g_autoptr (GstBus) bus = gst_element_get_bus (pipeline);

  for (;;) {
    g_autoptr (GstMessage) message = gst_bus_timed_pop_filtered (bus, GST_CLOCK_TIME_NONE,
        GST_MESSAGE_EOS | GST_MESSAGE_ERROR | GST_MESSAGE_WARNING);
    g_autoptr (GError) error = NULL;
    g_autofree char *details = NULL;

    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_EOS)
      return TRUE;
    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR)
      gst_message_parse_error (message, &error, &details);
    else
      gst_message_parse_warning (message, &error, &details);
    g_printerr ("%s: %s\n%s\n", name, error->message, details ? details : "");
    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR)
      return FALSE;
  }
}

int
main (int argc, char **argv)
{
  gst_init (&argc, &argv);
  const char *file = argc > 1 ? argv[1] : NULL;
  const char *result = argc > 2 ? argv[2] : NULL;

  if (!is_available ("cudagaussblur", "the plugin or set GST_PLUGIN_PATH to its folder")
      || !is_available ("videoconvert", "gstreamer1.0-plugins-base")
      || (result && !is_available ("mp4mux", "gstreamer1.0-plugins-good"))
      || (result && !is_available ("x264enc", "gstreamer1.0-plugins-ugly")))
    return EXIT_FAILURE;

  const char *window = g_getenv ("DISPLAY") || g_getenv ("WAYLAND_DISPLAY") ? "autovideosink" : "fakesink";
  g_autofree char *description = g_strdup_printf ("%s ! videoconvert ! cudagaussblur name=blur ! videoconvert ! %s",
      file ? "filesrc name=file ! decodebin" : "videotestsrc num-buffers=300 ! video/x-raw,width=1280,height=720",
      result ? "video/x-raw,format=I420 ! x264enc pass=quant ! mp4mux ! filesink name=result" : window);
  g_autoptr (GError) error = NULL;
  g_autoptr (GstElement) pipeline = gst_parse_launch (description, &error);
  if (error) {
    g_printerr ("%s\n", error->message);
    return EXIT_FAILURE;
  }
  if (file) {
    g_autoptr (GstElement) source = gst_bin_get_by_name (GST_BIN (pipeline), "file");
    g_object_set (source, "location", file, NULL);
  }
  if (result) {
    g_autoptr (GstElement) sink = gst_bin_get_by_name (GST_BIN (pipeline), "result");
    g_object_set (sink, "location", result, NULL);
  }
  g_autoptr (GstElement) blur = gst_bin_get_by_name (GST_BIN (pipeline), "blur");
  g_autoptr (GstPad) pad = gst_element_get_static_pad (blur, "sink");
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_BUFFER, change_sigma, blur, NULL);

  // If an element fails to start, the reason is an error message on the bus.
  gst_element_set_state (pipeline, GST_STATE_PLAYING);
  gboolean played = wait_for_end (pipeline, file ? file : "test pattern");

  if (played) {
    g_autoptr (GstStructure) stats = NULL;
    g_object_get (blur, "stats", &stats, NULL);
    g_autofree char *text = gst_structure_to_string (stats);
    g_print ("%s\n", text);
  }
  gst_element_set_state (pipeline, GST_STATE_NULL);
  return played ? EXIT_SUCCESS : EXIT_FAILURE;
}
