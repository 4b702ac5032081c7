"""The view of `streamgauge top`: the answers of several admin ports as one picture in a terminal.

ports.py       admin ports, and what they answer
following.py   asks them again and again, on threads
total.py       the sum of the answers
streams.py     one stream as a line of the list; filter and sort
columns.py     which columns fit a width
words.py       durations, counts and bars as short texts
keys.py        what each key changes
picture.py     the lines of the terminal
terminal.py    reads keys, and writes the lines that changed
"""
