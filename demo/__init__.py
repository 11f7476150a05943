"""`make demo`: the whole pipeline on one machine, with faults."""
