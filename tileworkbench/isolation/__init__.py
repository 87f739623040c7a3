"""Running code that may crash, hang or take all memory in a process of its own."""
