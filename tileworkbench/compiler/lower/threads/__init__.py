"""The tile operators on the threads of a GPU block: how each constrains layouts, how it lowers."""
