"""`python -m sxi.contracts` writes docs/contracts.md from the table of rules."""

from pathlib import Path

from sxi.contracts import page_of_rules

if __name__ == "__main__":
    Path("docs/contracts.md").write_text(page_of_rules(), encoding="utf-8")
