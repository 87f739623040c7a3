"""Kernels as part of torch: its operators, its graphs, its gradients."""
