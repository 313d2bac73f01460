"""Charts and receipts: read values from bars, lines, slices and printed text."""

from tasks.charts.chart import Charts
from tasks.charts.receipt import Receipts

__all__ = ["Charts", "Receipts"]
