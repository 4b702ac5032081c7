"""All settings, and how their values are read.

declarations.py   every setting, once: its type, default, text, commands and section
sources.py        the values of a run: from options, the environment and a file, in this order
types.py          the types of settings: what a value may be, and how help and errors name it
attributes.py     --attribute and --metric-attribute
exposed_files.py  files of secrets that other users can read or change
"""
