"""The report of an evaluation, and of several side by side, as pages and as pictures."""

from gshard_m4.report.comparison_page import comparison_page as comparison_page
from gshard_m4.report.evaluation_page import page as page
from gshard_m4.report.picture_files import comparison_picture_files as comparison_picture_files
from gshard_m4.report.picture_files import picture_files as picture_files
