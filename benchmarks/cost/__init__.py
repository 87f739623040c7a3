"""Kernels with the configurations that `cost_model.py` predicts and measures."""

from __future__ import annotations

from cost import (
    attention,
    attention_states,
    column_norms,
    columns,
    convolutions,
    distances,
    elements,
    fused_products,
    graded_losses,
    group_sums,
    held_out,
    held_out_products,
    images,
    moves,
    product_chains,
    products,
    quantised,
    row_losses,
    row_norms,
    row_products,
    row_sums,
    scans,
    steps,
    windows,
)

SEEN = (
    *row_norms.CASES,
    *row_losses.CASES,
    *graded_losses.CASES,
    *row_sums.CASES,
    *columns.CASES,
    *column_norms.CASES,
    *group_sums.CASES,
    *elements.CASES,
    *moves.CASES,
    *windows.CASES,
    *images.CASES,
    *scans.CASES,
    *steps.CASES,
    *products.CASES,
    *fused_products.CASES,
    *product_chains.CASES,
    *row_products.CASES,
    *convolutions.CASES,
    *distances.CASES,
    *attention.CASES,
    *attention_states.CASES,
    *quantised.CASES,
)
HELD_OUT = (*held_out.CASES, *held_out_products.CASES)
CASES = (*SEEN, *HELD_OUT)
