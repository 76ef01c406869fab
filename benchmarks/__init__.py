"""Holds the benchmarks of Pulse, which measure ratios side by side in one run."""
