"""Settings of Sphinx for the site. Nothing here needs a network."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "Lucerne"
author = "Lucerne contributors"
version = release = installed("lucerne")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"  # a fence without a language is an output
pygments_style = "default"
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
add_module_names = True

html_theme = "pydata_sphinx_theme"
html_title = f"Lucerne {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "contents": []}
