# SPDX-License-Identifier: MPL-2.0
"""The package behind hide.py. A file imports only those before it: terminal, report, page, folder, play, inputs, jobs, pipeline,
pictures, batch, main."""
