# SPDX-License-Identifier: MPL-2.0
"""Uses the window of examples/blur.py as a person does, and waits until the picture in it follows. `use_window.py EXAMPLES`"""
import os
import sys
import time
import traceback
sys.path.insert(0, sys.argv.pop(1))
import blur
blur.gi.require_version('GstVideo', '1.0')
from gi.repository import GLib, GstVideo
# Without it the main loop goes on after an exception.
sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(1))
pipelines = []
build = blur.build
blur.build = lambda *arguments: pipelines.append(build(*arguments)) or pipelines[-1]
def find(widget, kind):
    if type(widget).__name__ == kind:
        return widget
    children = widget.get_children() if hasattr(widget, 'get_children') else []
    return next(filter(None, (find(child, kind) for child in children)), None)
def contrast():
    sample = pipelines[0].get_by_name('sink').get_property('last-sample')
    if sample is None:
        return -1
    video = GstVideo.VideoInfo.new_from_caps(sample.get_caps())
    greens = sample.get_buffer().extract_dup(4 * video.width * (video.height // 2), 4 * video.width)[1::4]
    return max(abs(a - b) for a, b in zip(greens, greens[1:]))
def steps():
    from gi.repository import Gtk
    window = Gtk.Window.list_toplevels()[0]
    slider, sweep = find(window, 'Scale'), find(window, 'CheckButton')
    slider.set_value(0)
    while contrast() < 100:
        yield
    print('sharp')
    slider.set_value(20)
    while not 0 <= contrast() < 15:
        yield
    print('blurred')
    # The sweep starts and ends with a sigma of 0.
    sweep.set_active(True)
    while contrast() < 100:
        yield
    print('sharp, the slider is sensitive:', slider.get_sensitive())
    sweep.set_active(False)
    while not 0 <= contrast() < 15:
        yield
    print('blurred, the slider is sensitive:', slider.get_sensitive())
    window.destroy()
def next_step(remaining=steps(), end=time.monotonic() + 120):
    assert time.monotonic() < end, f'waited 120 s for the picture, which has contrast {contrast()}'
    next(remaining, None)
    return True
GLib.timeout_add(20, next_step)
sys.exit(blur.main())
