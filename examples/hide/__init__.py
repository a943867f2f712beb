# SPDX-License-Identifier: MPL-2.0
"""The package behind hide.py. A file imports only those before it: terminal, report, page, folder, play, inputs, boxes, jobs,
pictures, pipeline, review, batch, verify, main."""
