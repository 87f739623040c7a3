"""Modules that are copied beside a shipped kernel: they need numpy or torch, and nothing else."""
