"""The live views. Each module declares the traits of one widget; `viz.model` has all logic."""
