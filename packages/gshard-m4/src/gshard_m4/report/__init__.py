"""The report of an evaluation, as a page and as pictures."""

from gshard_m4.report.evaluation_page import page as page
