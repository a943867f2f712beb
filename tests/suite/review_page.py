# SPDX-License-Identifier: MPL-2.0
"""Uses a review page of examples/hide.py in WebKitGTK as a person does: chooses what to do with its first object, drags boxes over the
result's video, and saves the corrections. `review_page.py PAGE FOLDER CHOICE [TIME,X,Y,WIDTH,HEIGHT]...`, in seconds and shares of the
picture."""
import json
import os
import pathlib
import sys
import time

import gi

gi.require_version("Gtk", "3.0")
gi.require_version("WebKit2", "4.1")
from gi.repository import GLib, Gtk, WebKit2

page, folder, choice, *boxes = sys.argv[1:]
view, loop, end = WebKit2.WebView(), GLib.MainLoop(), time.monotonic() + 100
saved = os.path.join(os.path.abspath(folder), "saved.json")
# Waits until a condition is true, at most until the page was open for 100 s.
HELPERS = """
const wait = async (what, condition) => {
  for (let tries = 0; !condition(); tries++) {
    if (tries > 900) throw new Error(`waited for ${what}`);
    await new Promise(done => setTimeout(done, 100));
  }
};
const press = (target, kind, x, y) => target.dispatchEvent(
  new PointerEvent(kind, { clientX: x, clientY: y, pointerId: 1, bubbles: true, cancelable: true }));
"""
OPEN = """
await wait("the video", () => video.readyState >= 2);
picture.setPointerCapture = () => {};
return [video.videoWidth, video.videoHeight, data.objects.length, document.querySelectorAll("article img").length];
"""
CHOOSE = """
const choice = document.querySelector("article select");
if (choice) {
  choice.value = CHOICE;
  choice.dispatchEvent(new Event("change"));
}
return choice ? choice.value : "";
"""
DRAG = """
const [time, x, y, width, height] = BOX;
const slider = document.getElementById("slider");
slider.value = time;
slider.dispatchEvent(new Event("input"));
await wait("the frame", () => !video.seeking && Math.abs(video.currentTime - time) < 0.01);
const frame = picture.getBoundingClientRect(), at = (x, y) => [frame.left + x * frame.width, frame.top + y * frame.height];
press(picture, "pointerdown", ...at(x, y));
press(picture, "pointermove", ...at(x + width / 2, y + height));
press(picture, "pointermove", ...at(x + width, y + height));
press(picture, "pointerup", ...at(x + width, y + height));
await wait("the box", () => picture.querySelectorAll("i").length > 0);
return document.getElementById("marks").textContent;
"""
SAVE = """
document.getElementById("download").click();
return [document.getElementById("changes").textContent, document.getElementById("command").textContent];
"""


def steps():
    yield OPEN
    yield CHOOSE.replace("CHOICE", json.dumps(choice))
    for box in boxes:
        yield DRAG.replace("BOX", f"[{box}]")
    yield SAVE


def next_step(remaining=steps()):
    script = next(remaining, None)
    if script is None:
        end_part()
    else:
        view.call_async_javascript_function(HELPERS + script, -1, None, None, None, None, finish)


def finish(_, result):
    # An exception of the page ends the program.
    print(view.call_async_javascript_function_finish(result).to_json(0), flush=True)
    next_step()


def download(_, file):
    file.connect("decide-destination", lambda file, name: file.set_destination(pathlib.Path(saved).as_uri()) or print(name) or True)
    file.connect("finished", lambda _: end_part())


def end_part(parts=[]):
    """Ends the program after the last step and the download."""
    parts.append(None)
    if len(parts) == 2:
        loop.quit()


def check_time():
    if time.monotonic() > end:
        print("the page took 100 s")
        os._exit(1)
    return True


sys.excepthook = lambda kind, error, _: (print(f"{kind.__name__}: {error}"), os._exit(1))
view.get_context().connect("download-started", download)
view.connect("load-changed", lambda _, event: next_step() if event == WebKit2.LoadEvent.FINISHED else None)
window = Gtk.Window(default_width=1200, default_height=1600)
window.add(view)
window.show_all()
view.load_uri(pathlib.Path(page).absolute().as_uri())
GLib.timeout_add_seconds(1, check_time)
loop.run()
