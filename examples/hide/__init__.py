# SPDX-License-Identifier: MPL-2.0
"""The package behind hide.py. Each file imports only files above it:

    terminal    what the user reads while it runs, and the exceptions whose text is a sentence
    report      what is doubtful in one result
    page        report.html, about all results
    folder      the folder of the results: its index, and files that are complete before they get their names
    play        plays a pipeline to its end
    inputs      which streams and tags of an input its result gets, and a remark about each that it does not get
    jobs        what can be hidden: the elements that do it, and the encoder
    pipeline    covers one file
    pictures    pictures of doubtful frames
    batch       one file after the other
    options     the command line
    main        the program
"""
