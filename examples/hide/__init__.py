# SPDX-License-Identifier: MPL-2.0
"""The package behind hide.py. Each file imports only files that precede it in this list: terminal, report, page, folder, play,
inputs, boxes, jobs, pictures, pipeline, review, batch, verify, main."""
