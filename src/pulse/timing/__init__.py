"""WHEN: durations, back-off and clocks; knows none of the nouns."""
