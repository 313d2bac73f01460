"""Print the names of the pages: python -m tasks.browser"""

from tasks.browser.page import page_names

print("\n".join(page_names()))
