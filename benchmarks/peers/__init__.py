"""The same work for Lithify and for what people would take instead: `make bench-peers`.

Each peer runs in a process and an environment of its own, with pinned versions, one after the other, on the same rows,
and each of its answers is compared with what must come out. What cannot be had here is named and left out.

`workload.py` makes the rows and the right answers, `environments.py` what a peer needs to be installed, `drivers/` says
how each is used as its own documentation has it, `work.py` runs one of them and takes the time, `report.py` shows all.
"""
