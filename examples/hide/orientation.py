# SPDX-License-Identifier: MPL-2.0
"""Finds files whose pictures players turn or mirror, but GStreamer does not. Detectors find fewer faces in pictures that lie on their
side."""

import os
import re
import struct

# In Matroska, the angle by which players turn pictures: ProjectionPoseRoll, in Projection, a float of four or eight bytes.
ROLL = re.compile(rb"\x76\x70.{1,64}?\x76\x75(?:\x84(.{4})|\x88(.{8}))", re.DOTALL)
# In MP4, the matrices (a, b, c, d) of tracks by which GStreamer turns pictures.
TURNS = {(0, 65536, -65536, 0), (-65536, 0, 0, -65536), (0, -65536, 65536, 0)}
# The beginnings of photographs: JPEG, PNG, WebP.
PHOTOGRAPH = re.compile(rb"\xff\xd8|\x89PNG|RIFF....WEBP", re.DOTALL)
# In their EXIF data, an orientation other than the usual one: a number of two bytes in a list of tags, in either order of bytes.
TAG = rb"(?:II\*\0.{4,400}?\x12\x01\x03\0\x01\0\0\0[\x02-\x08]|MM\0\*.{4,400}?\x01\x12\0\x03\0\0\0\x01\0[\x02-\x08])"
EXIF = re.compile(rb"(?:Exif\0\0|eXIf|EXIF....)" + TAG, re.DOTALL)


def unknown_turn(file):
    """Returns what to do if players turn or mirror the pictures of an open file, and GStreamer does not know it."""
    head = file.read(1 << 20)
    if head.startswith(b"\x1a\x45\xdf\xa3") and (found := ROLL.search(head)):
        roll = struct.unpack(">f" if found[1] else ">d", found[1] or found[2])[0]
        return f"copy its streams to an MP4 file (ProjectionPoseRoll is {roll:g})" if roll % 360 else None
    # PNG and WebP files may have EXIF data behind the pixels.
    if PHOTOGRAPH.match(head) and EXIF.search(head + file.read(1 << 28)):
        return "turn the photograph by another program first"
    if head[4:8] not in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"):
        return None
    file.seek(0)
    while len(header := file.read(8)) == 8:
        size, kind = struct.unpack(">I4s", header)
        if size == 1:
            size = int.from_bytes(file.read(8), "big") - 8
        if kind == b"tkhd" and 52 <= size < 1000:
            matrix = struct.unpack(">9i", file.read(size - 8)[-44:-8])
            a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
            if (b or c or a < 0 or d < 0) and (a, b, c, d) not in TURNS:
                return "turn them by another program first, which writes them anew"
        elif kind not in (b"moov", b"trak"):
            if size < 8:
                break
            file.seek(size - 8, os.SEEK_CUR)
    return None
