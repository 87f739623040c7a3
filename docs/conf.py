"""How sphinx builds the documentation: `make docs`. Most pages are written from the package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.pages import write

project = "tileworkbench"
extensions = ["myst_nb"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = "tileworkbench"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
smartquotes = False  # flags have two dashes, and messages are quoted as they are
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# The pages need no network: nothing is executed, and nothing is fetched from elsewhere.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = []
myst_heading_anchors = 3
# Highlighting knows Python, not magics; a cell that is neither is shown plain.
suppress_warnings = ["misc.highlighting_failure"]

write(Path(__file__).parent)
