"""The report of an evaluation, and of several side by side, as pages and as pictures."""

from gshard_m4.report.comparison_page import comparison_page as comparison_page
from gshard_m4.report.evaluation_page import page as page
