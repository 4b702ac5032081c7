"""Recounts the output tokens of captured streams with public tokenizers, and compares them with what was reported.

recount.py        the recount of one stream
output.py         gathers the generated text of open streams
models.py         which public tokenizer a model has
tokenizer.py      counts the tokens of a text
vocabularies.py   finds the files of tokenizers on this machine
bands.py          what providers report beyond the counted tokens; band_table.py: its numbers
"""
